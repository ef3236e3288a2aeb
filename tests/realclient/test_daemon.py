"""A daemon and a real client on one projects folder: restore, prune, undo, while work goes on."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from tests.realclient import images, recordings, running
from tests.realclient.running import RealClient
from tests.support.daemons import Daemon
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BY_HAND = "[archive]\nenabled = false\n[prune]\nenabled = false\nquiet = 0\n"
PROMPT = "And what now?"
ANSWER = [{"text": "Now we are done."}]
OLD = time.time() - 40 * 86400
LONG = [{"text": "That took long.", "sleep": 9}]
"""The client cleans up some five seconds after its start, if it lives that long."""


def daemon(folder, root):
    """A daemon that does nothing to transcripts by itself, and waits for no quiet."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.toml"
    config.write_text(BY_HAND)
    return Daemon(folder / "run", root, FABLED_CONFIG=str(config))


def ask(running_daemon, *command):
    """`fablectl`, which has to do what it is asked."""
    done = running_daemon.client(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pruned(running_daemon, session, *options):
    """`fablectl prune`, which has to prune it; what it said."""
    said = json.loads(ask(running_daemon, "prune", session, "--json", *options))
    (one,) = said["sessions"]
    assert one["applied"], one
    assert one["after_bytes"] < one["before_bytes"]
    return one


def tree(folder):
    """Every file's bytes, but for locks and what is ours."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".fabled-")
    }


@pytest.fixture
def client(version, tmp_path):
    """A real client on a leash, with a session of some turns and tools behind it."""
    with RealClient(version, tmp_path / "client") as found:
        found.turn("List the files.", reading("main.py", "Three of them."))
        found.resume("Look again.", reading("notes.md", "The same three."))
        found.resume("Count them.", [{"text": "Three."}])
        yield found


def reading(name, answer):
    """A tool call, then words."""
    call = {"name": "Read", "input": {"file_path": f"/home/dev/proj/{name}"}}
    return [{"text": "Looking.", "tools": [call]}, {"text": answer}]


def test_restored_sessions_are_the_same_bytes_and_resume(version, tmp_path):
    """Sealed, deleted by somebody, put back: every session and sidecar, and they resume."""
    root = tmp_path / "projects"
    fixtures = [f for f in images.fixtures(version) if "extra" not in f.path.parts]
    kept = tmp_path / "kept"
    for fixture in fixtures:
        images.put(fixture.path, kept / str(fixture), fixture.session)
        shutil.copytree(kept / str(fixture), root / "-home-dev-proj", dirs_exist_ok=True)
    before = tree(root)
    with daemon(tmp_path, root) as running_daemon:
        running_daemon.idle()
        ask(running_daemon, "vault", "seal", "--all")
        shutil.rmtree(root / "-home-dev-proj")
        ask(running_daemon, "index", "--wait")
        for fixture in fixtures:
            ask(running_daemon, "vault", "restore", fixture.session)
    assert tree(root) == before
    chosen = [f for f in fixtures if (kept / str(f) / f.session).is_dir()][:2] or fixtures[:2]
    pairs = [
        [kept / str(f) / f"{f.session}.jsonl", root / "-home-dev-proj" / f"{f.session}.jsonl"]
        for f in chosen
    ]
    verdicts = running.compare(version, pairs, tmp_path / "compared")
    for verdict in verdicts.values():
        assert verdict["problems"] == []
        assert verdict["identical"]


def test_restored_session_resumes_where_it_lay(client, tmp_path):
    """The client's own folder loses a session; after the restore the client goes on in it."""
    path = client.transcript
    data = path.read_bytes()
    with daemon(tmp_path / "d", client.projects) as running_daemon:
        running_daemon.idle()
        ask(running_daemon, "vault", "seal", "--all")
        path.unlink()
        ask(running_daemon, "index", "--wait")
        ask(running_daemon, "vault", "restore", client.session)
        assert path.read_bytes() == data
        sent = client.resume(PROMPT, ANSWER)
    said = running.words(sent)
    assert [text for role, text in said if role == "user"][-1] == PROMPT
    assert ("assistant", "Three of them.") in said
    assert path.read_bytes().startswith(data)


def test_undone_prune_is_the_same_bytes_and_resumes(client, tmp_path):
    """Prune, undo: the bytes of before; and the client sends what it would have sent."""
    path = client.transcript
    original = images.put(path, tmp_path / "original", path.stem)
    with daemon(tmp_path / "d", client.projects) as running_daemon:
        running_daemon.idle()
        pruned(running_daemon, client.session, "--level", "lean", "--keep-prompts", "0")
        image = images.put(path, tmp_path / "image", path.stem)
        assert image.stat().st_size < original.stat().st_size
        ask(running_daemon, "undo", client.session)
        assert path.read_bytes() == original.read_bytes()
    undone = images.put(path, tmp_path / "undone", path.stem)
    verdicts = running.compare(client.version, [[original, image, undone]], tmp_path / "c")
    assert verdicts[image]["problems"] == []
    assert verdicts[undone]["identical"]


def test_work_goes_on_in_a_pruned_session_and_survives_its_undo(client, tmp_path):
    """Prune, two more turns by the client, undo: old and new, byte for byte; it resumes."""
    path = client.transcript
    before = path.read_bytes()
    with daemon(tmp_path / "d", client.projects) as running_daemon:
        running_daemon.idle()
        pruned(running_daemon, client.session)
        image = path.read_bytes()
        client.resume(PROMPT, reading("main.py", "Read it once more."))
        second = client.resume("And then?", ANSWER)
        grown = path.read_bytes()
        assert grown.startswith(image)
        ask(running_daemon, "undo", client.session)
        assert path.read_bytes() == before + grown[len(image) :]
        last = client.resume("Still there?", ANSWER)
    assert running.words(last)[:-1] == [*running.words(second), ("assistant", ANSWER[0]["text"])]
    assert running.results(last) == running.results(second)


def test_prune_while_the_client_lives_is_refused_or_harmless(client, tmp_path):
    """A client that keeps notes about its process is not disturbed; an older one loses nothing."""
    path = client.transcript
    with daemon(tmp_path / "d", client.projects) as running_daemon:
        running_daemon.idle()
        pid = client.open("--resume", client.session)
        client.say(PROMPT, ANSWER)
        running_daemon.idle()
        notes = list((client.projects.parent / "sessions").glob("*.json"))
        before, inode = path.read_bytes(), path.stat().st_ino
        done = running_daemon.client("prune", client.session, "--json")
        (one,) = json.loads(done.stdout)["sessions"]
        if notes:
            assert done.returncode == 5
            assert one["refused"]["code"] == "session_live"
            assert path.read_bytes().startswith(before)  # its last records may come late
            assert path.stat().st_ino == inode
            assert str(pid) in one["refused"]["message"]
        else:
            assert one["applied"]
        client.say("And then?", ANSWER)
        assert client.close_stream() == 0
        if notes:
            until(lambda: not list((client.projects.parent / "sessions").glob("*.json")))
            pruned(running_daemon, client.session)
        sent = client.resume("Still there?", ANSWER)
    said = [text for role, text in running.words(sent) if role == "user"]
    wanted = ["List the files.", "Look again.", "Count them.", PROMPT, "And then?", "Still there?"]
    assert [text for text in said if text in wanted] == wanted


def test_session_that_the_client_cleans_away_comes_back_and_stays(newest, tmp_path):
    """The client deletes it after 30 days; restored it resumes, and the next cleanup spares it."""
    with RealClient(newest, tmp_path / "client") as client:
        client.turn("An old story.", [{"text": "It is told."}])
        path, session = client.transcript, client.session
        data = path.read_bytes()
        os.utime(path, (OLD, OLD))
        with daemon(tmp_path / "d", client.projects) as running_daemon:
            running_daemon.idle()
            (risk,) = [s for s in running_daemon.status()["at_risk"] if s["session"] == session]
            ask(running_daemon, "vault", "seal", session)
            client.turn("Meanwhile.", LONG)
            assert not path.exists(), "the client did not clean up: nothing was tested"
            ask(running_daemon, "index", "--wait")
            assert b"An old story." in ask(running_daemon, "search", "old story", "--json")
            ask(running_daemon, "vault", "restore", session)
            client.turn("And again.", LONG)
            assert path.read_bytes() == data
            sent = client.turn(PROMPT, ANSWER, "--resume", session)
    assert ("assistant", "It is told.") in running.words(sent)
    assert risk["session"] == session


def test_prune_of_an_older_session_leaves_continue_where_it_was(client, tmp_path):
    """`--continue` opens the session that was used last, not the one that was pruned last."""
    older = client.session
    client.turn("Another matter.", [{"text": "Quite another."}])
    with daemon(tmp_path / "d", client.projects) as running_daemon:
        running_daemon.idle()
        pruned(running_daemon, older)
        sent = client.turn(PROMPT, ANSWER, "--continue")
    assert client.session != older
    assert ("user", "Another matter.") in running.words(sent)


def test_named_session_is_found_by_its_name_after_a_prune(newest, tmp_path):
    """The title survives: `--resume NAME` opens a session that was pruned and grew since."""
    with RealClient(newest, tmp_path / "client") as client:
        client.turn("A named session.", reading("main.py", "Named."), "--name", "blue-harbour")
        with daemon(tmp_path / "d", client.projects) as running_daemon:
            running_daemon.idle()
            pruned(running_daemon, client.session, "--level", "lean", "--keep-prompts", "0")
            client.turn("By name.", reading("notes.md", "Found."), "--resume", "blue-harbour")
            running_daemon.idle()
            pruned(running_daemon, client.session)
            sent = client.turn(PROMPT, ANSWER, "--resume", "blue-harbour")
    said = [text for role, text in running.words(sent) if role == "user"]
    assert said == ["A named session.", "By name.", PROMPT]


def test_large_compacted_session_pruned_by_hand_goes_on(newest, tmp_path):
    """The whole way: a client's megabytes, `fablectl prune`, the client again, no word less."""
    with RealClient(newest, tmp_path / "client") as client:
        path = recordings.compacted(client)
        twin = images.put(path, tmp_path / "twin", path.stem)
        before = os.stat(path)
        with daemon(tmp_path / "d", client.projects) as running_daemon:
            running_daemon.idle()
            one = pruned(running_daemon, client.session)
            assert one["after_bytes"] < one["before_bytes"] / 10
            after = os.stat(path)
            assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
            image = images.put(path, tmp_path / "image", path.stem)
            sent = client.resume(PROMPT, ANSWER)
        assert running.words(sent)
    verdicts = running.compare(newest, [[twin, image]], tmp_path / "c")
    assert verdicts[image]["problems"] == []
    assert verdicts[image]["identical"]

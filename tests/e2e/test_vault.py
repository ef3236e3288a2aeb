"""The Vault through the socket and the client: archive, deletion, restore, forget."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from fabled.system import real
from fabled.vault.frames import Frames
from tests.support.daemons import Daemon
from tests.support.http_socket import ask
from tests.support.transcripts import prompt, reply, tool_result, uid
from tests.support.waiting import until

QUIET = "[archive]\nquiet = 1\n[prune]\nenabled = false\n"


@pytest.fixture
def projects(tmp_path):
    """A projects folder with one session, a subagent and a spilled result."""
    root = tmp_path / "claude" / "projects"
    write(root / "-p" / "s1.jsonl", prompt("a", None, "alpha wombat") + reply("b", "a", "beta"))
    inner = root / "-p" / "s1"
    write(inner / "subagents" / "agent-x1.jsonl", prompt("c", None, "gamma", isSidechain=True))
    write(inner / "subagents" / "agent-x1.meta.json", b'{"toolUseId":"toolu_9"}')
    write(inner / "tool-results" / "t1.txt", b"spilled words\n" * 50)
    return root


def write(path, data):
    """A live file, quiet for an hour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.chmod(path, 0o600)
    old = time.time() - 3600
    os.utime(path, (old, old))
    return path


def daemon(tmp_path, root, config=QUIET, **more):
    """A daemon with a home of its own and this configuration."""
    file = tmp_path / "config.toml"
    file.write_text(config)
    return Daemon(tmp_path / "run", root, FABLED_CONFIG=str(file), **more)


def post(running, target):
    """The lines of a long order."""
    reply_ = ask(running.socket, target, method="POST")
    assert reply_.status == 200, reply_.body
    return [json.loads(line) for line in reply_.body.splitlines()]


def sealed(running):
    """Wait until every transcript is in the Vault to its last byte."""
    return until(lambda: (s := running.status())["vault"]["unsealed_bytes"] == 0 and s, 60)


def tree(root):
    """Every file's bytes and mode."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_quiet_session_is_archived_and_outlives_the_deletion_of_everything(tmp_path, projects):
    """Archive, delete all, search, block, restore: every byte and mode is back, mtime is now."""
    before = tree(projects)
    with daemon(tmp_path, projects) as running:
        sealed(running)
        until(lambda: running.status()["vault"]["generations"] == 4, 30)
        shutil.rmtree(projects / "-p")
        (projects / "other").mkdir()
        until(lambda: running.status()["map"]["files"] == 0, 60)
        (found,) = running.search("wombat")["results"]
        assert (found["session"], found["vanished"]) == ("s1", True)
        assert running.block(uid("c")).body == before["-p/s1/subagents/agent-x1.jsonl"][0][:-1]
        (row,) = running.json("/v1/sessions", vanished=1)["sessions"]
        assert (row["session"], row["unsealed_bytes"]) == ("s1", 0)
        assert row["sealed_bytes"] == sum(
            len(data) for name, (data, _) in before.items() if name.endswith(".jsonl")
        )
        began = time.time()
        steps = post(running, "/v1/vault/restore?session=s1")
        assert steps[-1]["restored"] == 4
        assert tree(projects) == before
        assert all(p.stat().st_mtime >= began - 1 for p in projects.rglob("*") if p.is_file())
        events = [event["event"] for event in running.json("/v1/events")["events"]]
        assert events.count("sealed") == 4
        assert events.count("vanished") == 1
        assert events.count("restored") == 4


def test_rebuild_from_the_vault_alone_recalls_every_record(tmp_path, projects):
    """With the projects folder gone, `index --rebuild` brings every record and thread back."""
    with daemon(tmp_path, projects) as running:
        sealed(running)
        running.idle()
        before = running.status()["map"]
        blocks = {name: running.block(uid(name)).body for name in "abc"}
        shutil.rmtree(projects)
        assert running.index(rebuild=1)["step"] == "done"
        running.idle()
        after = running.status()["map"]
        assert (after["records"], after["threads"]) == (before["records"], before["threads"])
        assert {name: running.block(uid(name)).body for name in "abc"} == blocks
    os.unlink(tmp_path / "run" / "home" / "map.db")
    with daemon(tmp_path, projects) as running:
        running.idle()
        assert {name: running.block(uid(name)).body for name in "abc"} == blocks


def test_restore_never_writes_over_newer_data(tmp_path, projects):
    """A transcript that is there and differs is refused and untouched; the others come back."""
    with daemon(tmp_path, projects) as running:
        sealed(running)
        until(lambda: running.status()["vault"]["generations"] == 4, 30)
        newer = write(projects / "-p" / "s1.jsonl", b'{"type":"user","uuid":"zz"}\n')
        os.unlink(projects / "-p" / "s1" / "tool-results" / "t1.txt")
        steps = post(running, "/v1/vault/restore?session=s1&generation=0")
        codes = {step["path"]: step.get("code") for step in steps if step["step"] == "skipped"}
        assert codes[str(newer)] == "newer_data"
        assert newer.read_bytes() == b'{"type":"user","uuid":"zz"}\n'
        assert (projects / "-p" / "s1" / "tool-results" / "t1.txt").exists()
        target = tmp_path / "elsewhere" / "old.jsonl"
        steps = post(running, f"/v1/vault/restore?session=s1&generation=0&to={target}&keep_mtime=1")
        assert steps[-1]["restored"] >= 1
        assert b"wombat" in target.read_bytes()
        assert target.stat().st_mtime < time.time() - 1800


def test_appends_cost_their_tail_and_nothing_is_sealed_while_it_grows(tmp_path, projects):
    """A session that goes on is sealed again when it is quiet, by its growth only."""
    path = projects / "-p" / "s1.jsonl"
    with daemon(tmp_path, projects) as running:
        sealed(running)
        with path.open("ab") as handle:
            handle.write(tool_result("d", "b", "toolu_1", os.urandom(50_000).hex()))
        until(lambda: running.status()["vault"]["unsealed_bytes"] > 0, 30)
        sealed(running)
        found = running.json("/v1/vault", session="s1")["generations"]
        mine = [one for one in found if one["path"] == str(path)]
        assert [one["kind"] for one in mine] == ["raw", "tail"]
        assert mine[1]["size"] == path.stat().st_size - mine[0]["size"]


def test_many_deletions_at_once_are_one_mass_event_and_all_stay_searchable(tmp_path, projects):
    """V2: hundreds of transcripts go within a second; none is lost, one event names the count."""
    for number in range(60):
        write(projects / "-q" / f"m{number:03}.jsonl", prompt(f"m{number}", None, f"mass{number}"))
    with daemon(tmp_path, projects) as running:
        sealed(running)
        for number in range(50):
            os.unlink(projects / "-q" / f"m{number:03}.jsonl")
        until(
            lambda: [
                e
                for e in running.json("/v1/events")["events"]
                if e["event"] == "mass_deletion" and e["detail"]["count"] == 50
            ],
            60,
        )
        for number in range(0, 60, 7):
            assert running.search(f"mass{number}")["results"]
        assert post(running, "/v1/vault/gc")[-1]["removed"] == []
        assert post(running, "/v1/vault/restore?all=1")[-1]["restored"] == 50


def test_empty_session_over_a_long_one_keeps_the_long_one(tmp_path, projects):
    """V3: a short history is written over the path; both are generations, both come back."""
    path = projects / "-p" / "s1.jsonl"
    long = b"".join(prompt(f"n{i}", None, "words " * 200) for i in range(100))
    write(path, long)
    with daemon(tmp_path, projects) as running:
        sealed(running)
        write(path, prompt("new", None, "a fresh start"))

        def kinds():
            found = running.json("/v1/vault")["generations"]
            return [one["kind"] for one in found if one["path"] == str(path)]

        try:
            until(lambda: kinds() == ["raw", "raw"], 40)
        except AssertionError:
            pytest.fail(f"{kinds()} {running.status()} {running.log.read_text()[-2000:]}")
        target = tmp_path / "back.jsonl"
        post(running, f"/v1/vault/restore?session=s1&generation=0&to={target}")
        assert target.read_bytes() == long
        assert post(running, "/v1/vault/gc")[-1]["removed"] == []


def test_forgotten_thread_leaves_no_trace_in_anything_of_ours(tmp_path, projects):
    """Its words are in no file of the home: after forgetting, a rescan, a restart."""
    needle = "xylophonist"
    path = projects / "-p" / "s2.jsonl"
    kept = prompt("k1", None, "keep me") + reply("k2", "k1", "kept answer")
    write(path, kept + prompt("z1", "k2", f"{needle} secret") + reply("z2", "z1", f"{needle} too"))
    with daemon(tmp_path, projects) as running:
        sealed(running)
        running.idle()
        thread = running.search(needle)["results"][0]["thread"]
        dry = ask(running.socket, f"/v1/forget?name={thread}&dry_run=1", method="POST").json()
        assert (dry["kind"], dry["records"], dry["applied"]) == ("thread", 2, False)
        assert running.search(needle)["results"]
        done = ask(running.socket, f"/v1/forget?name={thread}", method="POST").json()
        assert (done["applied"], done["live"]) == (True, "untouched")
        assert needle.encode() in path.read_bytes()
        assert not running.search(needle)["results"]
        assert running.block(uid("z1")).status == 404
        assert running.block(uid("k2")).body == kept.splitlines()[1]
        running.index()
        until(lambda: running.status()["state"] == "idle", 60)
        assert not running.search(needle)["results"]
    assert traces(tmp_path / "run" / "home", needle) == []
    with daemon(tmp_path, projects) as running:
        running.idle()
        sealed_images = running.json("/v1/vault", session="s2")["generations"]
        assert sealed_images
        assert not running.search(needle)["results"]
        assert running.search("kept answer")["results"]
        assert post(running, "/v1/vault/verify")[-1]["damaged"] == 0
    assert traces(tmp_path / "run" / "home", needle) == []


def test_forgotten_session_is_gone_and_not_archived_again(tmp_path, projects):
    """Generations, spilled results and words of a session go; the live file stays untouched."""
    live = tree(projects)
    with daemon(tmp_path, projects) as running:
        sealed(running)
        until(lambda: running.status()["vault"]["generations"] == 4, 30)
        done = ask(running.socket, "/v1/forget?name=s1", method="POST").json()
        assert (done["kind"], done["generations"]) == ("session", 4)
        running.index()
        assert not running.search("wombat")["results"]
        assert running.json("/v1/vault")["generations"] == []
        assert post(running, "/v1/vault/seal?all=1")[-1]["sealed"] == 0
    assert tree(projects) == live
    assert traces(tmp_path / "run" / "home", "wombat") == []
    assert traces(tmp_path / "run" / "home", "spilled words") == []


def traces(home, needle):
    """Files of ours that hold a word, compressed ones looked into."""
    found = []
    for path in sorted(Path(home).rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".zst":
            frames = Frames(real().files.open_read(str(path)), str(path))
            data = frames.pread(0, 1 << 30)
            frames.close()
        if needle.encode() in data:
            found.append(str(path))
    return found


def test_imported_backups_are_found_in_place_and_recalled(tmp_path, projects):
    """Existing plain vaults with gaps are indexed where they lie, and never changed."""
    old = tmp_path / "old"
    raw = prompt("o1", None, "ancient heron") + reply("o2", "o1", "long " * 50)
    write(old / "deep" / "s9" / "v0-raw.jsonl", raw)
    write(old / "deep" / "s9" / "v4-pruned.jsonl", raw.splitlines(keepends=True)[0])
    write(old / "deep" / "s9" / "notes.txt", b"not a generation")
    digest = {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in old.rglob("*.jsonl")}
    with daemon(tmp_path, projects) as running:
        running.idle()
        steps = post(running, f"/v1/vault/import?path={old}")
        assert steps[-1]["generations"] == 2
        until(lambda: running.search("heron")["results"], 30)
        assert running.block(uid("o2")).body == raw.splitlines()[1]
        assert post(running, f"/v1/vault/import?path={old}")[-1]["generations"] == 2
        target = tmp_path / "s9.jsonl"
        post(running, f"/v1/vault/restore?session=s9&generation=0&to={target}")
        assert target.read_bytes() == raw
    assert {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in digest} == digest


def test_everything_of_ours_is_private_whatever_the_umask(tmp_path, projects):
    """C2: umask 000 at start; every folder of ours is 0700 and every file without others' bits."""
    mask = os.umask(0)
    try:
        with daemon(tmp_path, projects) as running:
            sealed(running)
            running.index()
            home = tmp_path / "run" / "home"
            open_to_others = [
                str(path)
                for path in [home, *home.rglob("*")]
                if path.lstat().st_mode & 0o077 and not path.is_symlink()
            ]
            assert open_to_others == []
    finally:
        os.umask(mask)


def test_damaged_generation_is_found_and_other_copies_still_answer(tmp_path, projects):
    """A flipped byte is named by verify; the live copy still recalls."""
    with daemon(tmp_path, projects) as running:
        sealed(running)
        (stored,) = [
            Path(g["stored_path"])
            for g in running.json("/v1/vault")["generations"]
            if g["path"].endswith("/s1.jsonl")
        ]
        os.chmod(stored, 0o600)
        data = bytearray(stored.read_bytes())
        data[20] ^= 0xFF
        stored.write_bytes(bytes(data))
        steps = post(running, "/v1/vault/verify")
        assert [s["path"] for s in steps if s["step"] == "damaged"] == [str(stored)]
        assert running.block(uid("a")).status == 200


def test_thread_forgotten_live_too_leaves_the_transcript_in_one_chain(tmp_path, projects):
    """--live: its lines go through the prune's door, the others stay to the byte but for a link."""
    path = projects / "-p" / "s3.jsonl"
    before = prompt("k1", None, "keep me") + reply("k2", "k1", "kept answer")
    gone = prompt("z1", "k2", "zymurgy secret") + reply("z2", "z1", "zymurgy too")
    after = prompt("k3", "z2", "and further") + reply("k4", "k3", "further answer")
    write(path, before + gone + after)
    config = "[archive]\nquiet = 1\n[prune]\nenabled = false\nquiet = 0\n"
    with daemon(tmp_path, projects, config) as running:
        sealed(running)
        running.idle()
        thread = running.search("zymurgy")["results"][0]["thread"]
        done = ask(running.socket, f"/v1/forget?name={thread}&live=1", method="POST").json()
        assert (done["applied"], done["live"]) == (True, "pruned")
        assert path.read_bytes() == before + after.replace(uid("z2").encode(), uid("k2").encode())
        assert not running.search("zymurgy")["results"]
        refused = ask(running.socket, "/v1/forget?name=s3&live=1", method="POST")
        assert refused.status == 400
        until(lambda: not list((tmp_path / "run" / "home" / "pending").glob("*.json")), 45)
    assert traces(tmp_path, "zymurgy") == []


def test_gc_lets_go_of_what_others_hold_and_of_nothing_else(tmp_path, projects):
    """A middle image whose records are all in others goes into the trash; blocks stay."""
    path = projects / "-p" / "s4.jsonl"
    one, two, three = (
        prompt(f"g{n}", f"g{n - 1}" if n else None, f"word{n} " * 40) for n in range(3)
    )
    with daemon(tmp_path, projects) as running:
        for data in (one + two, one, one + three):
            write(path, data)
            running.idle()
            post(running, "/v1/vault/seal?session=s4")
        until(lambda: running.status()["state"] == "idle", 30)
        running.index()
        dry = post(running, "/v1/vault/gc?dry_run=1")[-1]
        assert [row["number"] for row in dry["removed"]] == []
        write(path, one + two + three)
        running.idle()
        post(running, "/v1/vault/seal?session=s4")
        running.index()
        done = post(running, "/v1/vault/gc")[-1]
        assert [row["number"] for row in done["removed"]] == [1, 2]
        running.index()
        for number, data in enumerate((one, two, three)):
            assert running.block(uid(f"g{number}")).body == data[:-1]
        assert post(running, "/v1/vault/verify")[-1]["damaged"] == 0

"""The Vault under damage, hostile paths and interrupted orders, through the daemon."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.test_vault import daemon, post, projects, traces, write
from tests.support.http_socket import ask
from tests.support.transcripts import prompt, reply
from tests.support.vaults import flip
from tests.support.waiting import until

__all__ = ["projects"]
STILL = "[archive]\nenabled = false\nquiet = 3000\n[prune]\nenabled = false\n"
EAGER = "[archive]\nquiet = 0\n[prune]\nenabled = false\n"
WORDS = [prompt(f"f{n}", None, f"word{n} " * 40) for n in range(4)]


def _seal(running, path, *states):
    for data in states:
        write(path, data)
        running.index()
        running.idle()
        post(running, f"/v1/vault/seal?session={path.stem}")
    running.index()
    running.idle()


def _generations(running, session):
    return running.json("/v1/vault", session=session)["generations"]


def _removed(running):
    return [one["number"] for one in post(running, "/v1/vault/gc")[-1]["removed"]]


@pytest.mark.parametrize("gone", [False, True])
def test_gc_trusts_only_what_can_be_read(tmp_path, projects, gone):
    """What covers a strand is damaged or deleted: the strand stays."""
    path = projects / "-p" / "s4.jsonl"
    with daemon(tmp_path, projects, STILL) as running:
        _seal(running, path, WORDS[0], WORDS[1], WORDS[2] + WORDS[1])
        newest = Path(_generations(running, "s4")[-1]["stored_path"])
        if gone:
            newest.unlink()
        else:
            flip(newest, 20)
        path.unlink()
        assert _removed(running) == []


def test_gc_lets_go_of_what_is_kept_elsewhere(tmp_path, projects):
    """The very records are in a later image as well: the middle strand goes."""
    path = projects / "-p" / "s4.jsonl"
    with daemon(tmp_path, projects, STILL) as running:
        _seal(running, path, WORDS[0], WORDS[1], WORDS[2] + WORDS[1])
        assert _removed(running) == [1]


@pytest.mark.parametrize("how", ["unfinished", "changed", "future"])
def test_gc_keeps_what_is_nowhere_else(tmp_path, projects, how):
    """Unfinished lines, other bytes of the same length, and what a newer fabled continues."""
    path = projects / "-p" / "s4.jsonl"
    middle, last = WORDS[1], WORDS[2] + WORDS[1]
    if how == "unfinished":
        middle += b'{"type":"user","message":{"unfinished'
    if how == "changed":
        last = WORDS[2] + WORDS[1].replace(b"word1", b"WORD9")
    states = [WORDS[0], middle, last]
    if how == "future":
        states.insert(2, middle + WORDS[3])
    with daemon(tmp_path, projects, STILL) as running:
        _seal(running, path, *states)
        folder = Path(_generations(running, "s4")[0]["stored_path"]).parent
    if how == "future":
        card = folder / "v2-tail.card.json"
        os.chmod(card, 0o600)
        card.write_text(json.dumps({**json.loads(card.read_text()), "format": 2}))
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        assert _removed(running) == []


def test_damage_found_by_verify_is_mended_while_the_live_file_is_there(tmp_path, projects):
    """Verify names it, the live file is sealed anew, and restores after its deletion."""
    path = projects / "-p" / "s1.jsonl"
    data = path.read_bytes()
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        post(running, "/v1/vault/seal?all=1")
        (one,) = [g for g in _generations(running, "s1") if g["path"] == str(path)]
        flip(one["stored_path"], 20)
        assert post(running, "/v1/vault/verify")[-1]["damaged"] > 0
        path.unlink()
        running.index()
        running.idle()
        post(running, "/v1/vault/restore?session=s1")
        assert path.read_bytes() == data


def test_recall_goes_on_from_another_copy_when_a_generation_is_damaged(tmp_path, projects):
    """Two generations hold the record, the first one is damaged, the live file is gone."""
    path = projects / "-p" / "s4.jsonl"
    with daemon(tmp_path, projects, STILL) as running:
        _seal(running, path, WORDS[0] + WORDS[1], WORDS[2] + WORDS[0])
        flip(_generations(running, "s4")[0]["stored_path"], 20)
        path.unlink()
        running.index()
        running.idle()
        uuid = json.loads(WORDS[0])["uuid"]
        got = ask(running.socket, f"/v1/blocks/{uuid}")
        assert got.body == WORDS[0].rstrip(b"\n")
        only = json.loads(WORDS[1])["uuid"]
        refused = ask(running.socket, f"/v1/blocks/{only}")
        assert refused.json()["error"]["code"] == "generation_damaged"


def test_damaged_generation_still_gives_what_can_be_read_after_a_rebuild(tmp_path, projects):
    """One frame is broken: the records of the others are found and recalled."""
    path = projects / "-p" / "s4.jsonl"
    many = [prompt(f"e{n:03x}", None, os.urandom(700).hex() + f" marker{n}") for n in range(300)]
    with daemon(tmp_path, projects, STILL) as running:
        _seal(running, path, b"".join(many))
        flip(_generations(running, "s4")[0]["stored_path"], 20)
        path.unlink()
        post(running, "/v1/index?rebuild=1&wait=1")
        running.idle()
        assert running.search("marker299")["results"] != []
        uuid = json.loads(many[299])["uuid"]
        assert ask(running.socket, f"/v1/blocks/{uuid}").body == many[299].rstrip(b"\n")


def test_one_path_that_cannot_be_archived_keeps_no_session_from_it(tmp_path, projects):
    """It is told of in status, and the sessions after it are sealed."""
    bad = projects / "-a" / "s0.jsonl"
    write(bad, WORDS[0])
    write(projects / "-z" / "zz.jsonl", WORDS[1])
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
    blocked = tmp_path / "run" / "home" / "vault" / "-a"
    blocked.mkdir(parents=True, exist_ok=True)
    (blocked / "s0").write_bytes(b"a file where a folder belongs")
    with daemon(tmp_path, projects, EAGER) as running:
        until(lambda: _generations(running, "zz"), 30)
        until(lambda: any("could not be sealed" in w for w in running.status()["warnings"]), 30)


def test_interrupted_forgetting_is_not_forgotten_by_the_next(tmp_path, projects):
    """An intention that is written down is carried out before anything else is."""
    for name in ("sa", "sb"):
        write(
            projects / "-p" / f"{name}.jsonl",
            prompt(name + "1", None, f"keep {name}")
            + prompt(name + "3", None, f"needle{name}")
            + reply(name + "4", name + "3", f"needle{name} too"),
        )
    home = tmp_path / "run" / "home"
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        post(running, "/v1/vault/seal?all=1")
        (one,) = _generations(running, "sa")
        intent = {
            "id": "0123456789abcdef",
            "session": "sa",
            "whole": [[str(projects), "-p/sa.jsonl"]],
            "folders": ["-p/sa"],
            "partly": [],
        }
        (home / "forgetting.json").write_text(json.dumps(intent))
        assert Path(one["stored_path"]).exists()
        thread = running.search("needlesb")["results"][0]["thread"]
        assert ask(running.socket, f"/v1/forget?name={thread}", method="POST").status == 200
        assert not Path(one["stored_path"]).exists()
        assert not (home / "forgetting.json").exists()
    assert traces(home, "needlesb") == []


@pytest.mark.parametrize("kind", ["thread", "session"])
def test_forgetting_with_a_broken_sidecar_is_refused_or_complete(tmp_path, projects, kind):
    """A thread: refused, since nobody can look. The session: nothing of it is left."""
    home = tmp_path / "run" / "home"
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        post(running, "/v1/vault/seal?all=1")
        folder = Path(_generations(running, "s1")[0]["stored_path"]).parent
    card = home / "vault" / "-p" / "s1" / "v0-raw.card.json"
    assert folder.parent.name == "-p"
    os.chmod(card, 0o600)
    card.write_bytes(b"{")
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        name = "s1" if kind == "session" else running.search("wombat")["results"][0]["thread"]
        done = ask(running.socket, f"/v1/forget?name={name}", method="POST")
        if kind == "session":
            assert done.status == 200
            assert not card.parent.exists() or not list(card.parent.glob("v*"))


@pytest.mark.parametrize(
    "to", ["{r}/-p/../-p", "{r}//-p", "{r}/-q", "{r}/-p/s2.jsonl", "{l}/-p", "{r}/-p", None]
)
def test_overwriting_restore_never_replaces_a_live_file_that_is_not_sealed(tmp_path, projects, to):
    """However its path is spelt, and whosever transcript it is."""
    link = tmp_path / "link"
    link.symlink_to(projects)
    paths = [projects / "-p" / "s1.jsonl", projects / "-q" / "s1.jsonl", projects / "-p/s2.jsonl"]
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        post(running, "/v1/vault/seal?all=1")
        new = prompt("d1", None, "brand new unsealed work")
        for path in paths:
            write(path, new)
        more = f"&to={to.format(r=projects, l=link)}" if to else ""
        ask(running.socket, f"/v1/vault/restore?session=s1&overwrite=1{more}", method="POST")
        replaced = [path for path in paths if path.read_bytes() != new]
        home = tmp_path / "run" / "home" / "vault"
        assert replaced == [] or traces(home, "brand new unsealed work") != []


def test_restore_into_no_projects_folder_of_ours_asks_where_to(tmp_path, projects):
    """A Vault from another machine: nothing is made where nobody looks."""
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        post(running, "/v1/vault/seal?all=1")
    shutil.rmtree(projects)
    elsewhere = tmp_path / "elsewhere" / "projects"
    elsewhere.mkdir(parents=True)
    with daemon(tmp_path, elsewhere, STILL) as running:
        running.index()
        running.idle()
        steps = post(running, "/v1/vault/restore?session=s1")
        assert steps[-1]["refused"] > 0
        assert not projects.exists()
        steps = post(running, f"/v1/vault/restore?session=s1&to={tmp_path}/out")
        assert steps[-1]["refused"] == 0


def test_two_sessions_of_one_id_are_not_restored_over_each_other(tmp_path, projects):
    """The order is refused, and each can be named by its path."""
    other = write(projects / "-q" / "s1.jsonl", prompt("c1", None, "quokka"))
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        running.idle()
        post(running, "/v1/vault/seal?all=1")
        steps = post(running, f"/v1/vault/restore?session=s1&to={tmp_path}/out&overwrite=1")
        assert steps[-1]["error"]["code"] == "usage"
        post(running, f"/v1/vault/restore?session={other}&to={tmp_path}/out")
        assert (tmp_path / "out" / "s1.jsonl").read_bytes() == other.read_bytes()


def test_broken_sidecar_of_an_import_is_told_and_made_again(tmp_path, projects):
    """Verify counts it, and importing once more mends it."""
    write(tmp_path / "old" / "s9" / "v0-raw.jsonl", prompt("b1", None, "oldie"))
    imports = tmp_path / "run" / "home" / "vault" / ".imports"
    with daemon(tmp_path, projects, STILL) as running:
        post(running, f"/v1/vault/import?path={tmp_path}/old")
    (card,) = imports.glob("*.card.json")
    os.chmod(card, 0o600)
    card.write_bytes(b"{")
    with daemon(tmp_path, projects, STILL) as running:
        running.idle()
        assert post(running, "/v1/vault/verify")[-1]["damaged"] > 0
        assert post(running, f"/v1/vault/import?path={tmp_path}/old")[-1]["skipped"] == 0
        assert post(running, "/v1/vault/verify")[-1]["damaged"] == 0

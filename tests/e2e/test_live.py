"""Transcripts that grow, appear, move and vanish while the daemon watches."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.support.daemons import Daemon
from tests.support.transcripts import prompt, reply, uid
from tests.support.waiting import until


@pytest.fixture
def root(tmp_path):
    """A projects folder with one session."""
    folder = tmp_path / "projects"
    (folder / "-p").mkdir(parents=True)
    (folder / "-p" / "s1.jsonl").write_bytes(prompt("p1", text="the first words"))
    return folder


@pytest.fixture
def daemon(tmp_path, root):
    """A daemon that has read them."""
    with Daemon(tmp_path / "daemon", root) as running:
        running.idle()
        yield running


def found(daemon, word, **query):
    """Ids of the records that a word finds."""
    results = daemon.search(word, level="record", **query)["results"]
    return [result["records"][0]["uuid"] for result in results]


def append(path, *lines):
    """What the client does: one write at the end."""
    with path.open("ab") as handle:
        handle.write(b"".join(lines))


def test_appended_record_is_found(daemon, root):
    """The watcher sees an append, and the record is searchable without anybody asking."""
    append(root / "-p" / "s1.jsonl", reply("a1", "p1", text="xylophone answer"))
    until(lambda: found(daemon, "xylophone") == [uid("a1")])
    assert daemon.status()["jobs"][0]["last_run"] is None


def test_record_in_a_new_folder_is_found(daemon, root):
    """A project folder made a moment ago is watched with the files already in it."""
    folder = root / "-new" / "s9" / "subagents"
    folder.mkdir(parents=True)
    (root / "-new" / "s9.jsonl").write_bytes(prompt("n1", text="marimba"))
    (folder / "agent-x1.jsonl").write_bytes(prompt("n2", text="vibraphone", isSidechain=True))
    until(lambda: found(daemon, "marimba") and found(daemon, "vibraphone"))
    assert daemon.status()["jobs"][0]["last_run"] is None


def test_thousands_of_appends_at_once_are_all_found(daemon, root):
    """A storm of writes into many files loses none of them."""
    for number in range(3000):
        name = f"storm{number}"
        append(root / "-p" / f"f{number % 20}.jsonl", prompt(name, text="stormword"))
    until(lambda: daemon.status()["map"]["records"] == 3001, 60)
    assert len(found(daemon, "stormword", n=1000)) == 1000


def test_half_written_line_is_pending_and_then_a_record(daemon, root):
    """A write in two halves is never damage, and is found once it is whole."""
    whole = reply("h1", "p1", text="half and whole glockenspiel")
    path = root / "-p" / "s1.jsonl"
    append(path, whole[:50])
    append(root / "-p" / "s2.jsonl", prompt("z", text="sentry"))
    until(lambda: found(daemon, "sentry"))
    assert daemon.json("/v1/sessions/s1")["damage"] == []
    append(path, whole[50:])
    until(lambda: found(daemon, "glockenspiel") == [uid("h1")])


def test_replaced_file_answers_with_its_new_bytes(daemon, root):
    """Another program renames a rewritten transcript into place: old words go, new ones come."""
    path = root / "-p" / "s1.jsonl"
    fresh = root / "-p" / "s1.tmp"
    fresh.write_bytes(prompt("p1", text="entirely rewritten"))
    fresh.replace(path)
    until(lambda: found(daemon, "rewritten") == [uid("p1")])
    assert found(daemon, "words") == []
    assert daemon.block(uid("p1")).body + b"\n" == path.read_bytes()


def test_rewrite_in_place_of_equal_length_is_never_answered_with_wrong_bytes(daemon, root):
    """A pointer whose bytes changed under it is noticed at the read, even without an event."""
    path = root / "-p" / "s1.jsonl"
    before = path.stat()
    data = path.read_bytes().replace(b"first", b"later")
    with path.open("r+b") as handle:
        handle.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert daemon.block(uid("p1")).body + b"\n" == data
    until(lambda: found(daemon, "later") == [uid("p1")])


def test_deleted_file_takes_its_records_along(daemon, root):
    """A deleted transcript is forgotten, a copy of its record elsewhere is kept."""
    append(root / "-p" / "s2.jsonl", prompt("p1", text="the first words"))
    append(root / "-p" / "s1.jsonl", reply("a1", "p1", text="only here"))
    until(lambda: daemon.status()["map"]["copies"] == 3)
    (root / "-p" / "s1.jsonl").unlink()
    until(lambda: daemon.status()["map"]["copies"] == 1)
    assert daemon.block(uid("a1")).status == 404
    assert json.loads(daemon.block(uid("p1")).body)["uuid"] == uid("p1")


def test_folder_moved_away_takes_its_files_along(daemon, root, tmp_path):
    """A project folder that leaves the root is forgotten at once, and found when it is back."""
    folder = root / "-q"
    folder.mkdir()
    append(folder / "s5.jsonl", prompt("q1", text="bassoon"))
    until(lambda: found(daemon, "bassoon"))
    folder.rename(tmp_path / "elsewhere")
    until(lambda: found(daemon, "bassoon") == [])
    (tmp_path / "elsewhere").rename(folder)
    until(lambda: found(daemon, "bassoon"))
    assert daemon.status()["jobs"][0]["last_run"] is None


def test_root_that_disappears_and_returns_loses_nothing(daemon, root):
    """An unmounted or moved projects folder is absence, not deletion."""
    away = root.with_name("away")
    root.rename(away)
    daemon.index()
    assert found(daemon, "first") == [uid("p1")]
    assert any("is not there" in text for text in daemon.status()["warnings"])
    append(away / "-p" / "s1.jsonl", reply("a1", "p1", text="written while away"))
    away.rename(root)
    daemon.index()
    assert found(daemon, "away") == [uid("a1")]
    append(root / "-p" / "s1.jsonl", reply("a2", "a1", text="watched again"))
    until(lambda: found(daemon, "watched") == [uid("a2")])


def test_root_that_is_suddenly_empty_loses_nothing(daemon, root):
    """An empty mount point where files were is not believed."""
    away = root.with_name("away")
    root.rename(away)
    root.mkdir()
    daemon.index()
    assert daemon.status()["map"]["records"] == 1
    shutil.rmtree(root)
    away.rename(root)
    daemon.index()
    assert found(daemon, "first") == [uid("p1")]


def test_missing_root_is_waited_for(tmp_path):
    """The daemon starts without any transcripts and finds them when they come."""
    root = tmp_path / "later" / "projects"
    with Daemon(tmp_path / "daemon", root) as daemon:
        status = daemon.idle()
        assert status["roots"] == [{"path": str(root), "present": False, "watched": "absent"}]
        (root / "-p").mkdir(parents=True)
        append(root / "-p" / "s1.jsonl", prompt("p1", text="first light"))
        daemon.index()
        assert found(daemon, "light") == [uid("p1")]

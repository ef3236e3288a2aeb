"""Kills, second daemons, damaged Maps, full disks: what the daemon survives, and what it says."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from functools import partial

import apsw
import pytest

from fabled.map.db import Snapshots
from tests.conftest import ROOT
from tests.support.daemons import Daemon
from tests.support.dump import dump
from tests.support.folders import let_others_in
from tests.support.transcripts import prompt, reply, uid
from tests.support.waiting import until

ODDITIES = ROOT / "tests" / "data" / "oddities" / "-derived-oddities"


@pytest.fixture
def root(tmp_path):
    """A projects folder with one session."""
    folder = tmp_path / "projects"
    (folder / "-p").mkdir(parents=True)
    (folder / "-p" / "s1.jsonl").write_bytes(prompt("p1", text="the first words"))
    return folder


def map_of(daemon):
    """The daemon's Map in comparable form."""
    snapshots = Snapshots(str(daemon.home / "map.db"))
    try:
        return dump(snapshots)
    finally:
        snapshots.close()


def many(root, count):
    """A library large enough that a child process reads it."""
    for number in range(count):
        folder = root / f"-copy{number}"
        shutil.copytree(ODDITIES, folder)
        for path in folder.glob("*.jsonl"):
            data = path.read_bytes()
            path.write_bytes(data.replace(b'"uuid":"0', b'"uuid":"%d' % (number % 10)))
    assert sum(p.stat().st_size for p in root.rglob("*.jsonl")) > 9 << 20


def _files_read(daemon, wanted):
    """How many files the Map holds, once it holds that many."""
    files = daemon.status()["map"]["files"]
    return files if files >= wanted else 0


@pytest.mark.timeout(300)
def test_killed_while_indexing_ends_in_the_same_map(tmp_path, root):
    """Killed at any moment, its child with it: the next start completes the Map."""
    many(root, 12)
    with Daemon(tmp_path / "calm", root) as calm:
        assert calm.index()["step"] == "done"
        expected = map_of(calm)
        events = [event["event"] for event in calm.events()]
    assert "backfill begins" in events
    seen: set[int] = set()
    for _round in range(8):
        daemon = Daemon(tmp_path / "killed", root)
        wanted = min(max(seen, default=0) + 1, len(expected["files"]))
        seen.add(until(partial(_files_read, daemon, wanted)))
        daemon.kill()
    assert len(seen) > 3, "the kills have to fall into different moments of the pass"
    with Daemon(tmp_path / "killed", root) as daemon:
        assert daemon.index()["step"] == "done"
        assert map_of(daemon) == expected


def test_killed_child_is_survived_and_its_work_done(tmp_path, root):
    """A backfill process that dies takes nothing with it: the daemon reads on by itself."""
    many(root, 12)
    with Daemon(tmp_path / "daemon", root) as daemon:
        child = until(lambda: daemon.status()["backfill_pid"])
        os.kill(child, 9)
        done = daemon.index()
        assert done["step"] == "done"
        assert daemon.status()["map"]["files"] == len(list(root.rglob("*.jsonl"))) - 12


def test_second_daemon_refuses_and_names_the_first(tmp_path, root):
    """One home, one daemon: the second says whose it is and exits with 5."""
    with Daemon(tmp_path / "daemon", root) as first:
        second = Daemon(tmp_path / "daemon", root, wait=False)
        assert second.process.wait(30) == 5
        text = second.log.read_text()
        assert f"process {first.process.pid} already runs" in text
        assert first.answers()


def test_two_homes_with_one_socket_path_refuse_the_second(tmp_path, root):
    """A socket that somebody listens on is not taken over."""
    with Daemon(tmp_path / "one", root) as first:
        second = Daemon(tmp_path / "two", root, wait=False, FABLED_SOCKET=first.socket)
        assert second.process.wait(30) == 5
        assert first.answers()


def test_stale_socket_is_recovered(tmp_path, root):
    """What a killed daemon leaves behind does not keep the next one from starting."""
    first = Daemon(tmp_path / "daemon", root)
    first.kill()
    assert os.path.exists(first.socket)
    with Daemon(tmp_path / "daemon", root) as second:
        assert second.idle()["map"]["records"] == 1


def test_file_in_the_sockets_place_is_refused(tmp_path, root):
    """What is no socket is not removed."""
    place = tmp_path / "daemon" / "home" / "run"
    place.mkdir(parents=True, mode=0o700)
    (place / "fabled.sock").write_text("precious")
    daemon = Daemon(tmp_path / "daemon", root, wait=False)
    assert daemon.process.wait(30) == 5
    assert (place / "fabled.sock").read_text() == "precious"


def test_stopped_daemon_leaves_no_socket_and_no_lock(tmp_path, root):
    """SIGTERM drains: exit status 0, the socket is gone, the home is free."""
    daemon = Daemon(tmp_path / "daemon", root)
    assert daemon.stop() == 0
    assert not os.path.exists(daemon.socket)
    with Daemon(tmp_path / "daemon", root) as again:
        assert again.answers()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"no database at all" * 1000, id="text"),
        pytest.param(lambda data: data[:100] + b"\xff" * 4000 + data[4100:], id="header page"),
        pytest.param(lambda data: data[: len(data) // 2], id="half"),
    ],
)
def test_damaged_map_is_set_aside_and_rebuilt(tmp_path, root, damage):
    """A Map that SQLite refuses is kept under another name, and a new one is built."""
    with Daemon(tmp_path / "daemon", root) as daemon:
        daemon.idle()
        expected = map_of(daemon)
    path = daemon.home / "map.db"
    path.write_bytes(damage(path.read_bytes()))
    with Daemon(tmp_path / "daemon", root) as daemon:
        until(lambda: daemon.search("first")["results"])
        daemon.idle()
        assert any("damaged" in text for text in daemon.status()["warnings"])
        assert map_of(daemon) == expected
    assert list(daemon.home.glob("map.db.damaged-*"))


def test_damage_met_while_running_is_survived(tmp_path, root):
    """A reader that meets damage says so with code and status; the Map is rebuilt under it."""
    with (root / "-p" / "s1.jsonl").open("ab") as handle:
        for number in range(400):
            handle.write(reply(f"a{number}", "p1", text=f"word{number} " * 40))
    with Daemon(tmp_path / "daemon", root) as daemon:
        daemon.idle()
        connection = apsw.Connection(str(daemon.home / "map.db"))
        connection.set_busy_timeout(5000)
        list(connection.execute("SELECT count(*) FROM files"))
        assert connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
        connection.close()
        path = daemon.home / "map.db"
        with path.open("r+b") as handle:
            size = path.stat().st_size
            for page in range(16384, size, 16384):
                handle.seek(page)
                handle.write(os.urandom(2000))
        with (root / "-p" / "s1.jsonl").open("ab") as handle:
            handle.write(reply("late", "p1", text="a commit makes readers look at the disk"))
        replies = [daemon.get("/v1/search", q="word7") for _ in range(20)]
        bad = [reply.json()["error"]["code"] for reply in replies if reply.status != 200]
        assert set(bad) <= {"map_corrupt"}
        until(lambda: any("damaged" in text for text in daemon.status()["warnings"]), 30)
        until(lambda: daemon.search("word7")["results"], 30)


def test_map_of_a_newer_fabled_is_refused_and_left_alone(tmp_path, root):
    """A schema from the future is named, not touched; exit status 6."""
    with Daemon(tmp_path / "daemon", root) as daemon:
        daemon.idle()
    path = daemon.home / "map.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    later = Daemon(tmp_path / "daemon", root, wait=False)
    assert later.process.wait(30) == 6
    assert "schema 99" in later.log.read_text()
    assert path.read_bytes() == before


def test_rebuild_gives_the_same_map_while_it_answers(tmp_path, root):
    """`index --rebuild` swaps in a Map that equals the old one; readers never see it half done."""
    shutil.copytree(ODDITIES, root / "-odd")
    with Daemon(tmp_path / "daemon", root) as daemon:
        daemon.idle()
        expected = map_of(daemon)
        inode = (daemon.home / "map.db").stat().st_ino
        asking = subprocess.Popen(
            [sys.executable, "-m", "fabled.client.main", "index", "--rebuild", "--wait"],
            env=daemon.environment,
            stderr=subprocess.DEVNULL,
        )
        while asking.poll() is None:
            assert json.loads(daemon.block(uid("p1")).body)["uuid"] == uid("p1")
        assert asking.returncode == 0
        assert (daemon.home / "map.db").stat().st_ino != inode
        assert map_of(daemon) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run the daemon as another user")
def test_unreadable_transcript_is_named_and_read_once_allowed(tmp_path, root):
    """A file that cannot be opened is a warning with its path, not the end of the pass."""
    secret = root / "-p" / "s2.jsonl"
    secret.write_bytes(prompt("p2", text="closed"))
    secret.chmod(0)
    os.chown(secret, 12345, 12345)
    let_others_in(tmp_path)
    folder = tmp_path / "daemon"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    launch = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
    config = {"XDG_CONFIG_HOME": str(folder), "FABLED_CONFIG": ""}
    # Only our own user may ask: everything goes through a client of that user.
    with Daemon(folder, root, launch=launch, wait=False, **config) as daemon:
        until(lambda: daemon.client("index", "--wait").returncode == 0)
        status = json.loads(daemon.client("status", "--json").stdout)
        assert [text for text in status["warnings"] if str(secret) in text]
        assert daemon.client("search", "--ids", "first").stdout
        secret.chmod(0o600)
        assert daemon.client("index", "--wait").returncode == 0
        assert daemon.client("search", "--ids", "closed").stdout
        assert json.loads(daemon.client("status", "--json").stdout)["warnings"] == []


def test_hostile_names_and_things_below_a_root_are_survived(tmp_path, root):
    """Links, pipes, sockets, folders named like transcripts, bytes that are no text."""
    folder = root / "-p"
    (folder / "link.jsonl").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(root)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "sock.jsonl"))
        odd = os.fsencode(folder) + b"/\xff\n\x1b[31m.jsonl"
        with open(odd, "wb") as handle:
            handle.write(prompt("odd", text="oddly named"))
        with Daemon(tmp_path / "daemon", root) as daemon:
            assert daemon.index()["step"] == "done"
            assert daemon.status()["map"]["files"] == 2
            assert json.loads(daemon.block(uid("odd")).body)["uuid"] == uid("odd")
            assert daemon.search("oddly")["results"]
            assert len(daemon.json("/v1/sessions")["sessions"]) == 2


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk")
def test_full_disk_is_said_and_survived(tmp_path, root):
    """No room for the Map: a warning and exit status 8 for who waits; it goes on when there is."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        with Daemon(small, root) as daemon:
            daemon.idle()
            ballast = small / "ballast"
            big = b"".join(prompt(f"b{n}", text=f"bulk {n} " * 200) for n in range(1000))
            _fill(ballast)
            (root / "-p" / "s2.jsonl").write_bytes(big)
            answer = daemon.client("index", "--wait")
            assert answer.returncode == 8, answer.stderr
            assert b"no room" in answer.stderr
            assert any("no room" in text for text in daemon.status()["warnings"])
            assert daemon.search("first")["results"]
            (root / "-p" / "s2.jsonl").write_bytes(prompt("after", text="afterwards"))
            ballast.unlink()
            until(lambda: daemon.search("afterwards")["results"], 30)
            assert daemon.status()["warnings"] == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def _fill(path):
    with path.open("wb") as handle:
        while True:
            try:
                handle.write(b"\0" * 65536)
                handle.flush()
            except OSError:
                return

"""The ports of the operating system, on the real one."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from fabled.errors import AccessDenied, DiskFull, NotFound
from fabled.system import System, real

FILES = real().files
CLOCK = real().clock
PROCESSES = real().processes
NOBODY = 65534
ODD = os.fsdecode(b"caf\xe9 \xff\n name")


def mode(path) -> int:
    """Permission bits of what is there."""
    return stat.S_IMODE(os.lstat(path).st_mode)


@contextmanager
def forbidden(path):
    """Inside, the path cannot be entered or read by us, even where the tests run as root."""
    before = mode(path)
    os.chmod(path, 0)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(NOBODY)
        yield
    finally:
        if root:
            os.seteuid(0)
        os.chmod(path, before)


@contextmanager
def umask(value):
    """Another umask inside the block."""
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


# --- looking


def test_stat_of_a_file_tells_its_facts(tmp_path):
    """Size, times, identity and kind are those of the file."""
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    found = FILES.stat(str(path))
    raw = os.stat(path)
    assert found == (
        raw.st_dev,
        raw.st_ino,
        5,
        1_700_000_000_123_456_789,
        raw.st_mode,
        "file",
        1,
        raw.st_uid,
    )


def test_stat_of_nothing_is_none(tmp_path):
    """A missing name, a name below a file and an impossible name are all nothing."""
    (tmp_path / "file").write_bytes(b"")
    for name in ("missing", "file/below", "nul\0byte", "lone\ud800"):
        assert FILES.stat(f"{tmp_path}/{name}") is None


def test_stat_of_a_link_follows_only_when_asked(tmp_path):
    """The link itself by default, its target on request, nothing when it dangles."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "dangling").symlink_to("nowhere")
    link = FILES.stat(str(tmp_path / "link"))
    followed = FILES.stat(str(tmp_path / "link"), follow=True)
    assert link is not None
    assert followed is not None
    assert (link.kind, followed.kind) == ("link", "dir")
    assert FILES.stat(str(tmp_path / "dangling"), follow=True) is None


def test_stat_in_a_forbidden_folder_is_refused_not_absent(tmp_path):
    """What cannot be seen is never reported as gone."""
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a").write_bytes(b"")
    with forbidden(folder), pytest.raises(AccessDenied, match="f/a: Permission denied"):
        FILES.stat(str(folder / "a"))


def test_scan_lists_every_kind_sorted_by_name(tmp_path):
    """Files, folders, links and the rest, links to folders included, odd names intact."""
    (tmp_path / "b.jsonl").write_bytes(b"")
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    with open(os.fsencode(f"{tmp_path}/{ODD}"), "wb"):
        pass
    found = FILES.scan(str(tmp_path))
    expected = {"a": "dir", "b.jsonl": "file", "link": "link", "pipe": "other", ODD: "file"}
    assert [(e.name, e.kind) for e in found] == sorted(expected.items())
    assert all(e.path == os.path.join(str(tmp_path), e.name) for e in found)


def test_scan_of_no_folder_is_not_found(tmp_path):
    """A missing folder and a file in its place are both no folder."""
    (tmp_path / "file").write_bytes(b"")
    for name in ("missing", "file"):
        with pytest.raises(NotFound, match=name):
            FILES.scan(str(tmp_path / name))


def test_scan_of_a_forbidden_folder_is_refused(tmp_path):
    """A folder that cannot be listed is an error, not an empty folder."""
    (tmp_path / "a").write_bytes(b"")
    with forbidden(tmp_path), pytest.raises(AccessDenied, match="Permission denied"):
        FILES.scan(str(tmp_path))


# --- reading


def test_open_read_reads_in_order_and_by_range(tmp_path):
    """`pread` takes any range and leaves the sequence alone; past the end is empty."""
    path = tmp_path / ODD
    with open(os.fsencode(path), "wb") as out:
        out.write(b"0123456789")
    with FILES.open_read(str(path)) as file:
        assert file.read(4) == b"0123"
        assert file.pread(8, 100) == b"89"
        assert file.pread(50, 10) == b""
        assert file.read(100) == b"456789"
        assert file.read(1) == b""
        file.seek(9)
        assert file.read(5) == b"9"
        assert file.stat().size == 10


def test_open_read_keeps_the_opened_file_when_the_path_is_replaced(tmp_path):
    """The descriptor answers for the file that was opened, not for the name."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with FILES.open_read(str(path)) as file:
        FILES.write_private(str(path), b"newer")
        new = FILES.stat(str(path))
        assert file.pread(0, 10) == b"old"
        assert new is not None
        assert file.stat().ino != new.ino


def test_open_read_of_what_is_no_regular_file_is_refused_at_once(tmp_path):
    """Links, pipes, sockets, folders and devices are refused, and no descriptor is left open."""
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    paths = [str(tmp_path / "link"), str(tmp_path / "pipe"), str(tmp_path), "/dev/null"]
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "sock"))
        before = len(os.listdir("/dev/fd"))
        for path in [*paths, str(tmp_path / "sock")]:
            with pytest.raises(AccessDenied, match=path):
                FILES.open_read(path)
        assert len(os.listdir("/dev/fd")) == before


def test_open_read_of_nothing_is_not_found(tmp_path):
    """A missing file is its own condition."""
    with pytest.raises(NotFound, match="missing"):
        FILES.open_read(str(tmp_path / "missing"))


def test_open_file_is_not_inherited_and_closes_twice(tmp_path):
    """Children do not get it; closing again does nothing, reading then is refused."""
    (tmp_path / "a").write_bytes(b"x")
    file = FILES.open_read(str(tmp_path / "a"))
    assert not os.get_inheritable(file.fd)  # type: ignore[attr-defined]
    file.close()
    file.close()
    with pytest.raises(AccessDenied):
        file.read(1)


def test_read_small_tells_missing_from_too_long(tmp_path):
    """None for nothing there, all bytes up to the limit, an error rather than a part."""
    path = str(tmp_path / "a")
    assert FILES.read_small(path, 5) is None
    FILES.write_private(path, b"12345")
    assert FILES.read_small(path, 5) == b"12345"
    with pytest.raises(AccessDenied, match="longer than 4"):
        FILES.read_small(path, 4)


# --- writing


def test_make_private_dir_makes_every_missing_parent_private(tmp_path):
    """Whatever the umask, what it makes is 0700, and what was there stays as it was."""
    os.chmod(tmp_path, 0o755)  # noqa: S103 - a parent that others may enter
    with umask(0):
        FILES.make_private_dir(str(tmp_path / "a/b/c"))
        FILES.make_private_dir(str(tmp_path / "a/b/c"))
    assert [mode(tmp_path / p) for p in ("", "a", "a/b", "a/b/c")] == [0o755, 0o700, 0o700, 0o700]


def test_make_private_dir_tightens_what_is_open_to_others(tmp_path):
    """A wide folder is narrowed; one narrower than 0700 stays so."""
    for name, given, after in (("wide", 0o775, 0o700), ("narrow", 0o500, 0o500)):
        (tmp_path / name).mkdir()
        os.chmod(tmp_path / name, given)
        FILES.make_private_dir(str(tmp_path / name))
        assert mode(tmp_path / name) == after


def test_make_private_dir_refuses_what_is_not_a_folder_of_ours(tmp_path):
    """A file, a dangling link and somebody else's folder are refused untouched."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to("nowhere")
    foreign = tmp_path / "foreign"
    if os.geteuid() == 0:
        foreign.mkdir(mode=0o777)
        os.chown(foreign, NOBODY, NOBODY)
    else:
        foreign.symlink_to("/usr")
    for name in ("file", "foreign"):
        with pytest.raises((AccessDenied, NotFound), match=name):
            FILES.make_private_dir(str(tmp_path / name))
    with pytest.raises(NotFound):
        FILES.make_private_dir(str(tmp_path / "dangling"))
    assert not (tmp_path / "nowhere").exists()
    if os.geteuid() == 0:
        with pytest.raises(AccessDenied, match="another user"):
            FILES.make_private_dir(str(foreign))


def test_make_private_dir_never_closes_a_shared_folder(tmp_path):
    """A folder like /tmp is refused and keeps its mode, even where it is ours."""
    (tmp_path / "tmp").mkdir()
    os.chmod(tmp_path / "tmp", 0o1777)  # noqa: S103 - the condition under test
    with pytest.raises(AccessDenied, match="shared"):
        FILES.make_private_dir(str(tmp_path / "tmp"))
    assert mode(tmp_path / "tmp") == 0o1777


def test_write_private_replaces_whole_and_leaves_no_temp_file(tmp_path):
    """The new bytes, mode 0600 under any umask, nothing else in the folder."""
    path = tmp_path / ODD
    with umask(0):
        FILES.write_private(str(path), b"one")
        FILES.write_private(str(path), b"two" * 100_000)
    assert FILES.read_small(str(path), 1 << 20) == b"two" * 100_000
    assert mode(path) == 0o600
    assert [e.name for e in FILES.scan(str(tmp_path))] == [ODD]


def record_calls(monkeypatch) -> list[str]:
    """From here on, the order of the calls that durability hangs on."""
    calls: list[str] = []

    def watched(name):
        call = getattr(os, name)

        def run(first, *rest, **named):
            kind = ""
            if name == "fsync":
                kind = " folder" if stat.S_ISDIR(os.fstat(first).st_mode) else " file"
            calls.append(name + kind)
            return call(first, *rest, **named)

        monkeypatch.setattr(os, name, run)

    for name in ("fsync", "replace", "link", "unlink"):
        watched(name)
    return calls


@pytest.mark.skipif(sys.platform != "linux", reason="macOS syncs by another call")
def test_writes_sync_the_file_before_and_the_folder_after_the_name(tmp_path, monkeypatch):
    """A power cut leaves the old or the new file, never an empty or a lost one."""
    calls = record_calls(monkeypatch)
    FILES.write_private(str(tmp_path / "a"), b"x")
    FILES.create_exclusive(str(tmp_path / "b"), b"x")
    FILES.replace(str(tmp_path / "a"), str(tmp_path / "c"))
    assert calls == [
        *("fsync file", "replace", "fsync folder"),
        *("fsync file", "link", "unlink", "fsync folder"),
        *("replace", "fsync folder"),
    ]


def test_write_private_into_nothing_fails_by_name(tmp_path):
    """A missing folder is not found, a file as folder likewise; nothing is made."""
    (tmp_path / "file").write_bytes(b"keep")
    for where in ("missing/a", "file/a"):
        with pytest.raises(NotFound, match=where):
            FILES.write_private(str(tmp_path / where), b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(AccessDenied, match="folder"):
        FILES.write_private(str(tmp_path / "folder"), b"x")
    assert [e.name for e in FILES.scan(str(tmp_path))] == ["file", "folder"]


FULL_DISK = """
import os, sys
from fabled.errors import DiskFull
from fabled.system import real
files = real().files
path = sys.argv[1] + "/a"
files.write_private(path, b"old")
refused = 0
for write in (files.write_private, files.create_exclusive):
    try:
        write(path if write == files.write_private else path + "2", b"x" * 1_000_000)
    except DiskFull as fault:
        refused += "No space left" in fault.message and path in fault.message
left = files.scan(sys.argv[1])
print(refused, files.read_small(path, 10), [e.name for e in left], files.free_bytes(path) > 0)
"""


def test_writing_on_a_full_disk_is_disk_full_and_keeps_the_old_file(tmp_path):
    """`DiskFull` names the file; the old bytes stay and no temp file uses up what is left."""
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1"'
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("a small disk needs unshare(1)")
    done = subprocess.run(
        [unshare, "-Urm", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL_DISK],
        capture_output=True,
        text=True,
        check=False,
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    )
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this machine gives no user namespaces: " + done.stderr.strip())
    assert done.stdout == "2 b'old' ['a'] True\n", done.stderr


def test_create_exclusive_never_overwrites(tmp_path):
    """The first writer wins; whatever holds the name, even a dangling link, stays."""
    path = str(tmp_path / "a")
    assert FILES.create_exclusive(path, b"first")
    assert not FILES.create_exclusive(path, b"second")
    (tmp_path / "link").symlink_to("nowhere")
    assert not FILES.create_exclusive(str(tmp_path / "link"), b"x")
    assert FILES.read_small(path, 10) == b"first"
    assert mode(path) == 0o600
    assert [e.name for e in FILES.scan(str(tmp_path))] == ["a", "link"]


def test_create_exclusive_has_one_winner_among_threads(tmp_path):
    """However many try at once, exactly one made the file, and it holds that one's bytes."""
    path = str(tmp_path / "a")
    start = threading.Barrier(8)
    winners: list[int] = []

    def attempt(number):
        start.wait()
        if FILES.create_exclusive(path, b"%d" % number):
            winners.append(number)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert FILES.read_small(path, 10) == b"%d" % winners[0]


def test_remove_says_whether_it_was_there(tmp_path):
    """True once, then False; a folder is refused."""
    (tmp_path / "a").write_bytes(b"")
    assert [FILES.remove(str(tmp_path / "a")) for _ in range(2)] == [True, False]
    with pytest.raises(AccessDenied):
        FILES.remove(str(tmp_path))


def test_replace_renames_over_the_target(tmp_path):
    """The target holds the source's bytes, the source is gone; a missing source changes nothing."""
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    FILES.replace(str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(NotFound):
        FILES.replace(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == b"a"


def test_free_bytes_of_a_missing_path_is_not_found(tmp_path):
    """The room of a disk that is there, an error for one that is not."""
    assert FILES.free_bytes(str(tmp_path)) > 0
    with pytest.raises(NotFound):
        FILES.free_bytes(str(tmp_path / "missing"))


def test_bind_socket_is_private_under_any_umask_and_never_takes_over(tmp_path):
    """Mode 0600, the umask given back, None where any file has the name."""
    path = str(tmp_path / "s")
    with umask(0):
        bound = FILES.bind_socket(path)
        assert os.umask(0) == 0
    assert bound is not None
    with bound:
        assert mode(path) == 0o600
        assert FILES.bind_socket(path) is None
    with pytest.raises(NotFound):
        FILES.bind_socket(str(tmp_path / "missing/s"))


def test_bind_socket_is_closed_to_others_from_its_first_moment(tmp_path, monkeypatch):
    """Not only once its mode is set: others cannot slip in between."""
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    with umask(0):
        bound = FILES.bind_socket(str(tmp_path / "s"))
    assert bound is not None
    bound.close()
    assert mode(tmp_path / "s") & 0o077 == 0


# --- locks and processes

HOLD = """
import sys
from fabled.system import real
lock = real().files.lock(sys.argv[1])
lock.write("pid " + str(real().processes.pid()))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def child(code, *args, pass_fds=()):
    """A Python child through the port, that must end by itself when its input closes."""
    started = PROCESSES.spawn([sys.executable, "-c", code, *args], pass_fds=pass_fds)
    try:
        yield started
    finally:
        started.close()
        if started.wait(30) is None:
            started.kill()
            started.wait(30)
            pytest.fail("the child did not end")


def test_lock_is_exclusive_between_processes_and_ends_with_the_holder(tmp_path):
    """Held elsewhere: None, and the file names the holder; killed: free again, the file stays."""
    path = str(tmp_path / "lock")
    with child(HOLD, path) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert FILES.lock(path) is None
        assert FILES.read_small(path, 100) == b"pid %d" % holder.pid
        holder.kill()
        assert holder.wait(30) == -9
    lock = FILES.lock(path)
    assert lock is not None
    lock.write("mine")
    assert FILES.lock(path) is None
    lock.release()
    lock.release()
    assert FILES.read_small(path, 100) == b"mine"
    assert mode(path) == 0o600


def test_lock_given_to_a_child_outlives_our_release(tmp_path):
    """While a child that inherited it runs, nobody gets the lock."""
    path = str(tmp_path / "lock")
    lock = FILES.lock(path)
    assert lock is not None
    wait = "import sys; print('up', flush=True); sys.stdin.read()"
    with child(wait, pass_fds=(lock.fd,)) as holder:
        assert holder.stdout.readline() == b"up\n"
        lock.release()
        assert FILES.lock(path) is None
    again = FILES.lock(path)
    assert again is not None
    again.release()


def test_lock_is_not_inherited_unasked(tmp_path):
    """A child started for something else does not keep the lock."""
    path = str(tmp_path / "lock")
    lock = FILES.lock(path)
    assert lock is not None
    with child("import sys; print('up', flush=True); sys.stdin.read()") as other:
        other.stdout.readline()
        lock.release()
        again = FILES.lock(path)
        assert again is not None
        again.release()


def test_lock_through_a_link_is_refused(tmp_path):
    """A planted link does not make us create or lock another file."""
    (tmp_path / "lock").symlink_to("victim")
    with pytest.raises(AccessDenied):
        FILES.lock(str(tmp_path / "lock"))
    assert not (tmp_path / "victim").exists()


def test_spawn_speaks_over_pipes_and_reports_the_exit_status():
    """Bytes in, bytes out, None while it runs, then the status."""
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1]); sys.exit(7)"
    with child(code) as started:
        assert started.wait(0) is None
        started.stdin.write(b"abc\xff")
        started.stdin.close()
        assert started.stdout.read() == b"\xffcba"
        assert started.wait(30) == 7


def test_spawn_puts_the_child_in_its_own_session_with_the_given_environment():
    """A terminal's Ctrl-C does not reach it; only the named variables do."""
    code = (
        "import os; own = os.getsid(0) == os.getpid();"
        "print(own, os.environ.get('ONLY'), 'HOME' in os.environ)"
    )
    started = PROCESSES.spawn([sys.executable, "-c", code], env={"ONLY": "this"})
    try:
        assert started.stdout.read() == b"True this False\n"
        assert started.wait(30) == 0
    finally:
        started.close()


def test_spawn_of_no_program_is_not_found(tmp_path):
    """A missing program is not found, one without the mode bit is refused."""
    with pytest.raises(NotFound):
        PROCESSES.spawn([str(tmp_path / "missing")])
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(AccessDenied):
        PROCESSES.spawn([str(tmp_path / "plain")])


def test_alive_tells_running_from_ended():
    """We and a running child are alive; an ended one, zombie or reaped, and no pid are not."""
    with child("import sys; print('up', flush=True); sys.stdin.read()") as started:
        started.stdout.readline()
        assert PROCESSES.alive(started.pid)
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet reaped
        assert not PROCESSES.alive(started.pid)
    assert not PROCESSES.alive(started.pid)
    assert PROCESSES.alive(PROCESSES.pid())
    assert not PROCESSES.alive(0)
    assert not PROCESSES.alive(-1)


def test_own_figures_are_of_this_process():
    """Memory and processor time are ours and plausible."""
    assert 1 << 20 < PROCESSES.rss_bytes() < 1 << 34
    before = PROCESSES.cpu_s()
    deadline = CLOCK.monotonic_s() + 30
    while PROCESSES.cpu_s() == before:
        assert CLOCK.monotonic_s() < deadline
    assert PROCESSES.pid() == os.getpid()


# --- clock and the whole


def test_clock_waits_for_the_event_or_the_time():
    """True at once when set, False when the time is over, and the time did pass."""
    event = threading.Event()
    before = CLOCK.monotonic_s()
    assert not CLOCK.wait(event, 0.01)
    assert CLOCK.monotonic_s() - before >= 0.01
    event.set()
    assert CLOCK.wait(event, 60)
    assert 1_600_000_000_000 < CLOCK.now_ms() < 1 << 42


def test_real_is_a_system_without_psutil_loaded():
    """Using files and clock costs no import of psutil or subprocess."""
    code = (
        "import sys; from fabled.system import real; real().files.stat('/'); real().clock.now_ms();"
        "print({'psutil', 'subprocess', 'asyncio', 'logging'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"
    assert isinstance(real(), System)


def test_disk_full_and_refusals_carry_the_exit_status_of_the_interface():
    """Both end the client with 8, a missing path with 4."""
    assert (DiskFull.exit_status, AccessDenied.exit_status, NotFound.exit_status) == (8, 8, 4)

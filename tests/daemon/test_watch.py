"""Hints from real folders, through everything that can happen to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest

from fabled.daemon.watch import RootState, Watcher
from fabled.errors import AccessDenied
from fabled.system import real
from tests.support.waiting import Heard, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="exact events are inotify's")


class Watching:
    """A watcher with what it said."""

    def __init__(self, *roots, files=None, poll_s=0.1) -> None:
        self.dirty, self.lost = Heard(), Heard()
        self.watcher = Watcher(
            [str(root) for root in roots],
            self.dirty,
            self.lost,
            files=files or real().files,
            poll_s=poll_s,
        )

    def modes(self) -> list[str]:
        """How each root is watched."""
        return [row.mode for row in self.watcher.state()]


@pytest.fixture
def watch():
    """Starts watchers, and stops them all."""
    started = []

    def start(*roots, **named):
        watching = Watching(*roots, **named)
        started.append(watching.watcher)
        watching.watcher.refresh()
        return watching

    yield start
    for watcher in started:
        watcher.stop()


@pytest.fixture
def root(tmp_path):
    """One projects folder."""
    folder = tmp_path / "projects"
    folder.mkdir()
    return folder


def test_append_create_move_and_remove_are_hinted(watch, root):
    """Each names the path, a move both; a file moved in from outside as well."""
    path, other = root / "a.jsonl", root / "b.jsonl"
    outside = root.parent / "outside"
    outside.write_bytes(b"")
    path.write_bytes(b"1\n")
    watching = watch(root)
    with path.open("ab") as out:
        out.write(b"2\n")
    watching.dirty.wait_for(str(path))
    watching.dirty.clear()
    path.rename(other)
    watching.dirty.wait(lambda heard: {str(path), str(other)} <= set(heard))
    watching.dirty.clear()
    other.unlink()
    watching.dirty.wait_for(str(other))
    outside.rename(path)
    watching.dirty.wait_for(str(path))
    assert watching.lost.items == []


def test_file_made_with_its_folders_in_one_go_is_hinted(watch, root):
    """Two hundred times mkdir -p and write at once: the file or a folder above it is named."""
    watching = watch(root)
    for number in range(200):
        folder = root / f"p{number}" / "session" / "subagents"
        folder.mkdir(parents=True)
        (folder / "x.jsonl").write_bytes(b"{}\n")
    for number in range(200):
        watching.dirty.wait(
            lambda heard, top=f"{root}/p{number}": any(path.startswith(top) for path in heard)
        )
    with (root / "p7/session/subagents/x.jsonl").open("ab") as out:
        watching.dirty.clear()
        out.write(b"{}\n")
        out.flush()
        watching.dirty.wait_for(f"{root}/p7/session/subagents/x.jsonl")


def test_own_reads_cause_no_hints(watch, root):
    """Scanning and reading every file says nothing, so that a reconcile cannot feed itself."""
    for number in range(50):
        (root / f"{number}.jsonl").write_bytes(b"{}\n")
    watching = watch(root)
    files = real().files
    for entry in files.scan(str(root)):
        files.read_small(entry.path, 100)
    (root / "last").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/last")
    assert set(watching.dirty.items) == {f"{root}/last"}


def test_names_that_are_no_text_arrive_as_the_file_system_knows_them(watch, root):
    """Any byte name can be opened by the path of its hint."""
    watching = watch(root)
    name = os.path.join(os.fsencode(root), b"\xff\xfe.jsonl")
    with open(name, "wb"):
        pass
    watching.dirty.wait_for(os.fsdecode(name))


def test_root_that_is_a_link_is_watched_by_its_own_name(watch, root):
    """Hints carry the root as configured, not the folder that it leads to."""
    link = root.parent / "link"
    link.symlink_to(root)
    watching = watch(link)
    (root / "folder").mkdir()
    watching.dirty.wait_for(f"{link}/folder")
    (root / "folder/x").write_bytes(b"")
    watching.dirty.wait_for(f"{link}/folder/x")
    assert watching.watcher.state() == [RootState(str(link), present=True, mode="events")]


def test_missing_root_is_waited_for_through_all_its_parents(watch, tmp_path):
    """Each folder made on the way asks for a refresh, which then watches the root."""
    root = tmp_path / "a/b/projects"
    watching = watch(root)
    assert watching.watcher.state() == [RootState(str(root), present=False, mode="absent")]
    for folder in (tmp_path / "a", tmp_path / "a/b", root):
        watching.lost.clear()
        folder.mkdir()
        watching.lost.wait(bool)
        watching.watcher.refresh()
    assert watching.modes() == ["events"]
    (root / "x").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/x")


def test_missing_root_ignores_other_arrivals(watch, tmp_path):
    """Other folders and files beside the way are no reason to scan."""
    watching = watch(tmp_path / "projects")
    (tmp_path / "projects-old").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "projects").mkdir()
    watching.lost.wait(bool)
    assert len(watching.lost.items) == 1
    assert watching.dirty.items == []


def test_removed_root_is_reported_dropped_and_found_again(watch, root):
    """It is absent while it is gone, and the new folder of that name is watched."""
    watching = watch(root)
    shutil.rmtree(root)
    watching.lost.wait(bool)
    watching.watcher.refresh()
    assert watching.modes() == ["absent"]
    root.mkdir()
    watching.watcher.refresh()
    assert watching.modes() == ["events"]
    (root / "x").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/x")


def test_replaced_root_is_watched_by_its_new_inode(watch, root):
    """Renamed away and made anew between two refreshes: the new one counts, the old does not."""
    watching = watch(root)
    root.rename(root.parent / "old")
    root.mkdir()
    watching.watcher.refresh()
    (root.parent / "old/x").write_bytes(b"")
    (root / "y").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/y")
    assert watching.dirty.items == [f"{root}/y"] * len(watching.dirty.items)


def test_root_that_may_not_be_looked_at_is_absent_and_others_are_watched(watch, root):
    """A refusal of one root does not end the watching of another."""

    class Refusing:
        def stat(self, path, *, follow=False):
            if path == "/refused":
                raise AccessDenied("no")
            return real().files.stat(path, follow=follow)

    watching = watch("/refused", root, files=Refusing())
    assert watching.modes() == ["absent", "events"]


def test_nested_roots_both_hear_of_appends(watch, root):
    """A missing root inside another root does not narrow what is watched there."""
    (root / "inner").mkdir()
    path = root / "inner/x"
    path.write_bytes(b"")
    watching = watch(root, root / "inner/missing", root / "inner")
    with path.open("ab") as out:
        out.write(b"1")
    watching.dirty.wait(lambda heard: heard.count(str(path)) >= 2)


def test_dead_observer_is_replaced(watch, root):
    """When its thread has ended, the next refresh starts another."""
    watching = watch(root)
    dead = watching.watcher._events
    assert dead is not None
    dead.stop()
    dead.join()
    watching.watcher.refresh()
    (root / "x").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/x")
    assert watching.watcher._events is not dead


def test_dead_reader_of_the_kernel_queue_is_replaced(watch, root):
    """The observer looks alive, but nothing reads for it any more."""
    watching = watch(root)
    reader = watching.watcher._events._inotify_fd
    reader.stop()
    reader.join()
    watching.watcher.refresh()
    (root / "x").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/x")


def test_callback_that_fails_does_not_end_the_watching(root):
    """The next change is still reported."""
    dirty = Heard()

    def failing(path):
        dirty(path)
        raise RuntimeError(path)

    watcher = Watcher([str(root)], failing, Heard(), files=real().files)
    try:
        watcher.refresh()
        for name in ("one", "two"):
            (root / name).mkdir()
            dirty.wait_for(f"{root}/{name}")
    finally:
        watcher.stop()


def test_overflow_of_the_kernel_queue_is_reported(watch, root):
    """More events than the kernel keeps: we are told, and a refresh misses nothing after it."""
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as limit:
        room = int(limit.read())
    if room > 100_000:
        pytest.skip("the queue is too long to fill")
    watching = watch(root)
    reader = watching.watcher._events._inotify_fd
    with reader._lock:  # the reader stands still, as in a suspended process
        for number in range(room // 3 + 1000):
            (root / "churn").write_bytes(b"%d" % number)
            (root / "churn").unlink()
    watching.lost.wait(bool)
    overflowed = watching.watcher._events
    watching.watcher.refresh()
    assert watching.watcher._events is not overflowed
    (root / "after").write_bytes(b"")
    watching.dirty.wait_for(f"{root}/after")


def test_stopped_watcher_says_nothing_more_and_leaves_no_threads(root):
    """After `stop` no callback runs, and a refresh does nothing."""
    before = threading.active_count()
    watching = Watching(root)
    watching.watcher.refresh()
    watching.watcher.stop()
    watching.watcher.refresh()
    (root / "x").write_bytes(b"")
    assert watching.dirty.items == []
    assert watching.modes() == ["absent"]
    until(lambda: threading.active_count() <= before)


def test_many_refreshes_leave_descriptors_and_threads_flat(watch, root):
    """The reconcile job calls it for ever."""
    watching = watch(root, root / "missing")
    before = (threading.active_count(), len(os.listdir("/dev/fd")))
    for _ in range(50):
        watching.watcher.refresh()
    assert (threading.active_count(), len(os.listdir("/dev/fd"))) == before


LIMITED = """
import os, sys
from fabled.daemon.watch import Watcher
from fabled.system import real
from tests.support.waiting import Heard
root = sys.argv[1]
dirty, lost = Heard(), Heard()
watcher = Watcher([root], dirty, lost, files=real().files, poll_s=0.05)
watcher.refresh()
first = watcher.state()[0].mode
for number in range(int(sys.argv[2])):
    os.mkdir(f"{root}/later{number}")
    dirty.wait_for(f"{root}/later{number}")
watcher.refresh()
second = watcher.state()[0].mode
if second == "polling":
    os.mkdir(f"{root}/d5/deep")
    dirty.wait_for(f"{root}/d5/deep")
watcher.refresh()
print(first, second, watcher.state()[0].mode)
watcher.stop()
"""


def limited(root, setting, later=0) -> str:
    """What the watcher says in a user namespace with this inotify limit."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("a limit of our own needs unshare(1)")
    for number in range(10):
        (root / f"d{number}").mkdir()
    script = f'echo {setting} && exec "$1" -c "$2" "$3" {later}'
    done = subprocess.run(
        [unshare, "-Ur", "sh", "-c", script, "sh", sys.executable, LIMITED, str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    )
    if "unshare:" in done.stderr or "cannot create" in done.stderr:
        pytest.skip("this machine gives no user namespaces: " + done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "setting",
    [
        "0 > /proc/sys/user/max_inotify_instances",
        "0 > /proc/sys/user/max_inotify_watches",
        "6 > /proc/sys/user/max_inotify_watches",
    ],
    ids=["no instance", "no watch", "too few for the folders below"],
)
def test_root_is_polled_where_inotify_has_no_room(root, setting):
    """Changes are still found, the state says so, and stays so."""
    assert limited(root, setting) == "polling polling polling"


def test_root_is_polled_when_later_folders_find_no_room(root):
    """The library is silent about it; the next refresh notices."""
    setting = "20 > /proc/sys/user/max_inotify_watches"
    assert limited(root, setting, later=20) == "events polling polling"

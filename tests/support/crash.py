"""A disk that dies at any moment and forgets what was not synced.

`CrashEffects` performs every change for real and keeps a model of what a power cut would
leave. Views of one moment:

visible  everything done so far (a killed process)
synced   names and bytes that were synced, nothing else (the strictest power cut)
names    all names, but only synced bytes (names overtook data)
last     synced names and the last unsynced change of names (names overtook each other)
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from fabled.system import System, real
from fabled.system.effects import Effects
from fabled.system.files import PosixFiles

VIEWS = ("visible", "synced", "names", "last")


class Dead(BaseException):
    """The process is gone; nothing may catch this."""


@dataclass
class _Inode:
    data: bytearray
    mode: int
    mtime_ns: int
    synced: bytes | None = None


@dataclass
class _Disk:
    """Names as path -> inode number, or None for a folder."""

    names: dict[str, int | None] = field(default_factory=dict)
    durable: dict[str, int | None] = field(default_factory=dict)
    inodes: dict[int, _Inode] = field(default_factory=dict)
    last: tuple[str, ...] = ()


class CrashEffects(Effects):
    """Counts changes below a folder and dies before number `die_at`.

    Args:
        base: The folder that is the disk.
        die_at: Number of the change that never happens, from 0; None: never.
        skip_sync: Number of the sync that does nothing, from 0.
    """

    def __init__(self, base, die_at=None, skip_sync=None):
        self.base = str(base)
        self.die_at = die_at
        self.skip_sync = skip_sync
        self.count = 0
        self.syncs = 0
        self.skipped_at = 0
        self.dead = False
        self.disk = _Disk()
        for folder, _, files in os.walk(self.base):
            self.disk.names[folder] = None
            for name in files:
                path = os.path.join(folder, name)
                self._learn(path)
                inode = self.disk.inodes[os.lstat(path).st_ino]
                inode.synced = bytes(inode.data)
        self.disk.durable = dict(self.disk.names)

    def _learn(self, path):
        found = os.lstat(path)
        self.disk.names[path] = found.st_ino
        if found.st_ino not in self.disk.inodes:
            data = bytearray(Path(path).read_bytes())
            self.disk.inodes[found.st_ino] = _Inode(data, found.st_mode, found.st_mtime_ns)

    def _step(self):
        if self.dead:
            raise Dead
        if self.die_at is not None and self.count >= self.die_at:
            self.dead = True
            raise Dead
        self.count += 1

    def _inode(self, fd):
        number = os.fstat(fd).st_ino
        if number not in self.disk.inodes:
            path = os.readlink(f"/proc/self/fd/{fd}")
            self.disk.names[path] = number
            self.disk.last = (path,)
            self.disk.inodes[number] = _Inode(bytearray(), 0o600, 0)
        return self.disk.inodes[number]

    # --- the changes ---

    def create(self, path, mode):
        self._step()
        fd = super().create(path, mode)
        number = os.fstat(fd).st_ino
        self.disk.inodes[number] = _Inode(bytearray(), mode, 0)
        self.disk.names[path] = number
        self.disk.last = (path,)
        return fd

    def open_append(self, path, mode):
        if not os.path.exists(path) and mode is not None:
            self._step()
        fd = super().open_append(path, mode)
        self._inode(fd)
        return fd

    def open_fill(self, path):
        fd = super().open_fill(path)
        self._inode(fd)
        return fd

    def write(self, fd, data):
        self._step()
        inode = self._inode(fd)
        done = super().write(fd, data)
        end = os.lseek(fd, 0, os.SEEK_CUR)
        self._put(inode, end - done, bytes(data[:done]))
        return done

    def pwrite(self, fd, data, offset):
        self._step()
        inode = self._inode(fd)
        done = super().pwrite(fd, data, offset)
        self._put(inode, offset, bytes(data[:done]))
        return done

    def _put(self, inode, at, data):
        if len(inode.data) < at:
            inode.data.extend(bytes(at - len(inode.data)))
        inode.data[at : at + len(data)] = data

    def truncate(self, fd, size):
        self._step()
        inode = self._inode(fd)
        super().truncate(fd, size)
        del inode.data[size:]

    def _skipped(self):
        self.syncs += 1
        skipped = self.skip_sync is not None and self.syncs - 1 == self.skip_sync
        if skipped:
            self.skipped_at = self.count
        return skipped

    def sync(self, fd):
        self._step()
        if not self._skipped():
            inode = self._inode(fd)
            inode.synced = bytes(inode.data)

    def sync_folder(self, folder):
        self._step()
        if self._skipped():
            return
        durable = self.disk.durable
        for path in [p for p in durable if os.path.dirname(p) == folder]:
            del durable[path]
        for path, number in self.disk.names.items():
            if os.path.dirname(path) == folder:
                durable[path] = number
        self.disk.last = tuple(p for p in self.disk.last if os.path.dirname(p) != folder)

    def link(self, source, target):
        self._step()
        super().link(source, target)
        self.disk.names[target] = self.disk.names[source]
        self.disk.last = (target,)

    def rename(self, source, target):
        self._step()
        super().rename(source, target)
        self._move(source, target)

    def _move(self, source, target):
        for path in [p for p in self.disk.names if p == source or p.startswith(source + "/")]:
            self.disk.names[target + path[len(source) :]] = self.disk.names.pop(path)
        self.disk.last = (source, target)

    def exchange(self, one, other):
        self._step()
        super().exchange(one, other)
        names = self.disk.names
        names[one], names[other] = names[other], names[one]
        self.disk.last = (one, other)

    def change_group(self, fd, group):
        self._step()
        super().change_group(fd, group)

    def unlink(self, path):
        self._step()
        super().unlink(path)
        self.disk.names.pop(path, None)
        self.disk.last = (path,)

    def make_dir(self, path, mode):
        self._step()
        super().make_dir(path, mode)
        self.disk.names[path] = None
        self.disk.last = (path,)

    def remove_dir(self, path):
        self._step()
        super().remove_dir(path)
        self.disk.names.pop(path, None)
        self.disk.last = (path,)

    def change_mode(self, fd, mode):
        self._step()
        super().change_mode(fd, mode)
        self._inode(fd).mode = mode

    def set_times(self, fd, atime_ns, mtime_ns):
        self._step()
        super().set_times(fd, atime_ns, mtime_ns)
        self._inode(fd).mtime_ns = mtime_ns

    # --- what is left ---

    def leave(self, view):
        """Make the folder what a look at the disk would find after the end."""
        self._let_go()
        names = dict(self.disk.names if view in ("visible", "names") else self.disk.durable)
        if view == "last":
            for path in self.disk.last:
                if path in self.disk.names:
                    names[path] = self.disk.names[path]
                else:
                    names.pop(path, None)
        _empty(self.base)
        first: dict[int, str] = {}
        for path in sorted(names):
            number = names[path]
            if path == self.base or not os.path.isdir(os.path.dirname(path)):
                continue  # a name in a folder that did not survive
            if number is None:
                os.mkdir(path, 0o700)
                continue
            if number in first:
                os.link(first[number], path)
                continue
            _make(path, self.disk.inodes[number], view)
            first[number] = path

    def _let_go(self):
        """A dead process holds no descriptor and no lease."""
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith(self.base + "/"):
                    os.close(int(name))
            except OSError:
                continue


def _empty(base):
    for folder, _, files in os.walk(base, topdown=False):
        for name in files:
            os.unlink(os.path.join(folder, name))
        if folder != base:
            os.rmdir(folder)


def _make(path, inode, view):
    data = inode.data if view == "visible" else inode.synced or b""
    Path(path).write_bytes(bytes(data))
    os.chmod(path, inode.mode & 0o7777 | 0o400)
    if inode.mtime_ns:
        os.utime(path, ns=(inode.mtime_ns, inode.mtime_ns))


def crashing_system(base, die_at=None, skip_sync=None):
    """A system whose disk is `base`, and the effects to ask afterwards."""
    effects = CrashEffects(base, die_at, skip_sync)
    there = real()
    return System(PosixFiles(effects), there.clock, there.processes), effects


class Sweep:
    """Dies at every change of an action, in every view, and checks what is left.

    Args:
        folder: Scratch; the disk is made anew in it for each death, at the same path.
        prepare: Given the disk's folder, makes the state before; returns whatever it likes.
        act: Given (folder, system, prepared), does the thing.
        check: Given (folder, prepared, finished), after a restart: raises on a broken promise.
    """

    def __init__(self, folder, prepare, act, check):
        self.folder = Path(folder) / "disk"
        self.prepare = prepare
        self.act = act
        self.check = check
        self.deaths = 0

    def _run(self, die_at, skip_sync):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        prepared = self.prepare(self.folder)
        system, effects = crashing_system(self.folder, die_at, skip_sync)
        finished = True
        try:
            self.act(self.folder, system, prepared)
        except Dead:
            finished = False
        return prepared, effects, finished

    def changes(self):
        """How many changes, and how many syncs of them, an undisturbed run makes."""
        _, effects, finished = self._run(None, None)
        assert finished
        return effects.count, effects.syncs

    def all(self):
        """Die before each change, and after the last one; returns the number of deaths."""
        total, _ = self.changes()
        for die_at in range(total + 1):
            for view in VIEWS:
                prepared, effects, finished = self._run(die_at, None)
                effects.leave(view)
                self.deaths += 1
                try:
                    self.check(self.folder, prepared, finished)
                except AssertionError as broken:
                    raise AssertionError(f"died at {die_at} of {total}, {view}: {broken}") from None
        return self.deaths

    def each_sync_matters(self):
        """Whether leaving out any single sync breaks a promise somewhere; the ones that do not."""
        _, syncs = self.changes()
        return [number for number in range(syncs) if not self._noticed(number)]

    def _noticed(self, number):
        """Deaths before the sync are what they always are; the late ones tell most."""
        _, effects, _ = self._run(None, number)
        for die_at in range(effects.count, effects.skipped_at - 1, -1):
            for view in VIEWS[1:]:
                prepared, effects, finished = self._run(die_at, number)
                effects.leave(view)
                try:
                    self.check(self.folder, prepared, finished)
                except AssertionError:
                    return True
        return False

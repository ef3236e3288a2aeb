"""Open files by their descriptors: to read, to lease, to make anew.

What each method promises stands on `fabled.system.ports`.
"""
# ruff: noqa: PTH119, PTH120 - str paths, no Path made per call
# ruff: noqa: D102 - the docstrings stand on the port

from __future__ import annotations

import contextlib
import errno
import os
import stat as modes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fabled.errors import AccessDenied, DiskFull, FabledError, NotFound
from fabled.system import leases
from fabled.system.ports import FileStat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.system.effects import Effects
    from fabled.system.ports import OpenFile

TEMP_PREFIX = ".fabled-"
"""How the names of unfinished files begin; a crash may leave one, and it may be removed."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNKNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""How a file system says that it cannot exchange names."""

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def refusal(fault: OSError, path: str) -> FabledError:
    """The error of ours for what the operating system refused."""
    words = f"{path}: {fault.strerror or fault}"
    if fault.errno in _NO_ROOM:
        return DiskFull(f"no room left for {words}")
    if fault.errno in _ABSENT:
        return NotFound(words, hint="Check the path.")
    return AccessDenied(f"cannot access {words}")


@contextlib.contextmanager
def refusals(path: str) -> Iterator[None]:
    """Turn what the operating system refuses inside the block into a `FabledError`."""
    try:
        yield
    except OSError as fault:
        raise refusal(fault, path) from fault
    except ValueError as fault:  # a NUL or a lone surrogate: no disk holds such a name
        raise NotFound(f"{path!r} cannot be a path: {fault}", hint="Check the path.") from fault


def kind_of(mode: int) -> str:
    """A file's type in a word, as `FileStat` has it."""
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "dir"
    return "link" if modes.S_ISLNK(mode) else "other"


def fact(found: os.stat_result) -> FileStat:
    """What a `stat` said."""
    mode = found.st_mode
    return FileStat(
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        mode,
        kind_of(mode),
        found.st_nlink,
        found.st_uid,
    )


def folder_of(path: str) -> str:
    """The folder that a path's last part lies in."""
    return os.path.dirname(path) or "."


@dataclass(slots=True)
class PosixOpenFile:
    """`OpenFile` by its descriptor."""

    path: str
    fd: int

    def read(self, size: int, /) -> bytes:
        with refusals(self.path):
            return os.read(self.fd, size)

    def seek(self, offset: int, /) -> int:
        with refusals(self.path):
            return os.lseek(self.fd, offset, os.SEEK_SET)

    def pread(self, offset: int, length: int) -> bytes:
        with refusals(self.path):
            got = os.pread(self.fd, length, offset)
            while got and len(got) < length:
                more = os.pread(self.fd, length - len(got), offset + len(got))
                if not more:
                    break
                got += more
            return got

    def stat(self) -> FileStat:
        with refusals(self.path):
            return fact(os.fstat(self.fd))

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with refusals(self.path):
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PosixLiveFile(PosixOpenFile):
    """`LiveFile` by its descriptor."""

    __slots__ = ()

    def lease(self) -> bool:
        return leases.take(self.fd, leases.READ)

    def unlease(self) -> None:
        leases.drop(self.fd)


class PosixNewFile(PosixOpenFile):
    """`NewFile` under a temporary name in its final folder."""

    __slots__ = ("_about", "_effects")

    def __init__(self, path: str, fd: int, effects: Effects, about: str) -> None:
        super().__init__(path, fd)
        self._effects = effects
        self._about = about

    def write(self, data: bytes) -> None:
        with refusals(self._about):
            view = memoryview(data)
            while view:
                view = view[self._effects.write(self.fd, view) :]

    def sync(self) -> None:
        with refusals(self._about):
            self._effects.sync(self.fd)

    def take_after(self, model: OpenFile) -> None:
        found = model.stat()
        with refusals(self.path):
            if isinstance(model, PosixOpenFile):
                self._take_group(os.fstat(model.fd).st_gid)
            self._effects.change_mode(self.fd, modes.S_IMODE(found.mode))
            self._effects.set_times(self.fd, found.mtime_ns, found.mtime_ns)
            if isinstance(model, PosixOpenFile):
                _copy_attributes(model.fd, self.fd)

    def _take_group(self, group: int) -> None:
        if os.fstat(self.fd).st_gid != group:
            with contextlib.suppress(PermissionError):  # a group that its owner is not in
                self._effects.change_group(self.fd, group)

    def set_mode(self, mode: int) -> None:
        with refusals(self.path):
            self._effects.change_mode(self.fd, mode)

    def set_mtime(self, mtime_ns: int) -> None:
        with refusals(self.path):
            self._effects.set_times(self.fd, mtime_ns, mtime_ns)

    def knows_leases(self) -> bool:
        if not self.lease():
            return False
        with refusals(self._about):
            try:
                other = os.open(self.path, READ)
            except BlockingIOError:
                return True  # the kernel keeps others waiting
            finally:
                leases.drop(self.fd)
            os.close(other)
        return False

    def lease(self) -> bool:
        return leases.take(self.fd, leases.WRITE)

    def leased(self) -> bool:
        return leases.held(self.fd, leases.WRITE)

    def write_at_end(self, data: bytes) -> None:
        with refusals(self._about):
            end = os.fstat(self.fd).st_size
            try:
                self._last_byte_first(memoryview(data), end)
            except OSError:
                self._effects.truncate(self.fd, end)  # nobody else has it open
                raise

    def _last_byte_first(self, view: memoryview, at: int) -> None:
        self._effects.pwrite(self.fd, view[-1:], at + len(view) - 1)
        while len(view) > 1:
            done = self._effects.pwrite(self.fd, view[:-1], at)
            view, at = view[done:], at + done

    def publish(self, target: str) -> bool:
        with refusals(target):
            try:
                self._effects.link(self.path, target)
            except FileExistsError:
                return False
            self._effects.unlink(self.path)
            self.path = target
            self._effects.sync_folder(folder_of(target))
        return True

    def replace(self, target: str, *, durably: bool = True) -> None:
        with refusals(target):
            self._effects.rename(self.path, target)
            self.path = target
            if durably:
                self._effects.sync_folder(folder_of(target))

    def exchange(self, target: str) -> bool:
        before = self.path
        with refusals(target):
            try:
                self._effects.exchange(before, target)
            except OSError as fault:
                if fault.errno in _UNKNOWN:
                    return False
                raise
            self.path = target
        return True

    def discard(self) -> None:
        if os.path.basename(self.path).startswith(TEMP_PREFIX):
            with contextlib.suppress(NotFound), refusals(self.path):
                self._effects.unlink(self.path)
        self.close()

    def __exit__(self, *_: object) -> None:
        self.discard()


def _copy_attributes(source: int, target: int) -> None:
    """Extended attributes too, where there are any and the system lets us."""
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):  # not every file system has them
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):  # security.* may be the kernel's own
                os.setxattr(target, name, os.getxattr(source, name))

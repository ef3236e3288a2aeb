"""The real file system, by descriptors and durable steps.

What each method promises stands on `fabled.system.ports.Files`.
"""
# ruff: noqa: PTH101, PTH116, PTH118 - str paths, no Path made per call
# ruff: noqa: D102 - the docstrings stand on the port

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat as modes
from dataclasses import dataclass

from fabled.errors import AccessDenied, NotFound
from fabled.system.effects import Effects
from fabled.system.opened import (
    READ,
    TEMP_PREFIX,
    PosixLiveFile,
    PosixNewFile,
    PosixOpenFile,
    fact,
    folder_of,
    kind_of,
    refusal,
    refusals,
)
from fabled.system.ports import Entry, FileStat

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600


def _entry(folder: str, found: os.DirEntry[str]) -> Entry:
    if found.is_symlink():
        kind = "link"
    elif found.is_dir(follow_symlinks=False):
        kind = "dir"
    else:
        kind = "file" if found.is_file(follow_symlinks=False) else "other"
    return Entry(found.name, os.path.join(folder, found.name), kind)


@dataclass(slots=True)
class _Lock:
    path: str
    fd: int

    def write(self, text: str) -> None:
        with refusals(self.path):
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, text.encode(), 0)

    def release(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class PosixFiles:
    """`Files` on the local machine; what it changes goes through `effects`."""

    def __init__(self, effects: Effects | None = None) -> None:
        self._effects = effects or Effects()

    def stat(self, path: str, *, follow: bool = False) -> FileStat | None:
        try:
            with refusals(path):
                return fact(os.stat(path, follow_symlinks=follow))
        except NotFound:
            return None

    def open_read(self, path: str) -> PosixOpenFile:
        with refusals(path):
            try:
                fd = os.open(path, READ)
            except BlockingIOError:  # a lease is held for a moment, by us: wait for its end
                if not modes.S_ISREG(os.lstat(path).st_mode):
                    raise
                fd = os.open(path, READ & ~os.O_NONBLOCK)
            kind = kind_of(os.fstat(fd).st_mode)
        if kind != "file":
            os.close(fd)
            raise AccessDenied(f"{path} is not a regular file ({kind})")
        return PosixOpenFile(path, fd)

    def open_live(self, path: str) -> PosixLiveFile:
        opened = self.open_read(path)
        return PosixLiveFile(opened.path, opened.fd)

    def leases(self, folder: str) -> bool:
        with self.create(f"{folder}/leases") as scratch:
            return scratch.knows_leases()

    def touch(self, path: str, mtime_ns: int | None) -> None:
        with refusals(path), self.open_read(path) as file:
            if mtime_ns is None:
                os.utime(file.fd)
            else:
                self._effects.set_times(file.fd, mtime_ns, mtime_ns)

    def resolve(self, path: str) -> str:
        with refusals(path):
            return os.path.realpath(path)

    def append_live(self, path: str, data: bytes) -> int | None:
        with refusals(path):
            try:
                fd = self._effects.open_append(path, None)
            except FileNotFoundError:
                return None
            try:
                return self._append(fd, memoryview(data))
            finally:
                os.close(fd)

    def _append(self, fd: int, data: memoryview) -> int:
        done = 0
        while done < len(data):
            try:
                done += self._effects.write(fd, data[done:])
            except OSError:
                if not done:
                    raise
                break
        return done

    def fill(self, path: str, offset: int, data: bytes) -> None:
        with refusals(path):
            fd = self._effects.open_fill(path)
            try:
                view = memoryview(data)
                while view:
                    done = self._effects.pwrite(fd, view, offset)
                    view, offset = view[done:], offset + done
            finally:
                os.close(fd)

    def sync_file(self, path: str) -> None:
        with refusals(path), self.open_read(path) as file:
            self._effects.sync(file.fd)

    def scan(self, folder: str) -> list[Entry]:
        with refusals(folder), os.scandir(folder) as found:
            return sorted(_entry(folder, item) for item in found)

    def make_dirs(self, path: str) -> None:
        with refusals(path):
            missing = [path]
            while not os.path.lexists(missing[-1]):
                missing.append(folder_of(missing[-1]))
            for folder in reversed(missing[:-1]):
                with contextlib.suppress(FileExistsError):  # somebody else was first
                    self._effects.make_dir(folder, PRIVATE_DIR)
                    self._effects.sync_folder(folder_of(folder))

    def make_private_dir(self, path: str) -> None:
        self.make_dirs(path)
        with refusals(path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._tighten(path, fd)
            finally:
                os.close(fd)

    def _tighten(self, path: str, fd: int) -> None:
        found = os.fstat(fd)
        # A link there is the user's business as long as it, too, is the user's own.
        if {found.st_uid, os.lstat(path).st_uid} != {os.geteuid()}:
            raise AccessDenied(f"{path} belongs to another user (uid {found.st_uid})")
        if found.st_mode & modes.S_ISVTX:  # such as /tmp: closing it would hurt everybody
            raise AccessDenied(f"{path} is a folder shared by all users")
        if found.st_mode & 0o077:
            os.fchmod(fd, found.st_mode & PRIVATE_DIR)

    def create(
        self, target: str, *, mode: int = PRIVATE_FILE, label: str | None = None
    ) -> PosixNewFile:
        path = os.path.join(folder_of(target), TEMP_PREFIX + (label or os.urandom(8).hex()))
        with refusals(target):
            return PosixNewFile(path, self._effects.create(path, mode), self._effects, target)

    def write_private(self, path: str, data: bytes) -> None:
        with self.create(path) as new:
            new.write(data)
            new.sync()
            new.replace(path)

    def append(self, path: str, data: bytes) -> None:
        with refusals(path):
            fd = self._effects.open_append(path, PRIVATE_FILE)
            try:
                if os.fstat(fd).st_size == 0:
                    self._effects.sync_folder(folder_of(path))
                view = memoryview(data)
                while view:
                    view = view[self._effects.write(fd, view) :]
                self._effects.sync(fd)
            finally:
                os.close(fd)

    def read_small(self, path: str, limit: int) -> bytes | None:
        try:
            with self.open_read(path) as file:
                data = file.pread(0, limit + 1)
        except NotFound:
            return None
        if len(data) > limit:
            raise AccessDenied(f"{path} is longer than {limit} bytes")
        return data

    def create_exclusive(self, path: str, data: bytes) -> bool:
        with self.create(path) as new:
            new.write(data)
            new.sync()
            return new.publish(path)

    def remove(self, path: str) -> bool:
        try:
            with refusals(path):
                self._effects.unlink(path)
        except NotFound:
            return False
        return True

    def remove_folder(self, path: str) -> bool:
        try:
            with refusals(path):
                self._effects.remove_dir(path)
        except (NotFound, AccessDenied):  # gone, or not empty: then it is still needed
            return False
        return True

    def sync_folder(self, path: str) -> None:
        with refusals(path):
            self._effects.sync_folder(path)

    def link(self, source: str, target: str, *, durably: bool = True) -> bool:
        try:
            with refusals(target):
                self._effects.link(source, target)
                if durably:
                    self._effects.sync_folder(folder_of(target))
        except AccessDenied as refusal:
            if isinstance(refusal.__cause__, FileExistsError):
                return False
            raise
        return True

    def replace(self, source: str, target: str) -> None:
        with refusals(source):
            self._effects.rename(source, target)
            self._effects.sync_folder(folder_of(target))
            if folder_of(source) != folder_of(target):
                self._effects.sync_folder(folder_of(source))

    def lock(self, path: str) -> _Lock | None:
        with refusals(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(path, flags, PRIVATE_FILE)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
        return _Lock(path, fd)

    def free_bytes(self, path: str) -> int:
        with refusals(path):
            room = os.statvfs(path)
        return room.f_bavail * room.f_frsize

    def bind_socket(self, path: str) -> socket.socket | None:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Only a umask keeps others out from the first moment; files that other threads make
        # meanwhile are more private than asked, and folders still usable.
        before = os.umask(0o077)
        try:
            bound.bind(path)
            os.chmod(path, PRIVATE_FILE)
        except OSError as fault:
            bound.close()
            if fault.errno == errno.EADDRINUSE:
                return None
            raise refusal(fault, path) from fault
        finally:
            os.umask(before)
        return bound

"""Every change fabled makes to a disk, one method a system call.

`PosixFiles` goes through here and nowhere else, so that a test can count the calls,
end the world before any one of them, and forget whatever was not synced.
"""
# ruff: noqa: TID251, PTH102, PTH105, PTH106, PTH108 - this is the floor: the calls themselves

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import sys

_HERE, _SWAP = -100, 2
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Effects:
    """The system calls themselves; each may raise `OSError`."""

    def create(self, path: str, mode: int) -> int:
        """A descriptor, readable and writable, of a new file; the name must be free."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, mode)

    def open_append(self, path: str, mode: int | None) -> int:
        """A descriptor that appends; makes the file with this mode, unless that is None."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        if mode is None:
            return os.open(path, flags)
        return os.open(path, flags | os.O_CREAT, mode)

    def open_fill(self, path: str) -> int:
        """A descriptor that writes at offsets into a file that is there."""
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def write(self, fd: int, data: memoryview) -> int:
        """Write at the descriptor's position; returns how much was taken."""
        return os.write(fd, data)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write at an offset; returns how much was taken."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to this size."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Make the file's bytes survive a power cut."""
        if sys.platform == "darwin":
            # fsync leaves the bytes in the drive's cache there; not every file system can do more.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
                return
        os.fsync(fd)

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder survive a power cut."""
        fd = os.open(folder, DIRECTORY)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def link(self, source: str, target: str) -> None:
        """A second name for a file; fails when the name is taken."""
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: str, target: str) -> None:
        """Rename over whatever file has the target's name."""
        os.replace(source, target)

    def exchange(self, one: str, other: str) -> None:
        """Let two files have each other's name at one moment; `OSError` where that is unknown.

        Source: renameat2(2) with RENAME_EXCHANGE; renamex_np(2) with RENAME_SWAP on macOS.
        """
        names = (os.fsencode(one), os.fsencode(other))
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            call = getattr(library, "renamex_np", None)
            arguments = (*names, _SWAP)
        else:
            call = getattr(library, "renameat2", None)
            arguments = (_HERE, names[0], _HERE, names[1], _SWAP)
        if call is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if call(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), one)

    def unlink(self, path: str) -> None:
        """Take a name away."""
        os.unlink(path)

    def make_dir(self, path: str, mode: int) -> None:
        """Make one folder."""
        os.mkdir(path, mode)

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def change_mode(self, fd: int, mode: int) -> None:
        """Set a file's permissions."""
        os.fchmod(fd, mode)

    def change_group(self, fd: int, group: int) -> None:
        """Give a file to another group."""
        os.fchown(fd, -1, group)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        """Set when a file was read and changed last."""
        os.utime(fd, ns=(atime_ns, mtime_ns))

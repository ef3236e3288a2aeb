"""Kernel leases on open files: Linux only; elsewhere none is ever granted.

Source: fcntl(2), and measurements: they work for an unprivileged owner on ext4, tmpfs and
overlayfs. A broken lease raises SIGIO, whose default is to end the process.
"""

from __future__ import annotations

import fcntl
import signal
import sys

_AVAILABLE = sys.platform == "linux" and hasattr(fcntl, "F_SETLEASE")
READ = fcntl.F_RDLCK
WRITE = fcntl.F_WRLCK


def ignore_breaks() -> None:
    """A lease that somebody waits for must not end us. Call it before the first lease."""
    if _AVAILABLE:
        signal.signal(signal.SIGIO, signal.SIG_IGN)


def take(fd: int, kind: int) -> bool:
    """Take a lease of a kind; False when somebody has the file open, or there are no leases."""
    if not _AVAILABLE or signal.getsignal(signal.SIGIO) is not signal.SIG_IGN:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
    except OSError:  # EAGAIN: in use; EINVAL, ENOLCK, EACCES: this file has no leases for us
        return False
    return True


def drop(fd: int) -> None:
    """Give a lease back; the kernel may have taken it already."""
    if _AVAILABLE:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return


def held(fd: int, kind: int) -> bool:
    """Whether a lease of that kind is still ours, and nobody waits for it."""
    return _AVAILABLE and fcntl.fcntl(fd, fcntl.F_GETLEASE) == kind

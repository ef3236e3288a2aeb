"""The socket's place in the file system: taken when free, recovered when stale."""

from __future__ import annotations

import errno
import os
import socket
import stat as modes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabled.daemon.peers import peer
from fabled.errors import AccessDenied, AlreadyRunning, SocketPathTaken, SocketPathTooLong
from fabled.protocol import SOCKET_PATH_LIMITS

if TYPE_CHECKING:
    from fabled.system import Files, FileStat

BACKLOG = 1024
"""Connections that may wait to be accepted; a client that will not wait is refused beyond."""

_ATTEMPTS = 5
_PROBE_S = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listening socket and what its path named when we bound it."""

    path: str
    socket: socket.socket
    dev: int
    ino: int


def bind(path: str, files: Files) -> Endpoint:
    """Listen at this path, mode 0600, in a folder that others cannot write to.

    The caller holds the lock of the home, so that two starts cannot both find the same
    stale socket. Clients may connect from now on; they wait until somebody accepts.

    Raises:
        SocketPathTooLong: The platform cannot bind a path of that length.
        SocketPathTaken: Something that is not a daemon's socket stands there.
        AlreadyRunning: Somebody listens there, even if too busy to accept.
        AccessDenied: The folder or the socket is not ours to use.
        DiskFull: There is no room for the folder or the name.
    """
    limit = SOCKET_PATH_LIMITS.get(sys.platform, min(SOCKET_PATH_LIMITS.values()))
    length = len(os.fsencode(path))
    if length > limit:
        raise SocketPathTooLong(
            f"the socket path {path} is {length} bytes long; this platform allows {limit}"
        )
    _prepare_folder(path, files)
    for _attempt in range(_ATTEMPTS):
        bound = files.bind_socket(path)
        if bound is not None:
            return _listen(path, bound, files)
        _clear(path, files)
    raise AlreadyRunning(f"others keep taking the socket {path}")


def unbind(endpoint: Endpoint, files: Files) -> bool:
    """Close the socket and remove its name if it is still ours; False when it was not."""
    endpoint.socket.close()
    found = files.stat(endpoint.path)
    if found is None or (found.dev, found.ino) != (endpoint.dev, endpoint.ino):
        return False
    return files.remove(endpoint.path)


def _listen(path: str, bound: socket.socket, files: Files) -> Endpoint:
    bound.listen(BACKLOG)
    found = files.stat(path)
    if found is None:
        bound.close()
        raise AlreadyRunning(f"somebody removed the socket {path} while we bound it")
    return Endpoint(path, bound, found.dev, found.ino)


def _prepare_folder(path: str, files: Files) -> None:
    """Make the folder private if it exists for the socket alone; never touch a shared one."""
    folder = os.path.dirname(path)  # noqa: PTH120 - str paths, as everywhere in the daemon
    found = files.stat(folder, follow=True)
    if found is None:
        files.make_private_dir(folder)
        return
    sticky = found.mode & modes.S_ISVTX
    if sticky or not found.mode & 0o077:
        return
    if all(entry.path == path for entry in files.scan(folder)):
        files.make_private_dir(folder)
    elif found.mode & 0o022:
        raise AccessDenied(
            f"other users can write to {folder}, where the socket belongs",
            hint="Set FABLED_SOCKET to a path in a folder of its own.",
        )


def _clear(path: str, files: Files) -> None:
    """Remove a stale socket; raise when whatever holds the path is not one."""
    found = files.stat(path)
    if found is None:
        return
    if not modes.S_ISSOCK(found.mode):
        raise SocketPathTaken(f"{path} is not a socket ({found.kind})")
    if not _answers(path):
        _remove_same(path, found, files)


def _remove_same(path: str, stale: FileStat, files: Files) -> None:
    found = files.stat(path)
    if found is not None and (found.dev, found.ino) == (stale.dev, stale.ino):
        files.remove(path)


def _answers(path: str) -> bool:
    """False when nobody listens there; raises when somebody does or may."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (BlockingIOError, TimeoutError):  # its queue is full: alive, if not well
            raise AlreadyRunning(f"a daemon too busy to answer listens on {path}") from None
        except OSError as fault:
            if fault.errno == errno.EPROTOTYPE:
                raise SocketPathTaken(f"{path} is a socket of another type") from None
            raise AccessDenied(f"cannot access {path}: {fault.strerror}") from fault
        holder = peer(probe)
    who = f"process {holder.pid}" if holder else "another process"
    raise AlreadyRunning(f"{who} listens on {path}")

"""Who is at the other end of a Unix socket, told by the kernel."""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

_UCRED = struct.Struct("iII")  # Linux, unix(7): pid, uid, gid
_XUCRED = struct.Struct("=IIh2x16I")  # macOS, sys/ucred.h: version, uid, count, groups
_SOL_LOCAL = 0  # macOS, sys/un.h
_LOCAL_PEERCRED = 1
_LOCAL_PEERPID = 2


class Peer(NamedTuple):
    """The user and process that made the connection, or that listens for it."""

    uid: int
    pid: int


def peer(connection: socket.socket) -> Peer | None:
    """Ask the kernel for the peer of a connected Unix socket; None when it does not say."""
    try:
        if sys.platform == "darwin":
            return _peer_of_macos(connection)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    except OSError:  # the peer is gone already: nobody to name
        return None
    pid, uid, _gid = _UCRED.unpack(raw)
    return Peer(uid, pid)


def _peer_of_macos(connection: socket.socket) -> Peer | None:
    raw = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
    if len(raw) < _XUCRED.size:
        return None
    version, uid, *_groups = _XUCRED.unpack(raw)
    pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    return Peer(uid, pid) if version == 0 else None

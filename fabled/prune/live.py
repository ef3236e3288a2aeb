"""Is a client at work on this session? By the notes it keeps beside the projects folder.

Source: measured on the client 2.1.112 and 2.1.332: `sessions/PID.json` has pid, sessionId
and, from 2.1.332 on, procStart; it stays after a SIGKILL, so the process must live and
have that start. It is written in place: a reader can meet half of it. The keys that lie
beside it are never opened.
"""

from __future__ import annotations

import posixpath
import threading
from typing import TYPE_CHECKING

import msgspec

from fabled.errors import AccessDenied, NotFound

if TYPE_CHECKING:
    from fabled.system import System

LIMIT = 1 << 20
TRIES = 5
AGAIN_S = 0.02


class _Note(msgspec.Struct, rename="camel"):
    pid: int | None = None
    session_id: str | None = None
    proc_start: str | int | None = None


def live_process(system: System, root: str, session: str) -> int | None:
    """The process that works on a session; None when there is none.

    A note that cannot be read, even after some tries, counts as one about this session.

    Args:
        system: The ports.
        root: The projects folder.
        session: The id in the transcript's name.
    """
    folder = f"{posixpath.dirname(root)}/sessions"
    try:
        entries = system.files.scan(folder)
    except NotFound:
        return None
    for entry in entries:
        stem, dot, suffix = entry.name.rpartition(".")
        if dot and suffix == "json" and stem.isdigit() and entry.kind == "file":
            note = _read(system, entry.path)
            pid = int(stem) if note is None or note.pid is None else note.pid
            if note is not None and note.session_id not in {session, None}:
                continue
            if _alive(system, pid, note):
                return pid
    return None


def _read(system: System, path: str) -> _Note | None:
    never = threading.Event()
    for _ in range(TRIES):
        try:
            return msgspec.json.decode(system.files.read_small(path, LIMIT) or b"", type=_Note)
        except (msgspec.DecodeError, AccessDenied):
            system.clock.wait(never, AGAIN_S)  # its writer may be in the middle
    return None


def _alive(system: System, pid: int, note: _Note | None) -> bool:
    if not system.processes.alive(pid):
        return False
    if note is None or note.proc_start is None:
        return True
    started = system.processes.start_ticks(pid)
    return started is None or started == str(note.proc_start)

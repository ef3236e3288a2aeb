"""What the client's hooks tell: a session is about to be compacted, or ended, or was compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from fabled.errors import DaemonBusy
from fabled.map import queries, sessions
from fabled.recall import threads
from fabled.transcript.sentinel import wrap
from fabled.vault.archive import units

if TYPE_CHECKING:
    from fabled.daemon.errands import Say
    from fabled.daemon.keeper import Keeper
    from fabled.map.db import Snapshot

log = structlog.get_logger("hooks")

SEALS = {"PreCompact": "before a compaction", "SessionEnd": "session end"}
AFTER_COMPACTION = "SessionStart"
SHOWN = 5
_NOTE = """\
This conversation was compacted. fabled still has every word of it: {row.records} records in
{row.threads} threads of session {row.session}. Before you guess at what was said, done or decided
earlier, look it up: the MCP tools recall and search of fabled (session="{row.session}"), or on a
shell: fablectl search --session {row.session} WORDS; fablectl thread THREAD
Its latest threads:
"""


def heard(keeper: Keeper, event: str, path: str, session: str) -> str:
    """Act on one notice; returns what the client may be told, mostly nothing.

    Sealing goes on in the background: the client waits for none of it. A path outside of
    our projects folders is nobody's business.
    """
    if event in SEALS and keeper.desk.root_of(path) in keeper.desk.roots:
        keeper.desk.mark(path)
        keeper.errand("hook", lambda _say: _seal(keeper, path, SEALS[event], _say))
        return ""
    if event == AFTER_COMPACTION and session:
        with keeper.snapshots.snapshot() as snapshot:
            return _pointer(keeper, snapshot, session)
    return ""


def _seal(keeper: Keeper, path: str, reason: str, _say: Say) -> None:
    root = keeper.desk.root_of(path) or ""
    project = path.removeprefix(root).lstrip("/").partition("/")[0]
    try:
        with keeper.alone():
            for unit in units(keeper.system.files, root, project):
                if unit.files[0].origin.live == path:
                    keeper.seal_unit(unit, reason)
    except DaemonBusy as fault:
        log.info("left to the archive job", path=path, error=fault.message)


def _pointer(keeper: Keeper, snapshot: Snapshot, name: str) -> str:
    """A short note on what a compaction took out of sight, and how to see it again."""
    row = sessions.one(snapshot, name)
    if row is None or not row.records:
        return ""
    latest = sessions.threads_of(snapshot, row.id)[-SHOWN:]
    lines = _NOTE.format(row=row).splitlines()
    keys: list[str] = []
    for thread in latest:
        keys.append(queries.thread_key(snapshot, thread))
        veil = keeper.answers.veil
        line = threads.opening_line(snapshot, keeper.shelf.sources, thread, veil)
        lines.append(f"- {keys[-1]}: {line or 'untitled'}")
    return wrap("\n".join(lines), row.session, keys, keeper.key)

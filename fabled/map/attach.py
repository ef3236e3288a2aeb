"""Subagent transcripts belong to the thread that spawned them.

The link is on the main side: the id of the agent in a tool's result or a progress
record, or the id of the tool call, which the agent's `.meta.json` repeats. A chain of
spawns (an agent of an agent) is followed to its first thread; circles are cut.
Records that carry the client's own `promptId` need none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.map.db import Snapshot, WriteTxn

_SPAWN = (
    "SELECT s.file, c.thread, c.rule FROM spawns s"
    " JOIN copies c ON c.file = s.file AND c.off = s.off JOIN files f ON f.id = s.file"
    " WHERE s.agent IN (?, ?) AND s.file <> ? AND c.thread IS NOT NULL"
    " ORDER BY f.path, s.off LIMIT 1"
)


def thread_of(snapshot: Snapshot, file: int) -> int | None:
    """The thread that spawned a subagent's file; None for a main file or an unknown origin."""
    seen: set[int] = set()
    found: int | None = None
    here: int | None = file
    while here is not None and here not in seen:
        seen.add(here)
        names = snapshot.row("SELECT agent, tool FROM files WHERE id = ?", (here,))
        if names is None or names[0] is None:
            break
        spawn = snapshot.row(_SPAWN, (names[0], names[1], here))
        if spawn is None:
            break
        here, found = spawn[0], int(spawn[1])
        if spawn[2] == 1:  # placed by promptId: that is final
            break
    return found


def reattach(txn: WriteTxn, files: Iterable[int], agents: Iterable[str]) -> set[int]:
    """Attach files again after spawns or threads changed, and whatever hangs below them.

    Args:
        txn: The transaction that changed them.
        files: Subagent files that are new or were read.
        agents: Keys in `spawns` that came, went or moved to another thread.

    Returns:
        The records whose thread may have changed.
    """
    touched: set[int] = set()
    done: set[int] = set()
    waiting = [*files]
    for agent in sorted(set(agents)):
        waiting += _spawned(txn, agent)
    while waiting:
        file = waiting.pop()
        if file in done:
            continue
        done.add(file)
        now = thread_of(txn, file)
        row = txn.row("SELECT attached FROM files WHERE id = ?", (file,))
        if row is None or row[0] == now:
            continue
        txn.run("UPDATE files SET attached = ? WHERE id = ?", (now, file))
        touched.update(
            int(r[0]) for r in txn.rows("SELECT rec FROM copies WHERE file = ?", (file,))
        )
        for (agent,) in txn.rows("SELECT DISTINCT agent FROM spawns WHERE file = ?", (file,)):
            waiting += _spawned(txn, agent)
    return touched


def _spawned(txn: WriteTxn, agent: str) -> list[int]:
    rows = txn.rows("SELECT id FROM files WHERE agent = ? OR tool = ?", (agent, agent))
    return [int(row[0]) for row in rows]

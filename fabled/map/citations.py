"""Who cites whom: threads whose recalled text stands in other threads' records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.map.queries import pointers

if TYPE_CHECKING:
    from fabled.map.db import Snapshot
    from fabled.model import Pointer


class Citation(NamedTuple):
    """One record that holds recalled text, and the key of the thread it was recalled from."""

    record: Pointer
    ref: str


def consumers(snapshot: Snapshot, key: str) -> list[Citation]:
    """The records that cite a thread, in the order of their time."""
    rows = snapshot.rows(
        "SELECT r.id, c.ref FROM citations c JOIN records r ON r.uuid = c.from_uuid"
        " WHERE c.ref = ? ORDER BY r.ts IS NULL, r.ts, r.id",
        (key,),
    )
    return _with_pointers(snapshot, [(row[0], row[1]) for row in rows])


def consumed(snapshot: Snapshot, thread: int) -> list[Citation]:
    """What the records of a thread cite, in the order of their time."""
    rows = snapshot.rows(
        "SELECT r.id, c.ref FROM records r JOIN citations c ON c.from_uuid = r.uuid"
        " WHERE r.thread = ? ORDER BY r.ts IS NULL, r.ts, r.id, c.ref",
        (thread,),
    )
    return _with_pointers(snapshot, [(row[0], row[1]) for row in rows])


def _with_pointers(snapshot: Snapshot, rows: list[tuple[int, str]]) -> list[Citation]:
    found = pointers(snapshot, [number for number, _ in rows])
    return [Citation(found[number], ref) for number, ref in rows if number in found]

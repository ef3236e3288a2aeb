"""Proofs about copies: what the Vault holds, as the Map knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.map.files import CLEAN, TENTATIVE, blob, unblob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fabled.map.db import Snapshot

BATCH = 5000


class Spot(NamedTuple):
    """A copy's place and what its bytes hash to."""

    offset: int
    length: int
    digest: bytes


def spots(snapshot: Snapshot, path: str) -> set[Spot]:
    """Every copy in one file or strand."""
    rows = snapshot.rows(
        "SELECT c.off, c.len, c.digest FROM copies c JOIN files f ON f.id = c.file"
        " WHERE f.path = ?",
        (blob(path),),
    )
    return {Spot(*row) for row in rows}


def covered(snapshot: Snapshot, path: str, others: Iterable[str]) -> bool:
    """Whether others hold, of each record in a strand, a longer copy or the very same bytes.

    A strand with damage, or with an unfinished last line, is never covered: nothing proves
    that others hold those bytes.
    """
    marks = [blob(other) for other in others]
    if not marks:
        return False
    holes = ",".join("?" * len(marks))
    missing = snapshot.value(
        "SELECT count(*) FROM copies c JOIN files f ON f.id = c.file WHERE f.path = ?"
        " AND NOT EXISTS(SELECT 1 FROM copies o JOIN files g ON g.id = o.file"
        "  WHERE o.rec = c.rec AND (o.len > c.len OR o.len = c.len AND o.digest = c.digest)"
        f"  AND g.path IN ({holes}))",
        (blob(path), *marks),
    )
    damaged = snapshot.value(
        "SELECT count(*) FROM damage d JOIN files f ON f.id = d.file WHERE f.path = ?",
        (blob(path),),
    )
    tail = snapshot.value("SELECT tail FROM files WHERE path = ?", (blob(path),))
    return tail in {CLEAN, TENTATIVE} and not missing and not damaged


def places(snapshot: Snapshot, records: list[int]) -> list[tuple[str, int | None]]:
    """The files and strands that hold copies of some records; the number is a strand's."""
    found: set[tuple[str, int | None]] = set()
    for at in range(0, len(records), 500):
        some = records[at : at + 500]
        marks = ",".join("?" * len(some))
        rows = snapshot.rows(
            "SELECT DISTINCT f.path, f.generation FROM copies c JOIN files f ON f.id = c.file"
            f" WHERE c.rec IN ({marks})",
            some,
        )
        found |= {(unblob(row[0]), row[1]) for row in rows}
    return sorted(found, key=lambda place: place[0])


class Best(NamedTuple):
    """A best pointer to be read again."""

    path: str
    spot: Spot


def best_pointers(snapshot: Snapshot, after: int) -> Iterator[tuple[int, Best]]:
    """The next best pointers past a record's id, in order of id; at most `BATCH`."""
    rows = snapshot.rows(
        "SELECT r.id, f.path, r.off, r.len, r.digest FROM records r JOIN files f ON f.id = r.file"
        f" WHERE r.id > ? AND r.digest IS NOT NULL ORDER BY r.id LIMIT {BATCH}",
        (after,),
    )
    for number, path, *spot in rows:
        yield number, Best(unblob(path), Spot(*spot))

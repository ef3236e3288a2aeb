"""Terms of threads: what each has, how many threads have each, and which are still to be read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from fabled.transcript.identity import clean
from fabled.transcript.terms import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fabled.map.db import Snapshot, WriteTxn
    from fabled.transcript.terms import Terms

_NUMBER = {kind: at for at, kind in enumerate(KINDS)}


class Word(NamedTuple):
    """A term as it is browsed.

    Attributes:
        threads: How many threads have it.
        n: How often it stands in the thread asked for; None when all threads were.
        weight: What it is sorted by: rare in all and frequent in one counts most.
    """

    kind: str
    text: str
    threads: int
    n: int | None
    weight: float


class Facet(NamedTuple):
    """What a search may be restricted to: a kind of term, and the term."""

    kind: str
    text: str


def waiting(snapshot: Snapshot, limit: int) -> list[int]:
    """Threads that changed since their terms were derived."""
    rows = snapshot.rows("SELECT thread FROM unstudied ORDER BY thread LIMIT ?", (limit,))
    return [int(row[0]) for row in rows]


def count_waiting(snapshot: Snapshot) -> int:
    """How many there are."""
    return int(snapshot.value("SELECT count(*) FROM unstudied"))


def save(txn: WriteTxn, thread: int, terms: Terms) -> None:
    """Let a thread have exactly these terms; the counts of all threads follow."""
    old = {int(row[0]): int(row[1]) for row in _rows(txn, thread)}
    new: dict[int, int] = {}
    for kind, found in terms.by_kind.items():
        for text, n in found.items():
            new[_word(txn, _NUMBER[kind], clean(text))] = n
    _count(txn, new.keys() - old.keys(), +1)
    _count(txn, old.keys() - new.keys(), -1)
    txn.many(
        "DELETE FROM terms WHERE thread = ? AND word = ?",
        [(thread, word) for word in old.keys() - new.keys()],
    )
    txn.many(
        "INSERT OR REPLACE INTO terms VALUES(?, ?, ?)",
        [(thread, word, n) for word, n in sorted(new.items()) if old.get(word) != n],
    )
    txn.run("DELETE FROM unstudied WHERE thread = ?", (thread,))


def _rows(snapshot: Snapshot, thread: int) -> list[tuple[int, int]]:
    return [
        (row[0], row[1])
        for row in snapshot.rows("SELECT word, n FROM terms WHERE thread = ?", (thread,))
    ]


def _word(txn: WriteTxn, kind: int, text: str) -> int:
    found = txn.value("SELECT id FROM words WHERE kind = ? AND text = ?", (kind, text))
    if found is None:
        return txn.insert("INSERT INTO words(kind, text, threads) VALUES(?, ?, 0)", (kind, text))
    return int(found)


def _count(txn: WriteTxn, words: Iterable[int], by: int) -> None:
    rows = [(by, word) for word in words]
    txn.many("UPDATE words SET threads = threads + ? WHERE id = ?", rows)
    if by < 0:
        gone = [(word,) for _, word in rows]
        txn.many("DELETE FROM words WHERE id = ? AND threads = 0", gone)


def browse(
    snapshot: Snapshot, kind: str | None, prefix: str, limit: int, thread: int | None = None
) -> list[Word]:
    """Terms that begin with a text, the most telling first.

    Args:
        snapshot: The Map.
        kind: One of `KINDS`; None: all.
        prefix: Any letter case.
        limit: How many at most.
        thread: Only this thread's, its own most telling ones first; None: all threads', the
            most widespread first.
    """
    kinds = [_NUMBER[kind]] if kind is not None else list(_NUMBER.values())
    total = int(snapshot.value("SELECT count(DISTINCT thread) FROM terms")) or 1
    found: list[Word] = []
    for number in kinds:
        for text, threads, n in _begin_with(snapshot, number, prefix, thread):
            rarity = math.log(1 + total / threads)
            weight = float(threads) if thread is None else n * rarity
            found.append(
                Word(KINDS[number], text, threads, None if thread is None else n, round(weight, 4))
            )
    return sorted(found, key=lambda word: (-word.weight, word.kind, word.text))[:limit]


def _begin_with(
    snapshot: Snapshot, kind: int, prefix: str, thread: int | None
) -> Sequence[tuple[str, int, int]]:
    where = "w.kind = ?"
    values: list[object] = [kind]
    if prefix:
        # A half-open range on the folded index: no character of the prefix is syntax.
        where += " AND w.text COLLATE NOCASE >= ? AND w.text COLLATE NOCASE < ?"
        values += [prefix, prefix + "\U0010ffff"]
    if thread is None:
        sql = f"SELECT w.text, w.threads, 0 FROM words w WHERE {where}"
    else:
        sql = (
            "SELECT w.text, w.threads, t.n FROM terms t JOIN words w ON w.id = t.word"
            f" WHERE t.thread = ? AND {where}"
        )
        values = [thread, *values]
    return [(str(row[0]), int(row[1]), int(row[2])) for row in snapshot.rows(sql, values)]


def facet_filter(facet: Facet, thread: str) -> tuple[str, tuple[object, ...]]:
    """SQL that holds for threads with a term, whatever its letter case.

    Args:
        facet: The term.
        thread: SQL of the thread's row.
    """
    sql = (
        f"EXISTS(SELECT 1 FROM terms t JOIN words w ON w.id = t.word WHERE t.thread = {thread}"
        " AND w.kind = ? AND w.text = ? COLLATE NOCASE)"
    )
    return sql, (_NUMBER[facet.kind], facet.text)


def bonus(snapshot: Snapshot, wanted: Sequence[Facet], threads: Sequence[int]) -> dict[int, float]:
    """How much of what a question names each of some threads has: rare terms count more."""
    if not wanted or not threads:
        return {}
    total = int(snapshot.value("SELECT count(DISTINCT thread) FROM terms")) or 1
    found: dict[int, float] = {}
    marks = ",".join("?" * len(threads))
    for facet in wanted:
        rows = snapshot.rows(
            "SELECT t.thread, w.threads FROM words w JOIN terms t ON t.word = w.id"
            f" WHERE w.kind = ? AND w.text = ? COLLATE NOCASE AND t.thread IN ({marks})",
            (_NUMBER[facet.kind], facet.text, *threads),
        )
        for thread, spread in rows:
            found[thread] = found.get(thread, 0.0) + math.log(1 + total / spread)
    return found

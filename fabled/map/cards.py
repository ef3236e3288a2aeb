"""Cards of threads: one row each, and a full-text list of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fabled.model import Card
from fabled.transcript.identity import clean
from fabled.transcript.words import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabled.map.db import Snapshot, WriteTxn

_COLUMNS = "title, type, topics, decisions, files, outcome, summary, source, model, outdated"


def save(txn: WriteTxn, thread: int, card: Card | None) -> None:
    """Let a thread have this card, or none."""
    now = load(txn, thread)
    if now == card:
        return
    txn.run("DELETE FROM card_fts WHERE rowid = ?", (thread,))
    if card is None:
        txn.run("DELETE FROM cards WHERE thread = ?", (thread,))
        return
    lists = (json.dumps(list(some), ensure_ascii=False) for some in card[2:5])
    row = (card.title, card.type, *lists, *card[5:9], int(card.outdated))
    txn.run(
        f"INSERT OR REPLACE INTO cards(thread, {_COLUMNS}) VALUES(?{', ?' * 10})",
        (thread, *(clean(value) if isinstance(value, str) else value for value in row)),
    )
    pieces = (card.title, card.summary, card.outcome, *card.topics, *card.decisions)
    text = clean("\n".join(pieces))
    txn.run("INSERT INTO card_fts(rowid, body, parts) VALUES(?, ?, ?)", (thread, text, parts(text)))


def load(snapshot: Snapshot, thread: int) -> Card | None:
    """The card of a thread."""
    row = snapshot.row(f"SELECT {_COLUMNS} FROM cards WHERE thread = ?", (thread,))
    if row is None:
        return None
    lists = (tuple(json.loads(some)) for some in row[2:5])
    return Card._make([row[0], row[1], *lists, *row[5:9], bool(row[9])])


def matching(snapshot: Snapshot, match: str, threads: Sequence[int]) -> dict[int, float]:
    """How well the cards of some threads match an expression; larger is better."""
    if not threads:
        return {}
    marks = ",".join("?" * len(threads))
    rows = snapshot.rows(
        "SELECT rowid, -rank FROM card_fts WHERE card_fts MATCH ?"
        f" AND rank MATCH 'bm25(1.0, 0.5)' AND rowid IN ({marks})",
        (match, *threads),
    )
    return {int(row[0]): float(row[1]) for row in rows}


def type_filter(kind: str, thread: str) -> tuple[str, tuple[object, ...]]:
    """SQL that holds for threads whose card is of a type."""
    return f"EXISTS(SELECT 1 FROM cards k WHERE k.thread = {thread} AND k.type = ?)", (kind,)


def without_provider(snapshot: Snapshot, source: str, limit: int) -> list[int]:
    """Threads whose card is not from a source, or is outdated; the newest threads first."""
    rows = snapshot.rows(
        "SELECT k.thread FROM cards k JOIN records r ON r.thread = k.thread"
        " WHERE k.source <> 'manual' AND (k.source <> ? OR k.outdated)"
        " GROUP BY k.thread ORDER BY max(r.ts) IS NULL, max(r.ts) DESC, k.thread LIMIT ?",
        (source, limit),
    )
    return [int(row[0]) for row in rows]

"""Ranked matches out of the full-text index, filtered, over one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabled.map.cards import type_filter
from fabled.map.sessions import project_filter
from fabled.map.vocabulary import Facet, facet_filter
from fabled.model import Filter, Hit, Scope

if TYPE_CHECKING:
    from fabled.map.db import Snapshot

TOP = 1000
"""Matches ranked in the end; measured: no loss against all of them."""


def hits(snapshot: Snapshot, match: str, wanted: Filter, limit: int = TOP) -> list[Hit]:
    """The best matches of an expression, best first; ties to the newer record.

    Raises:
        Interrupted: The snapshot's deadline ran out.
    """
    ranked = "SELECT rowid, rank FROM fts WHERE fts MATCH ? AND rank MATCH 'bm25(1.0, 0.5)'"
    if wanted == Filter():
        ranked += f" ORDER BY rank LIMIT {limit}"
    where, values = _where(wanted)
    rows = snapshot.rows(
        f"WITH m AS MATERIALIZED ({ranked})"
        " SELECT r.id, -m.rank, r.thread, r.session, r.ts FROM m JOIN records r ON r.id = m.rowid"
        f" WHERE {where} ORDER BY m.rank, r.ts DESC, r.uuid LIMIT {limit}",
        (match, *values),
    )
    return [Hit(*row) for row in rows]


def newest(snapshot: Snapshot, match: str, wanted: Filter, limit: int = TOP) -> list[Hit]:
    """The latest indexed matches, unranked: what is left to give when time runs out."""
    where, values = _where(wanted)
    rows = snapshot.rows(
        "WITH m AS MATERIALIZED (SELECT rowid FROM fts WHERE fts MATCH ?"
        f" ORDER BY rowid DESC LIMIT {limit})"
        " SELECT r.id, 1.0, r.thread, r.session, r.ts FROM m JOIN records r ON r.id = m.rowid"
        f" WHERE {where} ORDER BY r.ts DESC, r.uuid",
        (match, *values),
    )
    return [Hit(*row) for row in rows]


def scope(snapshot: Snapshot, wanted: Filter) -> Scope:
    """Count what a filter lets through. Cost: one pass over `records`."""
    where, values = _where(wanted)
    rows = snapshot.rows(
        "SELECT count(*), count(DISTINCT r.thread), count(DISTINCT r.session), min(r.ts), max(r.ts)"
        f" FROM records r WHERE {where}",
        values,
    )
    return Scope(*rows[0])


def _where(wanted: Filter) -> tuple[str, tuple[object, ...]]:
    parts: list[str] = []
    values: list[object] = []
    if wanted.project is not None:
        sql, bound = project_filter(wanted.project, "r.session")
        parts.append(sql)
        values += bound
    if wanted.session is not None:
        parts.append(
            "EXISTS(SELECT 1 FROM copies c JOIN files f ON f.id = c.file"
            " WHERE c.rec = r.id AND f.session = ?)"
        )
        values.append(wanted.session)
    if wanted.since_ms is not None:
        parts.append("r.ts >= ?")
        values.append(wanted.since_ms)
    if wanted.until_ms is not None:
        parts.append("r.ts < ?")
        values.append(wanted.until_ms)
    if wanted.side is not None:
        parts.append("r.side = ?")
        values.append(wanted.side)
    for kind, text in wanted.terms:
        sql, bound = facet_filter(Facet(kind, text), "r.thread")
        parts.append(sql)
        values += bound
    if wanted.type is not None:
        sql, bound = type_filter(wanted.type, "r.thread")
        parts.append(sql)
        values += bound
    return " AND ".join(parts) or "1", tuple(values)

"""Writing records: copies first, then whatever follows from them.

Whoever changes `copies` collects the records it touched and calls `settle`, which
derives their rows again: best pointer, thread, session, searchable text. Nothing
else writes `records` or `fts`, except the first sight of a record, which needs no
comparison.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fabled.map.files import blob
from fabled.transcript.envelope import Envelope
from fabled.transcript.records import Record, understand
from fabled.transcript.tolerant import decode_as
from fabled.transcript.words import parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.map.db import Row, WriteTxn
    from fabled.model import Placement
    from fabled.transcript.identity import Key
    from fabled.transcript.veil import Veil

DIGEST_BYTES = 8
PROMPT_ID_RULE = 1


def digest(data: bytes) -> bytes:
    """What tells one record's bytes from another's, checked on every read."""
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]


class Copy(NamedTuple):
    """One occurrence of a record in the file being read; `key` is the record's identity."""

    key: Key
    offset: int
    length: int
    line: int
    digest: bytes
    record: Record
    placement: Placement | None


class Ids:
    """Small integers for texts that repeat. Valid for one transaction only."""

    def __init__(self, txn: WriteTxn) -> None:
        self._txn = txn
        self._names: dict[str, int] = {}
        self._threads: dict[str, int] = {}
        self.next_record = 1 + int(txn.value("SELECT coalesce(max(id), 0) FROM records"))

    def name(self, text: str) -> int:
        """The id of a record kind or role."""
        return self._id(self._names, "names", "text", text)

    def thread(self, placement: Placement | None) -> int | None:
        """The id of a thread's key."""
        if placement is None:
            return None
        return self._id(self._threads, "threads", "key", placement.key)

    def _id(self, known: dict[str, int], table: str, column: str, text: str) -> int:
        found = known.get(text)
        if found is None:
            row = self._txn.value(f"SELECT id FROM {table} WHERE {column} = ?", (text,))
            if row is None:
                row = self._txn.insert(f"INSERT INTO {table}({column}) VALUES(?)", (text,))
            found = known[text] = int(row)
        return found


class Fetch(Protocol):
    """Reads one copy."""

    def __call__(self, path: bytes, offset: int, length: int, expected: bytes) -> bytes | None:
        """The copy's bytes, if they have the expected digest; None when they do not."""


class Target(NamedTuple):
    """The file whose copies are being written.

    Attributes:
        attached: The thread that spawned this file's agent.
        folder: Path of the live project folder: agents' ids are only unique below it.
        stem: The live file's name without suffix.
    """

    file: int
    session: int | None
    attached: int | None
    folder: str
    stem: str


def add_copies(txn: WriteTxn, ids: Ids, target: Target, copies: list[Copy]) -> set[int]:
    """Insert copies, and the records nobody has seen before.

    Returns:
        The records that existed already: `settle` must derive them again.
    """
    touched: set[int] = set()
    fresh: dict[Key, int] = {}
    copy_rows: list[Row] = []
    record_rows: list[Row] = []
    text_rows: list[Row] = []
    cited: list[Row] = []
    threads: set[int | None] = set()
    for copy in copies:
        known = _known(txn, fresh, copy.key)
        thread = ids.thread(copy.placement)
        rule = copy.placement.rule if copy.placement is not None else None
        if known is None:
            known = ids.next_record
            ids.next_record += 1
            fresh[copy.key] = known
            effective = thread if rule == PROMPT_ID_RULE else target.attached or thread
            pointer = (target.file, copy.offset, copy.length, copy.digest)
            said = _said(ids, copy.record)
            record_rows.append((known, copy.key, *pointer, effective, target.session, *said))
            text_rows += _text_row(known, copy.record)
            cited += [(copy.key, arc) for arc in copy.record.arcs]
            threads.add(effective)
        else:
            touched.add(known)
        copy_rows.append(
            (target.file, copy.offset, copy.length, known, copy.line, thread, rule, copy.digest)
        )
    txn.many("INSERT INTO records VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)", record_rows)
    txn.many("INSERT INTO copies VALUES(?,?,?,?,?,?,?,?)", copy_rows)
    txn.many("INSERT INTO fts(rowid, body, parts) VALUES(?,?,?)", text_rows)
    txn.many("INSERT OR IGNORE INTO citations VALUES(?,?)", cited)
    unstudied(txn, threads)
    return touched


def unstudied(txn: WriteTxn, threads: Iterable[int | None]) -> None:
    """Have what is derived from whole threads derived again."""
    rows = [(thread,) for thread in threads if thread is not None]
    txn.many("INSERT OR IGNORE INTO unstudied VALUES(?)", rows)


def _known(txn: WriteTxn, fresh: dict[Key, int], key: Key) -> int | None:
    found = fresh.get(key)
    return (
        found if found is not None else txn.value("SELECT id FROM records WHERE uuid = ?", (key,))
    )


def _said(ids: Ids, record: Record) -> tuple[object, ...]:
    return (
        ids.name(record.kind),
        ids.name(record.role),
        record.ts_ms,
        record.side,
        record.tokens,
    )


def _text_row(number: int, record: Record) -> list[Row]:
    return [(number, record.text, parts(record.text))] if record.text else []


_COPIES = (
    "SELECT c.file, c.off, c.len, c.digest, c.thread, c.rule, f.attached, f.session, f.path,"
    " f.generation, f.unsound"
    " FROM copies c JOIN files f ON f.id = c.file WHERE c.rec = ?"
)


def settle(txn: WriteTxn, ids: Ids, records: Iterable[int], fetch: Fetch, veil: Veil) -> None:
    """Derive records from their copies again; a record without copies is forgotten.

    Args:
        txn: The transaction that changed the copies.
        ids: Its interned texts.
        records: Ids of `records`.
        fetch: Reads a copy whose text has to be indexed anew.
        veil: What is not indexed.
    """
    threads: set[int | None] = set()
    for number in sorted(records):
        copies = txn.rows(_COPIES, (number,))
        if not copies:
            threads |= _drop(txn, number)
            continue
        best = _best(copies)
        pointer = (best[0], best[1], best[2], best[3], _thread(copies), best[7])
        now = txn.row(
            "SELECT file, off, len, digest, thread, session FROM records WHERE id = ?", (number,)
        )
        if now == pointer:
            continue
        if now is None or (now[3], now[4]) != (best[3], pointer[4]):
            threads |= {pointer[4], None if now is None else now[4]}
        txn.run(
            "UPDATE records SET file=?, off=?, len=?, digest=?, thread=?, session=? WHERE id = ?",
            (*pointer, number),
        )
        if now is not None and now[3] != best[3]:
            _index_again(txn, ids, number, best, fetch, veil)
    unstudied(txn, threads)


def _drop(txn: WriteTxn, number: int) -> set[int | None]:
    """Forget a record that has no copy; returns the thread it was in."""
    row = txn.row("SELECT uuid, thread FROM records WHERE id = ?", (number,))
    if row is None:
        return set()
    txn.run("DELETE FROM records WHERE id = ?", (number,))
    txn.run("DELETE FROM fts WHERE rowid = ?", (number,))
    txn.run("DELETE FROM citations WHERE from_uuid = ?", (row[0],))
    return {row[1]}


def _best(copies: list[Row]) -> Row:
    """The copy to read: longest; what the earliest generation says; a live one of those first.

    A prune may have given a copy other links in the same length, so among the longest it is
    the earliest generation that decides; its very bytes are read faster from a live file, and
    not at all from a generation that turned out to be damaged.
    """
    longest = max(c[2] for c in copies)
    candidates = [c for c in copies if c[2] == longest]
    sound = [c for c in candidates if not c[10]] or candidates
    original = min(sound, key=_earliest)[3]
    same = [c for c in sound if c[3] == original]
    return min(same, key=lambda c: (c[9] is not None, c[9] or 0, c[8], c[1]))


def _earliest(copy: Row) -> tuple[bool, int, bytes, int]:
    return (copy[9] is None, copy[9] or 0, copy[8], copy[1])


def _thread(copies: list[Row]) -> int | None:
    placed = [c for c in copies if c[4] is not None or c[6] is not None]
    if not placed:
        return None
    first = min(placed, key=lambda c: (c[5] if c[5] is not None else 9, *_earliest(c)))
    return int(first[4] if first[5] == PROMPT_ID_RULE or first[6] is None else first[6])


def _index_again(txn: WriteTxn, ids: Ids, number: int, best: Row, fetch: Fetch, veil: Veil) -> None:
    txn.run("DELETE FROM fts WHERE rowid = ?", (number,))
    data = fetch(best[8], best[1], best[2], best[3])
    if data is None:
        # The next reconcile tries again: a record is never left with another copy's text.
        txn.run("UPDATE records SET digest = NULL WHERE id = ?", (number,))
        return
    record = understand(decode_as(data, Envelope) or Envelope(), best[1], veil)
    txn.run(
        "UPDATE records SET kind=?, role=?, ts=?, side=?, tokens=? WHERE id = ?",
        (*_said(ids, record), number),
    )
    txn.many("INSERT INTO fts(rowid, body, parts) VALUES(?,?,?)", _text_row(number, record))
    name = txn.value("SELECT uuid FROM records WHERE id = ?", (number,))
    txn.run("DELETE FROM citations WHERE from_uuid = ?", (name,))
    rows = [(name, arc) for arc in record.arcs]
    txn.many("INSERT OR IGNORE INTO citations VALUES(?,?)", rows)


class Removed(NamedTuple):
    """What a removed file leaves behind to be derived again."""

    records: set[int]
    agents: set[str]
    session: int | None


def remove_file(txn: WriteTxn, path: str) -> Removed | None:
    """Take a file, its copies, damage and spawns out; None when the Map has no such file."""
    row = txn.row("SELECT id, session FROM files WHERE path = ?", (blob(path),))
    if row is None:
        return None
    number, session = row
    records = {int(r[0]) for r in txn.rows("SELECT rec FROM copies WHERE file = ?", (number,))}
    agents = {str(r[0]) for r in txn.rows("SELECT agent FROM spawns WHERE file = ?", (number,))}
    for table in ("copies", "damage", "spawns"):
        txn.run(f"DELETE FROM {table} WHERE file = ?", (number,))
    txn.run("DELETE FROM files WHERE id = ?", (number,))
    return Removed(records, agents, session)

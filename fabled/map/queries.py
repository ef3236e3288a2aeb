"""Questions to the Map about records, threads and files, each over one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AmbiguousId
from fabled.map.files import blob, unblob
from fabled.model import Pointer, Totals
from fabled.transcript.identity import BARE_BYTES, bare, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.map.db import Row, Snapshot
    from fabled.transcript.identity import Key


def totals(snapshot: Snapshot) -> Totals:
    """Count everything. Cost: one pass over `records`."""
    records, threads = snapshot.rows("SELECT count(*), count(DISTINCT thread) FROM records")[0]
    count, size = snapshot.rows(
        "SELECT count(*), coalesce(sum(size), 0) FROM files WHERE generation IS NULL"
    )[0]
    copies = snapshot.value(
        "SELECT count(*) FROM copies WHERE file IN (SELECT id FROM files WHERE generation IS NULL)"
    )
    sessions = snapshot.value("SELECT count(*) FROM sessions")
    return Totals(count, records, copies, threads, sessions, size)


_POINTER = (
    "SELECT r.id, r.uuid, f.stem, f.path, r.off, r.len, r.digest, r.thread, r.session,"
    " role.text, kind.text, r.ts, r.side, r.tokens FROM records r JOIN files f ON f.id = r.file"
    " JOIN names role ON role.id = r.role JOIN names kind ON kind.id = r.kind"
)


def _pointer(row: Row) -> Pointer:
    number, key, stem, path, offset = row[:5]
    nameless = _is_bare(key)
    name = bare(stem, offset) if nameless else unpack(key)
    facts = (*row[4:12], bool(row[12]), row[13], nameless)
    return Pointer._make([number, name, unblob(path), *facts])


def _is_bare(key: Key) -> bool:
    return isinstance(key, bytes) and len(key) == BARE_BYTES


def pointers(snapshot: Snapshot, records: Iterable[int]) -> dict[int, Pointer]:
    """The pointers of some records by id."""
    found: dict[int, Pointer] = {}
    wanted = list(records)
    for at in range(0, len(wanted), 500):
        some = wanted[at : at + 500]
        marks = ",".join("?" * len(some))
        for row in snapshot.rows(f"{_POINTER} WHERE r.id IN ({marks})", some):
            found[row[0]] = _pointer(row)
    return found


def record(snapshot: Snapshot, name: str) -> Pointer | None:
    """The record of a uuid, or of `<file stem>@<offset>` for one that has none."""
    row = snapshot.row(f"{_POINTER} WHERE r.uuid = ?", (pack(name),))
    if row is not None:
        return _pointer(row)
    stem, mark, offset = name.rpartition("@")
    if not mark or not offset.isascii() or not offset.isdigit() or len(offset) > 18:
        return None
    # The offset may be one in the live file, or in an image from before a prune.
    rows = snapshot.rows(
        f"{_POINTER} WHERE length(r.uuid) = {BARE_BYTES} AND typeof(r.uuid) = 'blob' AND r.id IN"
        " (SELECT c.rec FROM files s JOIN copies c ON c.file = s.id AND c.off = ?"
        "  WHERE s.stem = ?)",
        (int(offset), stem),
    )
    if len(rows) > 1:
        raise AmbiguousId(f"{name} names {len(rows)} records of files with the same name")
    return _pointer(rows[0]) if rows else None


def thread_key(snapshot: Snapshot, thread: int) -> str:
    """The key of a thread's row."""
    return str(snapshot.value("SELECT key FROM threads WHERE id = ?", (thread,)))


def thread_by_key(snapshot: Snapshot, text: str) -> int | None:
    """The thread of a key, or of the uuid inside one."""
    for key in (text, f"u:{text}", f"head:{text}"):
        found = snapshot.value(
            "SELECT id FROM threads t WHERE key = ?"
            " AND EXISTS(SELECT 1 FROM records WHERE thread = t.id)",
            (key,),
        )
        if found is not None:
            return int(found)
    return None


def thread_by_prefix(snapshot: Snapshot, text: str) -> int | None:
    """The only thread whose key, or the uuid in it, begins with a text.

    Raises:
        AmbiguousId: There are several.
    """
    found: dict[int, str] = {}
    for start in (text, f"u:{text}", f"head:{text}"):
        rows = snapshot.rows(
            "SELECT id, key FROM threads t WHERE key >= ? AND key < ?"
            " AND EXISTS(SELECT 1 FROM records WHERE thread = t.id) LIMIT 3",
            (start, start + "\U0010ffff"),
        )
        found.update((int(row[0]), str(row[1])) for row in rows)
    if len(found) > 1:
        some = ", ".join(sorted(found.values())[:3])
        raise AmbiguousId(f"{text} is the beginning of several threads: {some} ...")
    return next(iter(found), None)


def thread_records(snapshot: Snapshot, thread: int) -> list[Pointer]:
    """Every record of a thread: the ones of its largest file in file order, then the rest."""
    home = snapshot.row(
        "SELECT c.file FROM copies c JOIN records r ON r.id = c.rec JOIN files f ON f.id = c.file"
        " WHERE r.thread = ? GROUP BY c.file ORDER BY f.agent IS NOT NULL, count(*) DESC,"
        " f.generation IS NOT NULL, f.generation, f.path"
        " LIMIT 1",
        (thread,),
    )
    rows = snapshot.rows(
        f"{_POINTER} LEFT JOIN copies h ON h.file = ? AND h.rec = r.id WHERE r.thread = ?"
        " GROUP BY r.id ORDER BY h.off IS NULL, min(h.off), f.path, r.off",
        (home[0] if home else None, thread),
    )
    return [_pointer(row) for row in rows]


def session_records(snapshot: Snapshot, session: int) -> list[Pointer]:
    """The records of a session's main transcripts, by time and then by place."""
    rows = snapshot.rows(
        f"{_POINTER} WHERE r.id IN (SELECT c.rec FROM copies c JOIN files m ON m.id = c.file"
        " WHERE m.session = ? AND m.agent IS NULL) ORDER BY r.ts IS NULL, r.ts, r.off",
        (session,),
    )
    return [_pointer(row) for row in rows]


def keys_of_session(snapshot: Snapshot, session: int) -> set[str]:
    """The keys of the threads that have a record in a session."""
    rows = snapshot.rows(
        "SELECT DISTINCT t.key FROM records r JOIN threads t ON t.id = r.thread"
        " WHERE r.session = ?",
        (session,),
    )
    return {str(row[0]) for row in rows}


class Span(NamedTuple):
    """A thread in numbers."""

    thread: int
    key: str
    first_ms: int | None
    last_ms: int | None
    records: int
    turns: int
    tokens: int
    session: int | None


def thread_span(snapshot: Snapshot, thread: int) -> Span | None:
    """When a thread began and ended, its size, and the session it began in."""
    row = snapshot.row(
        "SELECT min(ts), max(ts), count(*), sum(role IN (SELECT id FROM names WHERE text IN"
        " ('user', 'assistant'))), sum(tokens) FROM records WHERE thread = ?",
        (thread,),
    )
    if row is None or not row[2]:
        return None
    session = snapshot.value(
        "SELECT r.session FROM records r JOIN sessions s ON s.id = r.session WHERE r.thread = ?"
        " ORDER BY r.ts IS NULL, r.ts, s.name LIMIT 1",
        (thread,),
    )
    return Span._make([thread, thread_key(snapshot, thread), *row, session])


class Session(NamedTuple):
    """A session's name, what its files say of it, and whether its transcript is there."""

    id: int
    name: str
    project: str | None
    folder: str | None
    title: str | None
    live: bool


def session(snapshot: Snapshot, number: int) -> Session | None:
    """The session of a row."""
    row = snapshot.row(
        "SELECT id, name, project, folder, title, EXISTS(SELECT 1 FROM files WHERE"
        " session = sessions.id AND agent IS NULL AND generation IS NULL)"
        " FROM sessions WHERE id = ?",
        (number,),
    )
    return None if row is None else Session._make([*row[:5], bool(row[5])])


def path_known(snapshot: Snapshot, path: str) -> bool:
    """Whether the Map has a file of this path."""
    return snapshot.value("SELECT 1 FROM files WHERE path = ?", (blob(path),)) is not None


def opening(snapshot: Snapshot, thread: int) -> Pointer | None:
    """The record a thread began with: the first user record by time, else the first of any."""
    row = snapshot.row(
        f"{_POINTER} WHERE r.thread = ? ORDER BY role.text <> 'user', r.ts IS NULL, r.ts, r.id"
        " LIMIT 1",
        (thread,),
    )
    return None if row is None else _pointer(row)

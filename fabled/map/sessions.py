"""Sessions as people list them: project, title, time, size, and whether the file is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AmbiguousId
from fabled.map.files import blob, unblob

if TYPE_CHECKING:
    from fabled.map.db import Row, Snapshot


class LiveRow(NamedTuple):
    """A live transcript as it was when it was last read."""

    path: str
    size: int
    mtime_ns: int
    session: str


class SessionRow(NamedTuple):
    """One line of `fablectl sessions`; `live_path` is None when the client deleted it."""

    id: int
    session: str
    project: str | None
    title: str | None
    first_ms: int | None
    last_ms: int | None
    threads: int
    records: int
    bytes: int
    live_path: str | None
    live: tuple[LiveRow, ...] = ()


_SESSION = (
    "SELECT s.id, s.name, s.project, s.title, min(r.ts), max(r.ts), count(DISTINCT r.thread),"
    " count(DISTINCT r.id),"
    " (SELECT coalesce(sum(size), 0) FROM files WHERE session = s.id AND generation IS NULL),"
    " (SELECT path FROM files WHERE session = s.id AND agent IS NULL AND generation IS NULL"
    " ORDER BY path LIMIT 1)"
    " FROM sessions s"
    " LEFT JOIN files f ON f.session = s.id LEFT JOIN copies c ON c.file = f.id"
    " LEFT JOIN records r ON r.id = c.rec"
)


def listing(snapshot: Snapshot, project: str | None = None) -> list[SessionRow]:
    """Every session, the latest first. Cost: one pass over `copies`."""
    where, values = project_filter(project)
    rows = snapshot.rows(
        f"{_SESSION} WHERE {where} GROUP BY s.id ORDER BY max(r.ts) DESC, s.name", values
    )
    live: dict[str, list[LiveRow]] = {}
    for file in live_files(snapshot):
        live.setdefault(file.session, []).append(file)
    return [_row(row, live.get(row[1], [])) for row in rows]


def _row(row: Row, live: list[LiveRow]) -> SessionRow:
    path = None if row[9] is None else unblob(row[9])
    return SessionRow._make([*row[:9], path, tuple(live)])


def one(snapshot: Snapshot, name: str) -> SessionRow | None:
    """The session of an id, or of an unambiguous beginning of one.

    Raises:
        AmbiguousId: Several sessions begin so.
    """
    rows = snapshot.rows("SELECT id FROM sessions WHERE name = ?", (name,))
    if not rows and name:
        rows = snapshot.rows(
            "SELECT id FROM sessions WHERE name >= ? AND name < ? LIMIT 2",
            (name, name + "\U0010ffff"),
        )
    if len(rows) > 1:
        raise AmbiguousId(f"{name} is the beginning of several sessions")
    if not rows:
        return None
    found = snapshot.rows(f"{_SESSION} WHERE s.id = ? GROUP BY s.id", rows[0])[0]
    return _row(found, live_files(snapshot, rows[0][0]))


def project_filter(project: str | None, column: str = "s.id") -> tuple[str, tuple[object, ...]]:
    """SQL that keeps the sessions of one project.

    An absolute path means exactly that working folder; anything else means the project
    folder's name, or the last parts of the working folder's path.
    """
    if project is None:
        return "1", ()
    inner = "SELECT id FROM sessions WHERE project = ?"
    if project.startswith("/"):
        return f"{column} IN ({inner})", (project.rstrip("/") or "/",)
    return (
        f"{column} IN ({inner} OR folder = ? OR substr(project, -length(?) - 1) = '/' || ?)",
        (project, project, project.rstrip("/"), project.rstrip("/")),
    )


class FileRow(NamedTuple):
    """One file of a session."""

    path: str
    kind: str
    bytes: int
    indexed_bytes: int
    records: int
    damage: int


def files_of(snapshot: Snapshot, session: int) -> list[FileRow]:
    """A session's files, the main one first."""
    rows = snapshot.rows(
        "SELECT path, CASE WHEN agent IS NULL THEN 'main' ELSE 'subagent' END, size, settled,"
        " (SELECT count(*) FROM copies WHERE file = files.id),"
        " (SELECT count(*) FROM damage WHERE file = files.id)"
        " FROM files WHERE session = ? AND generation IS NULL ORDER BY agent IS NOT NULL, path",
        (session,),
    )
    return [FileRow._make([unblob(row[0]), *row[1:]]) for row in rows]


class DamageRow(NamedTuple):
    """Bytes of a file that are no record."""

    path: str
    offset: int
    length: int
    line: int
    reason: str


def damage_of(snapshot: Snapshot, session: int) -> list[DamageRow]:
    """What the reader could not parse in a session's files."""
    rows = snapshot.rows(
        "SELECT f.path, d.off, d.len, d.line, d.reason FROM damage d JOIN files f ON f.id = d.file"
        " WHERE f.session = ? AND f.generation IS NULL ORDER BY f.path, d.off",
        (session,),
    )
    return [DamageRow._make([unblob(row[0]), *row[1:]]) for row in rows]


def threads_of(snapshot: Snapshot, session: int) -> list[int]:
    """The threads with a record in a session, in the order they began."""
    rows = snapshot.rows(
        "SELECT r.thread FROM files f JOIN copies c ON c.file = f.id JOIN records r ON r.id = c.rec"
        " WHERE f.session = ? AND r.thread IS NOT NULL"
        " GROUP BY r.thread ORDER BY min(r.ts), min(c.off)",
        (session,),
    )
    return [int(row[0]) for row in rows]


def live_files(snapshot: Snapshot, session: int | None = None) -> list[LiveRow]:
    """Every live transcript, agents' included; of one session, if one is given."""
    where, values = ("", ()) if session is None else (" AND f.session = ?", (session,))
    rows = snapshot.rows(
        "SELECT f.path, f.size, f.mtime_ns, s.name FROM files f"
        f" JOIN sessions s ON s.id = f.session WHERE f.generation IS NULL{where}"
        " ORDER BY f.agent IS NOT NULL, f.path",
        values,
    )
    return [LiveRow._make([unblob(row[0]), *row[1:]]) for row in rows]


def stems_of(snapshot: Snapshot, session: int) -> frozenset[str]:
    """Names, without suffix, of a session's own transcripts; an agent's only when it lies flat."""
    rows = snapshot.rows(
        "SELECT f.stem, s.name FROM files f JOIN sessions s ON s.id = f.session"
        " WHERE f.session = ? AND (f.agent IS NULL OR f.path NOT LIKE '%/subagents/%')",
        (session,),
    )
    return frozenset(str(name) for row in rows for name in row)


def paths_of(snapshot: Snapshot, session: int) -> list[str]:
    """Every file and strand of a session."""
    rows = snapshot.rows("SELECT path FROM files WHERE session = ? ORDER BY path", (session,))
    return [unblob(row[0]) for row in rows]


class MainRow(NamedTuple):
    """A live main transcript, as it was when it was last read."""

    path: str
    root: str
    folder: str
    size: int
    mtime_ns: int
    session: str
    project: str | None


def mains(snapshot: Snapshot) -> list[MainRow]:
    """Every live main transcript, the largest first."""
    rows = snapshot.rows(
        "SELECT f.path, f.root, f.folder, f.size, f.mtime_ns, s.name, s.project FROM files f"
        " JOIN sessions s ON s.id = f.session WHERE f.generation IS NULL AND f.agent IS NULL"
        " ORDER BY f.size DESC, f.path"
    )
    return [MainRow._make([unblob(row[0]), unblob(row[1]), *row[2:]]) for row in rows]


class QuietRow(NamedTuple):
    """A main transcript that has not changed for long."""

    path: str
    mtime_ns: int
    session: str
    project: str | None
    title: str | None
    bytes: int


def unchanged_since(snapshot: Snapshot, root: str, mtime_ns: int) -> list[QuietRow]:
    """Main transcripts below a root that were last changed before a moment."""
    rows = snapshot.rows(
        "SELECT f.path, f.mtime_ns, s.name, s.project, s.title, f.size FROM files f"
        " JOIN sessions s ON s.id = f.session"
        " WHERE f.root = ? AND f.agent IS NULL AND f.generation IS NULL AND f.mtime_ns < ?"
        " ORDER BY f.mtime_ns, f.path",
        (blob(root), mtime_ns),
    )
    return [QuietRow._make([unblob(row[0]), *row[1:]]) for row in rows]

"""The whole Map as comparable text: row numbers replaced by what they stand for."""

from __future__ import annotations

from fabled.transcript.identity import BARE_BYTES, unpack

_QUERIES = {
    "files": (
        "SELECT f.path, f.folder, s.name, f.agent, f.tool, t.key, f.settled, f.settled_line,"
        " f.tail, f.facts FROM files f LEFT JOIN sessions s ON s.id = f.session"
        " LEFT JOIN threads t ON t.id = f.attached"
    ),
    "sessions": "SELECT name, project, folder, title FROM sessions",
    "copies": (
        "SELECT f.path, c.off, c.len, r.uuid, c.line, t.key, c.rule, hex(c.digest) FROM copies c"
        " JOIN files f ON f.id = c.file JOIN records r ON r.id = c.rec"
        " LEFT JOIN threads t ON t.id = c.thread"
    ),
    "records": (
        "SELECT r.uuid, f.path, r.off, r.len, hex(r.digest), t.key, s.name, k.text, o.text, r.ts,"
        " r.side, r.tokens FROM records r LEFT JOIN files f ON f.id = r.file"
        " LEFT JOIN threads t ON t.id = r.thread LEFT JOIN sessions s ON s.id = r.session"
        " LEFT JOIN names k ON k.id = r.kind LEFT JOIN names o ON o.id = r.role"
    ),
    "spawns": "SELECT s.agent, f.path, s.off FROM spawns s JOIN files f ON f.id = s.file",
    "damage": (
        "SELECT f.path, d.off, d.reason, d.len, d.line FROM damage d JOIN files f ON f.id = d.file"
    ),
    # Every word of every record, by the place of its best copy: the index, without its row ids.
    "words": (
        "SELECT f.path, r.off, v.term, v.col, v.offset FROM inst v JOIN records r ON r.id = v.doc"
        " JOIN files f ON f.id = r.file"
    ),
    "citations": "SELECT from_uuid, ref FROM citations",
    "words of nobody": ("SELECT count(*) FROM inst v WHERE v.doc NOT IN (SELECT id FROM records)"),
}

_STUDIED = {
    "terms": (
        "SELECT h.key, w.kind, w.text, t.n FROM terms t JOIN words w ON w.id = t.word"
        " JOIN threads h ON h.id = t.thread"
    ),
    "vocabulary": "SELECT kind, text, threads FROM words",
    "cards": (
        "SELECT h.key, k.title, k.type, k.topics, k.decisions, k.files, k.outcome, k.summary,"
        " k.source, k.model, k.outdated FROM cards k JOIN threads h ON h.id = k.thread"
    ),
    "unstudied": "SELECT thread FROM unstudied",
}


def studied(snapshots):
    """The same for what is derived from whole threads."""
    with snapshots.snapshot() as snapshot:
        return {name: _rows(snapshot, sql) for name, sql in _STUDIED.items()}


def dump(snapshots):
    """Table name -> its rows, sorted, free of anything that depends on the order of indexing."""
    with snapshots.snapshot() as snapshot:
        connection = snapshot._connection
        connection.execute("PRAGMA query_only = OFF")
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.inst USING fts5vocab(main, fts, instance)"
        )
        found = {name: _rows(snapshot, sql) for name, sql in _QUERIES.items()}
        connection.execute("DROP TABLE temp.inst")
    return found


def _rows(snapshot, sql):
    return sorted((tuple(_plain(value) for value in row) for row in snapshot.rows(sql)), key=repr)


def _plain(value):
    if isinstance(value, bytes):
        if len(value) == BARE_BYTES and not value.startswith(b"/"):
            return value.hex()
        return unpack(value) if len(value) == 16 else value.decode("utf-8", "surrogateescape")
    return value

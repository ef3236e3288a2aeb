"""The Map's tables, and the numbered, named steps that lead to them.

`copies` is ground truth: every occurrence of every record in every file. `records`
holds what is derived from it: the best pointer (see `map.store.settle`), the thread,
and what the best copy says. The Map is disposable; nothing lives only here that the
transcripts and the Vault cannot give back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import MapTooNew
from fabled.map.db import FULL_TEXT

if TYPE_CHECKING:
    from fabled.map.db import Snapshot, Writer, WriteTxn


class Migration(NamedTuple):
    """One step, applied in one transaction; its place in the list is its number."""

    name: str
    statements: tuple[str, ...]


_DERIVED = ("copies", "records", "spawns", "damage", "files", "threads", "sessions")

MIGRATIONS = (
    Migration(
        "first tables",
        (
            """CREATE TABLE migrations(
                number INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL)""",
            "CREATE TABLE names(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
            """CREATE TABLE sessions(
                id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
                project TEXT, folder TEXT, title TEXT)""",
            "CREATE TABLE threads(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE)",
            """CREATE TABLE files(
                id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, root BLOB NOT NULL,
                folder TEXT NOT NULL, session INTEGER REFERENCES sessions(id),
                agent TEXT, tool TEXT, meta TEXT, attached INTEGER REFERENCES threads(id),
                dev INTEGER, ino INTEGER, size INTEGER, mtime_ns INTEGER,
                settled INTEGER, settled_line INTEGER, fingerprint BLOB,
                tail TEXT, facts TEXT)""",
            "CREATE INDEX files_agent ON files(agent) WHERE agent IS NOT NULL",
            "CREATE INDEX files_tool ON files(tool) WHERE tool IS NOT NULL",
            "CREATE INDEX files_session ON files(session)",
            """CREATE TABLE records(
                id INTEGER PRIMARY KEY, uuid UNIQUE, file INTEGER, off INTEGER, len INTEGER,
                digest BLOB, thread INTEGER, session INTEGER, kind INTEGER, role INTEGER,
                ts INTEGER, side INTEGER, tokens INTEGER)""",
            "CREATE INDEX records_thread ON records(thread, id)",
            "CREATE INDEX records_stale ON records(id) WHERE digest IS NULL",
            """CREATE TABLE copies(
                file INTEGER NOT NULL, off INTEGER NOT NULL, len INTEGER NOT NULL,
                rec INTEGER NOT NULL, line INTEGER NOT NULL, thread INTEGER, rule INTEGER,
                digest BLOB NOT NULL, PRIMARY KEY(file, off)) WITHOUT ROWID""",
            "CREATE INDEX copies_rec ON copies(rec)",
            """CREATE TABLE spawns(
                agent TEXT NOT NULL, file INTEGER NOT NULL, off INTEGER NOT NULL,
                PRIMARY KEY(agent, file, off)) WITHOUT ROWID""",
            "CREATE INDEX spawns_file ON spawns(file, off)",
            """CREATE TABLE damage(
                file INTEGER NOT NULL, off INTEGER NOT NULL, reason TEXT NOT NULL,
                len INTEGER NOT NULL, line INTEGER NOT NULL,
                PRIMARY KEY(file, off, reason)) WITHOUT ROWID""",
            """CREATE VIRTUAL TABLE fts USING fts5(
                body, parts, content='', contentless_delete=1,
                tokenize='porter unicode61 remove_diacritics 2')""",
            # One large in-memory hash a transaction instead of many small segments; merges are
            # spread, so that no single commit pays for them (measured: p99 11 ms -> 0.7 ms).
            "INSERT INTO fts(fts, rank) VALUES('hashsize', 33554432)",
            "INSERT INTO fts(fts, rank) VALUES('automerge', 16)",
        ),
    ),
    Migration(
        "generations of the Vault",
        (
            # Records without uuid get another key: everything is read again.
            *(f"DELETE FROM {table}" for table in _DERIVED),
            "INSERT INTO fts(fts) VALUES('delete-all')",
            "ALTER TABLE files ADD COLUMN generation INTEGER",  # its number; NULL: a live file
            "ALTER TABLE files ADD COLUMN stem TEXT",  # the live file's name without suffix
            "CREATE INDEX files_stem ON files(stem)",
        ),
    ),
    Migration(
        "strands that cannot be read",
        ("ALTER TABLE files ADD COLUMN unsound INTEGER NOT NULL DEFAULT 0",),
    ),
    Migration(
        "terms, citations and cards",
        (
            # Who cites whom, and what is a secret, is told by the records themselves.
            *(f"DELETE FROM {table}" for table in _DERIVED),
            "INSERT INTO fts(fts) VALUES('delete-all')",
            "CREATE TABLE settings(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
            """CREATE TABLE citations(
                from_uuid NOT NULL, ref TEXT NOT NULL,
                PRIMARY KEY(from_uuid, ref)) WITHOUT ROWID""",
            "CREATE INDEX citations_ref ON citations(ref)",
            """CREATE TABLE words(
                id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, text TEXT NOT NULL,
                threads INTEGER NOT NULL, UNIQUE(kind, text))""",
            "CREATE INDEX words_fold ON words(kind, text COLLATE NOCASE)",
            """CREATE TABLE terms(
                thread INTEGER NOT NULL, word INTEGER NOT NULL, n INTEGER NOT NULL,
                PRIMARY KEY(thread, word)) WITHOUT ROWID""",
            "CREATE INDEX terms_word ON terms(word, thread)",
            """CREATE TABLE cards(
                thread INTEGER PRIMARY KEY, title TEXT NOT NULL, type TEXT NOT NULL,
                topics TEXT NOT NULL, decisions TEXT NOT NULL, files TEXT NOT NULL,
                outcome TEXT NOT NULL, summary TEXT NOT NULL, source TEXT NOT NULL,
                model TEXT, outdated INTEGER NOT NULL)""",
            """CREATE VIRTUAL TABLE card_fts USING fts5(
                body, parts, content='', contentless_delete=1,
                tokenize='porter unicode61 remove_diacritics 2')""",
            "CREATE TABLE unstudied(thread INTEGER PRIMARY KEY)",
        ),
    ),
)
VERSION = len(MIGRATIONS)


_STUDIED = ("citations", "words", "terms", "cards", "unstudied")


def agree(txn: WriteTxn, name: str, value: str) -> bool:
    """Empty the Map when what it holds was taken in under another setting.

    Returns:
        Whether it was emptied.
    """
    known = txn.value("SELECT value FROM settings WHERE name = ?", (name,))
    if known == value:
        return False
    txn.run("INSERT OR REPLACE INTO settings VALUES(?, ?)", (name, value))
    if known is None:
        return False
    for table in (*_DERIVED, *_STUDIED):
        txn.run(f"DELETE FROM {table}")
    for index in FULL_TEXT:
        txn.run(f"INSERT INTO {index}({index}) VALUES('delete-all')")
    return True


def number(snapshot: Snapshot) -> int:
    """The schema number of a database; 0 for an empty one."""
    return int(snapshot.value("PRAGMA user_version"))


def migrate(writer: Writer, version: str) -> list[str]:
    """Bring the Map to this program's schema, one step a transaction.

    Returns:
        The names of the steps applied.

    Raises:
        MapTooNew: A newer fabled wrote it.
    """
    applied: list[str] = []
    while True:
        with writer.transaction() as txn:
            at = number(txn)
            if at > VERSION:
                raise MapTooNew(
                    f"the Map {txn.path} has schema {at}; this fabled knows up to {VERSION}"
                )
            if at == VERSION:
                return applied
            _apply(txn, at + 1, MIGRATIONS[at], version)
            applied.append(MIGRATIONS[at].name)


def _apply(txn: WriteTxn, at: int, step: Migration, version: str) -> None:
    for statement in step.statements:
        txn.run(statement)
    txn.run("INSERT INTO migrations VALUES(?, ?, ?)", (at, step.name, version))
    txn.run(f"PRAGMA user_version = {at}")

"""Rows of `files` and `sessions`: what is known of each transcript, and of each session."""

from __future__ import annotations

import json
import os.path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.transcript.identity import clean
from fabled.transcript.records import TITLE_ORDER

if TYPE_CHECKING:
    from fabled.map.db import Row, Snapshot, WriteTxn
    from fabled.transcript.records import Record

CLEAN, TENTATIVE, PENDING = "clean", "tentative", "pending"
"""What stands after the last newline: nothing, whole records, or a write under way."""


class Facts(msgspec.Struct, omit_defaults=True):
    """What a file's records say about the whole: the first or the last one counts."""

    cwd: str | None = None
    session: str | None = None
    titles: dict[str, str] = msgspec.field(default_factory=dict)

    def learn(self, record: Record) -> None:
        """Take in the next record of the file, in file order."""
        self.cwd = self.cwd or record.cwd
        self.session = self.session or record.session
        if record.title is not None:
            kind, text = record.title
            if kind != "first_prompt" or kind not in self.titles:
                self.titles[kind] = text

    def title(self) -> str | None:
        """The title the client would show."""
        return next((self.titles[kind] for kind in TITLE_ORDER if kind in self.titles), None)


class Subject(NamedTuple):
    """What is being read: a live transcript, or a strand of its generations.

    Attributes:
        root: The live file's projects folder, or the Vault's folder.
        session: As its place says; None for an old flat agent file.
        agent: Key of the agent whose transcript it is.
        scope: Path of the live project folder: agents' ids are only unique below it.
    """

    path: str
    root: str
    folder: str
    session: str | None
    agent: str | None
    generation: int | None
    stem: str
    scope: str


class FileRow(NamedTuple):
    """One row of `files`; `path` as the operating system's text.

    Attributes:
        agent: Key of the agent whose transcript it is; None for a main one.
        tool: Key of the tool call that started the agent, from its description.
        meta: State of that description when it was read; None where there was none.
        attached: The thread that spawned the agent.
        generation: Number of a strand's first own generation; None for a live file.
        stem: The live file's name without suffix.
        settled: Where the next reading of a grown file begins.
    """

    id: int
    path: str
    root: str
    folder: str
    session: int | None
    agent: str | None
    tool: str | None
    meta: str | None
    attached: int | None
    generation: int | None
    stem: str
    dev: int
    ino: int
    size: int
    mtime_ns: int
    settled: int
    settled_line: int
    fingerprint: bytes
    tail: str
    facts: Facts


_COLUMNS = (
    "id, path, root, folder, session, agent, tool, meta, attached, generation, stem,"
    " dev, ino, size, mtime_ns, settled, settled_line, fingerprint, tail, facts"
)


def blob(path: str) -> bytes:
    """A path as the bytes the Map keeps: any name a file can have."""
    return os.fsencode(path)


def load(snapshot: Snapshot, path: str) -> FileRow | None:
    """The row of one transcript."""
    row = snapshot.row(f"SELECT {_COLUMNS} FROM files WHERE path = ?", (blob(path),))
    return None if row is None else _row(row)


def every(snapshot: Snapshot, root: str | None = None) -> list[FileRow]:
    """The rows of all transcripts, or of those below one root, in path order."""
    where, values = ("", ()) if root is None else ("WHERE root = ?", (blob(root),))
    rows = snapshot.rows(f"SELECT {_COLUMNS} FROM files {where} ORDER BY path", values)
    return [_row(row) for row in rows]


def below(snapshot: Snapshot, folder: str) -> list[str]:
    """The paths of all transcripts below a folder."""
    start = blob(folder) + b"/"
    rows = snapshot.rows(
        "SELECT path FROM files WHERE path > ? AND path < ?", (start, start[:-1] + b"0")
    )
    return [unblob(row[0]) for row in rows]


def unblob(path: bytes) -> str:
    """A path as the operating system's text."""
    return os.fsdecode(path)


def records_of(snapshot: Snapshot, file: int) -> set[int]:
    """The records that have a copy in one file."""
    return {int(row[0]) for row in snapshot.rows("SELECT rec FROM copies WHERE file = ?", (file,))}


def set_tool(txn: WriteTxn, file: int, tool: str | None) -> None:
    """Note which tool call started the agent of this file."""
    txn.run("UPDATE files SET tool = ? WHERE id = ?", (tool, file))


def mark(txn: WriteTxn, path: str, *, unsound: bool) -> set[int]:
    """Note whether a strand can be read; returns the records to settle, if that is news."""
    row = txn.row("SELECT id, unsound FROM files WHERE path = ?", (blob(path),))
    if row is None or bool(row[1]) == unsound:
        return set()
    txn.run("UPDATE files SET unsound = ? WHERE id = ?", (int(unsound), row[0]))
    return records_of(txn, row[0])


def _row(row: Row) -> FileRow:
    values = list(row)
    values[1], values[2] = os.fsdecode(values[1]), os.fsdecode(values[2])
    values[-1] = msgspec.json.decode(str(values[-1]), type=Facts)
    return FileRow(*values)


def save(txn: WriteTxn, row: FileRow) -> None:
    """Write every column of an existing row but its path."""
    txn.run(
        "UPDATE files SET session = ?, tool = ?, meta = ?, attached = ?, dev = ?, ino = ?,"
        " size = ?, mtime_ns = ?, settled = ?, settled_line = ?, fingerprint = ?, tail = ?,"
        " facts = ? WHERE id = ?",
        (row.session, *row[6:9], *row[11:19], facts_json(row.facts), row.id),
    )


def facts_json(facts: Facts) -> str:
    """The facts as stored: the same text for the same facts."""
    return json.dumps(msgspec.to_builtins(facts), sort_keys=True, ensure_ascii=False)


def add(txn: WriteTxn, subject: Subject) -> FileRow:
    """A row for a transcript seen for the first time, nothing of it read yet."""
    path, root, folder = subject.path, subject.root, clean(subject.folder)
    agent, stem = subject.agent and clean(subject.agent), clean(subject.stem)
    number = txn.insert(
        "INSERT INTO files(path, root, folder, agent, generation, stem, tail, facts)"
        " VALUES(?, ?, ?, ?, ?, ?, ?, '{}')",
        (blob(path), blob(root), folder, agent, subject.generation, stem, CLEAN),
    )
    return FileRow(
        id=number,
        path=path,
        root=root,
        folder=folder,
        session=None,
        agent=agent,
        tool=None,
        meta=None,
        attached=None,
        generation=subject.generation,
        stem=stem,
        dev=0,
        ino=0,
        size=0,
        mtime_ns=0,
        settled=0,
        settled_line=0,
        fingerprint=b"",
        tail=CLEAN,
        facts=Facts(),
    )


def session_id(txn: WriteTxn, name: str) -> int:
    """The id of a session by the name its files carry."""
    name = clean(name)
    found = txn.value("SELECT id FROM sessions WHERE name = ?", (name,))
    if found is None:
        return txn.insert("INSERT INTO sessions(name) VALUES(?)", (name,))
    return int(found)


def refresh_session(txn: WriteTxn, session: int) -> None:
    """Derive a session's project and title from its files; forget it when it has none.

    The project is the working folder its records name, never a decoded folder name: the
    first main file by path that names one, live before sealed, then the first agent file.
    """
    rows = txn.rows(
        "SELECT folder, facts FROM files WHERE session = ? ORDER BY agent IS NOT NULL,"
        " generation IS NOT NULL, generation DESC, path",
        (session,),
    )
    if not rows:
        txn.run("DELETE FROM sessions WHERE id = ?", (session,))
        return
    facts = [msgspec.json.decode(str(row[1]), type=Facts) for row in rows]
    project = next((fact.cwd for fact in facts if fact.cwd), None)
    title = next((text for text in (fact.title() for fact in facts) if text), None)
    txn.run(
        "UPDATE sessions SET project = ?, folder = ?, title = ? WHERE id = ?",
        (project or rows[0][0], rows[0][0], title, session),
    )

"""Values that cross from one package to another. No behaviour beyond themselves."""

from __future__ import annotations

from typing import NamedTuple


class Damage(NamedTuple):
    """Bytes of a transcript that are no record: reported, kept in the file, never fatal.

    Attributes:
        line: Newlines before it in the file.
        reason: broken (does not decode), nul (a run of NUL bytes) or value (JSON, but no
            object).
    """

    offset: int
    length: int
    line: int
    reason: str


class Placement(NamedTuple):
    """The thread of one copy of a record, and the rule of `transcript.threads` that placed it."""

    key: str
    rule: int


class Pointer(NamedTuple):
    """One record and where its best copy lies.

    Attributes:
        id: The record's row in the Map.
        name: Its uuid; `<file stem>@<offset>` where it has none.
        digest: None when the Map knows that the bytes behind the pointer have changed.
        ts_ms: UTC epoch milliseconds.
        side: It is part of a subagent's conversation.
        tokens: Estimate, four characters a token.
        bare: It has no uuid.
    """

    id: int
    name: str
    path: str
    offset: int
    length: int
    digest: bytes | None
    thread: int | None
    session: int | None
    role: str
    kind: str
    ts_ms: int | None
    side: bool
    tokens: int
    bare: bool = False


class Filter(NamedTuple):
    """What a search is restricted to; None means no restriction.

    Attributes:
        project: An absolute working folder, or a folder's name or the end of its path.
        session: The session's row in the Map.
        side: Only subagents' records, or only the others.
        terms: (kind, term) pairs that the thread has to have, every one of them.
        type: Of the thread's card.
    """

    project: str | None = None
    session: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    side: bool | None = None
    terms: tuple[tuple[str, str], ...] = ()
    type: str | None = None


class Hit(NamedTuple):
    """One record that matches a question: larger scores are better."""

    record: int
    score: float
    thread: int | None
    session: int | None
    ts_ms: int | None


class Scope(NamedTuple):
    """What was searched."""

    records: int
    threads: int
    sessions: int
    first_ms: int | None
    last_ms: int | None


class Totals(NamedTuple):
    """What the Map holds."""

    files: int
    records: int
    copies: int
    threads: int
    sessions: int
    bytes: int


class Card(NamedTuple):
    """What a thread was about, in short; derived from it or written by a model: never a source.

    Attributes:
        type: decision, workflow, insight or concept.
        source: extractive, manual, or the provider that wrote it.
        outdated: The thread changed much since it was written.
    """

    title: str
    type: str
    topics: tuple[str, ...]
    decisions: tuple[str, ...]
    files: tuple[str, ...]
    outcome: str
    summary: str
    source: str
    model: str | None = None
    outdated: bool = False

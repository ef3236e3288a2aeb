"""Cards that a model or a person wrote: small durable files, one a thread, read by a rebuild."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.errors import AccessDenied
from fabled.model import Card

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.system import Files

LIMIT = 1 << 20
CHANGED_MUCH = 1.5
"""A card is outdated when its thread is so many times as long, or has shrunk so much."""


class Kept(NamedTuple):
    """A card and how long its thread was, in tokens, when it was written."""

    card: Card
    tokens: int


class _Stored(msgspec.Struct):
    thread: str
    tokens: int
    title: str
    type: str
    topics: list[str]
    decisions: list[str]
    files: list[str]
    outcome: str
    summary: str
    source: str
    model: str | None = None


class CardShelf:
    """Safe to share between threads: each file is replaced whole.

    Args:
        files: The file system.
        folder: Where the files are; made when the first card comes.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def put(self, thread: str, card: Card, tokens: int) -> None:
        """Keep a card for a thread, in place of the one before. Durable when it returns."""
        self._files.make_private_dir(self._folder)
        fields = card._asdict()
        del fields["outdated"]
        value = {"thread": thread, "tokens": tokens, **fields}
        self._files.write_private(self._path(thread), json.dumps(value, indent=1).encode())

    def get(self, thread: str) -> Kept | None:
        """The card of a thread; None when there is none, or its file is damaged."""
        data = self._files.read_small(self._path(thread), LIMIT)
        if data is None:
            return None
        try:
            stored = msgspec.json.decode(data, type=_Stored)
        except msgspec.DecodeError:
            return None  # it can be written again; the thread still has its extractive one
        if stored.thread != thread:
            return None
        card = Card(
            title=stored.title,
            type=stored.type,
            topics=tuple(stored.topics),
            decisions=tuple(stored.decisions),
            files=tuple(stored.files),
            outcome=stored.outcome,
            summary=stored.summary,
            source=stored.source,
            model=stored.model,
        )
        return Kept(card, stored.tokens)

    def drop(self, thread: str) -> bool:
        """Remove a thread's card; False when there was none."""
        return self._files.remove(self._path(thread))

    def threads(self) -> Iterator[str]:
        """The threads that have a card here."""
        try:
            entries = self._files.scan(self._folder) if self._files.stat(self._folder) else []
        except AccessDenied:
            entries = []
        for entry in entries:
            data = self._files.read_small(entry.path, LIMIT) if entry.kind == "file" else None
            value = _thread_in(data)
            if value is not None:
                yield value

    def _path(self, thread: str) -> str:
        name = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        return f"{self._folder}/{name}.json"


def _thread_in(data: bytes | None) -> str | None:
    try:
        return msgspec.json.decode(data or b"", type=_Stored).thread
    except msgspec.DecodeError:
        return None


def current(kept: Kept, tokens: int) -> Card:
    """The card, marked when its thread changed much since it was written."""
    changed = tokens > kept.tokens * CHANGED_MUCH + 200 or tokens * CHANGED_MUCH < kept.tokens
    return kept.card._replace(outdated=changed)

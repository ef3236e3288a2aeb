"""What a prune is asked for, what it will do, and why it will not: values only."""

from __future__ import annotations

from typing import NamedTuple, Protocol

TRANSPARENT, LEAN = "transparent", "lean"
LEVELS = (TRANSPARENT, LEAN)
RESUME, EXTRACT = "resume", "extract"
MODES = (RESUME, EXTRACT)


class Source(Protocol):
    """Bytes that can be read at any offset."""

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes of a range, shorter only where they end."""


class Options(NamedTuple):
    """How to prune.

    Attributes:
        keep_prompts: The last so many prompts, and all after them, are left alone by the
            rules of the lean level.
        key: The home's sentinel key: it tells recalled text from what only looks like it.
    """

    level: str
    mode: str
    keep_prompts: int
    key: bytes


class Saving(NamedTuple):
    """What one rule takes out: records touched or dropped, and bytes."""

    rule: str
    records: int
    bytes: int


class Edit(NamedTuple):
    """Bytes of the image to be replaced by others, never more of them.

    A dropped record is its whole line, newline included, replaced by nothing.
    """

    offset: int
    length: int
    data: bytes


class Plan(NamedTuple):
    """The decision about one image.

    Attributes:
        size: Bytes of the image it is about.
        edits: In file order, none overlapping another.
        evicted: Uuids that the new image no longer holds: nothing appended since may name one.
        after_bytes: Size of the new image.
    """

    size: int
    edits: tuple[Edit, ...]
    savings: tuple[Saving, ...]
    evicted: frozenset[str]
    after_bytes: int


class Decline(NamedTuple):
    """Why this transcript is left alone: one word for machines, one sentence for people."""

    reason: str
    message: str

"""The values on one line that the fast path refuses: spans in bytes, damage named."""

from __future__ import annotations

import re
from typing import NamedTuple

from fabled.transcript.envelope import Envelope
from fabled.transcript.shallow import Scanned
from fabled.transcript.tolerant import Deep, fill, to_bytes, value_at

MAX_ATTEMPTS = 10_000
MAX_WORK = 64 << 20
"""Failed tries to find further records on one damaged line, and characters looked through
in vain on it (one counts more where they are too deep for the standard library). A line
that needs more is dropped from there on, as one piece of damage: hostile bytes cost
seconds, not hours."""

_SKIP = re.compile("[ \t\r\0]*")
_NULS = re.compile("\0+")
_OPENING = re.compile('\\{(?=[ \t\r]*+")')
"""Where an object with a member may begin."""


class Piece(NamedTuple):
    """Part of a line: a record (`envelope`), or damage (`reason`), by byte offsets."""

    start: int
    end: int
    envelope: Envelope | None
    reason: str


class Parsed(NamedTuple):
    """A line in pieces.

    Attributes:
        values: How many JSON values it holds.
        broken: How many fragments of it are no JSON.
        torn: Byte offset from which on it does not decode, None when all of it does. Set
            only when the line was said to be unfinished; nothing from there on is in pieces.
    """

    pieces: list[Piece]
    values: int
    broken: int
    torn: int | None


def parse_line(line: bytes, *, finished: bool) -> Parsed:
    """Take a line apart by the counting rules of the format's measurements.

    Args:
        line: Without its newline.
        finished: It ended with a newline; otherwise it may be a write under way.
    """
    return _Line(line, finished=finished).parse()


class _Line:
    def __init__(self, line: bytes, *, finished: bool) -> None:
        self._text = line.decode("utf-8", "surrogateescape")
        self._same = len(self._text) == len(line)
        self._finished = finished
        self._known = (0, 0)
        self._pieces: list[Piece] = []
        self._values = 0
        self._broken = 0
        self._attempts = 0
        self._work = 0
        self._torn: int | None = None

    def _byte(self, index: int) -> int:
        """The byte offset of a character; indexes are asked for in rising order."""
        if self._same:
            return index
        at, offset = self._known
        offset += len(to_bytes(self._text[at:index]))
        self._known = (index, offset)
        return offset

    def parse(self) -> Parsed:
        at = 0
        while at < len(self._text):
            at = self._skip(at)
            if at < len(self._text):
                at = self._value(at)
        return Parsed(self._pieces, self._values, self._broken, self._torn)

    def _skip(self, at: int) -> int:
        found = _SKIP.match(self._text, at)
        end = found.end() if found else at
        for run in _NULS.finditer(self._text, at, end):
            self._piece(run.start(), run.end(), None, "nul")
        return end

    def _piece(self, start: int, end: int, envelope: Envelope | None, reason: str) -> None:
        self._pieces.append(Piece(self._byte(start), self._byte(end), envelope, reason))

    def _value(self, at: int) -> int:
        found = value_at(self._text, at)
        if found.broken:
            self._work += found.end - at
            return self._resync(at)
        self._values += 1
        envelope = fill(Envelope, found.value)
        self._piece(at, found.end, envelope, "" if envelope is not None else "value")
        return found.end

    def _resync(self, at: int) -> int:
        """Drop what does not decode, up to the next whole record of the line, or all of it."""
        self._broken += 1
        for opening in _OPENING.finditer(self._text, at + 1):
            candidate = opening.start()
            if self._attempts >= MAX_ATTEMPTS or self._work > MAX_WORK:
                break
            found = value_at(self._text, candidate)
            if not found.broken and _has_type(found.value):
                self._piece(at, candidate, None, "broken")
                return candidate
            self._attempts += 1
            self._work += found.end - candidate
        if self._finished:
            self._piece(at, len(self._text), None, "broken")
        else:
            self._torn = self._byte(at)
        return len(self._text)


def _has_type(value: object) -> bool:
    if isinstance(value, Deep):
        scanned = value.scanned
        return isinstance(scanned, Scanned) and any(part.key == "type" for part in scanned.members)
    return isinstance(value, dict) and "type" in value

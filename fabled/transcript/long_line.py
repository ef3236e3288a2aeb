"""A line too long to be held: its objects' spans and small members, found in passing."""

from __future__ import annotations

import re
from typing import NamedTuple

from fabled.transcript.envelope import Envelope
from fabled.transcript.tolerant import fill, value_at

SMALL = 65536
"""Longest scalar that is kept."""

_IN_STRING = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["{}\[\],:\0]')
_BLANK = re.compile(rb"[ \t\r\0]*")


class LongPiece(NamedTuple):
    """A record or damage on a long line; offsets count from the line's beginning."""

    start: int
    end: int
    envelope: Envelope | None
    reason: str


class LongLine:
    """Fed a line piece by piece; holds only scalars shorter than `SMALL`.

    It follows strings and brackets and trusts what lies between them: a line that is
    damaged otherwise is taken for a record whose members cannot be read.
    """

    def __init__(self) -> None:
        self._at = 0
        self._open: list[int] = []
        self._in_string = False
        self._escaped = False
        self._start = 0
        self._text_start = 0
        self._held = bytearray()
        self._holding = False
        self._key = b""
        self._members: dict[str, object] = {}
        self._bad_from: int | None = None
        self.pieces: list[LongPiece] = []

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        at = 0
        while at < len(data):
            at = self._string(data, at) if self._in_string else self._structure(data, at)
        self._at += len(data)

    def finish(self) -> None:
        """The line is over: what is still open is damage."""
        if self._open or self._in_string:
            self._bad_from = self._start if self._bad_from is None else self._bad_from
        if self._bad_from is not None:
            self.pieces.append(LongPiece(self._bad_from, self._at, None, "broken"))

    def _string(self, data: bytes, at: int) -> int:
        if self._escaped:
            self._hold(data[at : at + 1])
            self._escaped = False
            return at + 1
        found = _IN_STRING.search(data, at)
        if found is None:
            self._hold(data[at:])
            return len(data)
        self._hold(data[at : found.end()])
        if found.group() == b"\\":
            self._escaped = True
        else:
            self._in_string = False
        return found.end()

    def _structure(self, data: bytes, at: int) -> int:
        found = _OUTSIDE.search(data, at)
        end = found.start() if found else len(data)
        if self._open:
            self._hold(data[at:end])
        elif _BLANK.fullmatch(data, at, end) is None:
            self._bad(at)
        if found is None:
            return end
        self._mark(found.group(), end)
        return found.end()

    def _mark(self, mark: bytes, at: int) -> None:
        if mark == b'"':
            self._in_string = True
            self._hold(mark)
            if not self._open:
                self._bad(at)
        elif mark in b"{[":
            self._enter(mark[0], at)
        elif mark in b"}]":
            self._leave(mark[0], at)
        elif len(self._open) == 1:
            self._separate(mark)
        elif not self._open and mark != b"\0":
            self._bad(at)

    def _enter(self, byte: int, at: int) -> None:
        if not self._open:
            self._start = self._at + at
            self._members = {}
            if byte != ord("{"):
                self._bad(at)
        self._holding = not self._open
        self._open.append(byte)
        self._held.clear()

    def _leave(self, byte: int, at: int) -> None:
        if not self._open or self._open.pop() != byte - 2:
            self._bad(at)
            self._open.clear()
            return
        if self._open:
            return
        self._member()
        if self._bad_from is None:
            end = self._at + at + 1
            envelope = fill(Envelope, self._members) or Envelope()
            self.pieces.append(LongPiece(self._start, end, envelope, ""))

    def _separate(self, mark: bytes) -> None:
        if mark == b":":
            self._key = bytes(self._held)
        elif mark == b",":
            self._member()
        self._held.clear()
        self._holding = True

    def _member(self) -> None:
        """Keep the member just passed if its value is a short scalar."""
        if self._holding and 0 < len(self._held) <= SMALL:
            key = value_at(self._key.decode("utf-8", "surrogateescape").strip(), 0)
            text = bytes(self._held).decode("utf-8", "surrogateescape").strip()
            value = value_at(text, 0)
            if isinstance(key.value, str) and not value.broken and value.end == len(text):
                self._members[key.value] = value.value
        self._held.clear()

    def _hold(self, data: bytes) -> None:
        if not self._holding or len(self._open) != 1:
            return
        if len(self._held) + len(data) > SMALL:
            self._holding = False
            self._held.clear()
            return
        self._held += data

    def _bad(self, at: int) -> None:
        if self._bad_from is None:
            self._bad_from = self._at + at

"""A line too long to be held: its values' spans and small members, found in passing.

A strict check of the whole line without building anything. It cannot go back, so there is
no looking for further records after a fault: from the value it is in to the line's end is
one piece of damage.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import msgspec

from fabled.transcript.envelope import Envelope
from fabled.transcript.tolerant import fill, value_at

SMALL = 65536
"""Longest scalar that is kept, and longest number that is understood."""

MAX_KEPT = 32 << 20
MAX_DEPTH = 1 << 20
"""Bytes kept of one line, and levels followed: beyond either, the rest counts as broken."""

_PIECE_COST = 512

_BLANK = re.compile(rb"[ \t\r]*+")
_NULS = re.compile(rb"\0++")
_INSIDE = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_WORD = re.compile(rb"[-+.0-9A-Za-z]++")
_SCALAR = re.compile(
    rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+|true|false|null|NaN|-?Infinity"
)
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OBJECT, _ARRAY = b"{["
_CLOSERS = b"}]"
_ESCAPE_BYTES = 6

_TOP, _VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _NAMED, _AFTER = range(7)


class LongPiece(NamedTuple):
    """A record or damage on a long line; offsets count from the line's beginning."""

    start: int
    end: int
    envelope: Envelope | None
    reason: str


class LongLine:
    """Fed a line piece by piece; holds scalars shorter than `SMALL`, and not many of those.

    Attributes:
        pieces: In order; complete after `finish`.
        values: JSON values that were complete, records included.
        broken: The line does not decode to its end.
        length: Bytes fed, once finished.
    """

    def __init__(self) -> None:
        self.pieces: list[LongPiece] = []
        self.values = 0
        self.broken = False
        self.length = 0
        self._base = 0
        self._rest = b""
        self._last = False
        self._open = bytearray()
        self._expected = _TOP
        self._start = 0
        self._top = 0
        self._nul_start: int | None = None
        self._in_string = False
        self._held: bytearray | None = None
        self._key: str | None = None
        self._members: dict[str, object] = {}
        self._kept = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        data = self._rest + data if self._rest else data
        at = 0
        while at < len(data) and not self.broken:
            step = self._string if self._in_string else self._between
            after = step(data, at)
            if after == at:
                break
            at = after
        at = len(data) if self.broken else at
        self._rest = data[at:]
        self._base += at

    def finish(self) -> None:
        """The line is over: what is still open is damage."""
        self._last = True
        self.feed(b"")
        self._end_nuls(self._base)
        self.length = self._base + len(self._rest)
        self.broken = self.broken or self._expected != _TOP or self._in_string
        if self.broken:
            self.pieces.append(LongPiece(self._start, self.length, None, "broken"))

    def _between(self, data: bytes, at: int) -> int:
        """Take one step outside of strings; returns where it ended, `at` to wait for more."""
        after = _end(_BLANK, data, at)
        if after > at:
            self._end_nuls(self._base + at)
            return after
        if self._expected == _TOP:
            if data[at] == 0:
                return self._nul(data, at)
            if not self._begin(data, at):
                return at + 1
        byte = data[at]
        if byte == _QUOTE:
            return self._quote(at)
        if byte in (_OBJECT, _ARRAY):
            return self._enter(byte, at)
        if byte in _CLOSERS:
            return self._leave(byte, at)
        if byte in (_COMMA, _COLON):
            return self._separate(byte, at)
        return self._word(data, at)

    def _nul(self, data: bytes, at: int) -> int:
        self._nul_start = self._base + at if self._nul_start is None else self._nul_start
        return _end(_NULS, data, at)

    def _end_nuls(self, end: int) -> None:
        if self._nul_start is not None:
            self._piece(LongPiece(self._nul_start, end, None, "nul"))
            self._nul_start = None

    def _piece(self, piece: LongPiece) -> None:
        self.pieces.append(piece)
        self._kept += _PIECE_COST

    def _begin(self, data: bytes, at: int) -> bool:
        """A top-level value begins; whether there is still room for what it will leave."""
        self._end_nuls(self._base + at)
        self._start = self._base + at
        self._top = data[at]
        self.broken = self._kept > MAX_KEPT
        return not self.broken

    def _fault(self, at: int) -> int:
        self.broken = True
        return at + 1

    def _quote(self, at: int) -> int:
        if self._expected in {_NAMED, _AFTER}:
            return self._fault(at)
        self._in_string = True
        self._held = bytearray(b'"') if len(self._open) == 1 else None
        return at + 1

    def _string(self, data: bytes, at: int) -> int:
        after = _end(_INSIDE, data, at)
        self._hold(data, at, after)
        if after == len(data):
            return after
        if data[after] == _QUOTE:
            self._hold(data, after, after + 1)
            self._in_string = False
            self._text_done(self._base + after + 1)
            return after + 1
        escape = data[after] == _BACKSLASH and len(data) - after < _ESCAPE_BYTES
        return after if escape and not self._last else self._fault(after)

    def _hold(self, data: bytes, start: int, end: int) -> None:
        if self._held is None:
            return
        if len(self._held) + end - start > SMALL:
            self._held = None
        else:
            self._held += data[start:end]

    def _text_done(self, end: int) -> None:
        text = None if self._held is None else bytes(self._held)
        self._held = None
        if self._expected not in {_KEY, _FIRST_KEY}:
            self._value_done(end, text)
            return
        self._expected = _NAMED
        if len(self._open) == 1:
            self._key = None if text is None else _known(text)

    def _word(self, data: bytes, at: int) -> int:
        after = _end(_WORD, data, at)
        if after == len(data) and not self._last and after - at < SMALL:
            return at
        if self._expected not in {_TOP, _VALUE, _FIRST_VALUE}:
            return self._fault(at)
        if after - at >= SMALL or not _SCALAR.fullmatch(data, at, after):
            return self._fault(at)
        self._value_done(self._base + after, data[at:after])
        return after

    def _enter(self, byte: int, at: int) -> int:
        if self._expected not in {_TOP, _VALUE, _FIRST_VALUE} or len(self._open) >= MAX_DEPTH:
            return self._fault(at)
        if not self._open:
            self._members = {}
        self._open.append(byte)
        self._expected = _FIRST_KEY if byte == _OBJECT else _FIRST_VALUE
        return at + 1

    def _leave(self, byte: int, at: int) -> int:
        if self._expected not in {_AFTER, _FIRST_VALUE, _FIRST_KEY} or self._open[-1] != byte - 2:
            return self._fault(at)
        self._open.pop()
        self._value_done(self._base + at + 1, None)
        return at + 1

    def _separate(self, byte: int, at: int) -> int:
        if self._expected != (_AFTER if byte == _COMMA else _NAMED):
            return self._fault(at)
        self._expected = _KEY if byte == _COMMA and self._open[-1] == _OBJECT else _VALUE
        return at + 1

    def _value_done(self, end: int, scalar: bytes | None) -> None:
        if not self._open:
            self._top_done(end)
            return
        self._expected = _AFTER
        if len(self._open) > 1 or self._open[0] != _OBJECT or self._key is None:
            return
        self._members.pop(self._key, None)  # the last of several counts, kept or not
        if scalar is not None:
            self._members[self._key] = value_at(scalar.decode("utf-8", "surrogateescape"), 0).value
            self._kept += len(scalar)

    def _top_done(self, end: int) -> None:
        self._expected = _TOP
        self.values += 1
        if self._top == _OBJECT:
            envelope = fill(Envelope, self._members) or Envelope()
            self._piece(LongPiece(self._start, end, envelope, ""))
        else:
            self._piece(LongPiece(self._start, end, None, "value"))


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Where the run that begins at `at` ends; `at` itself when there is none."""
    found = pattern.match(data, at)
    return found.end() if found else at


def _known(key: bytes) -> str | None:
    """The name, if it is one of the envelope's."""
    name = json.loads(key.decode("utf-8", "surrogateescape"))
    return name if name in _NAMES else None


_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(Envelope))

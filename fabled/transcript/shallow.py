"""Walking a JSON object without building it: any depth, exact spans, nothing decoded.

For what the standard library cannot follow (5,000 levels deep it gives up), and for
whoever needs to know where a member's bytes begin and end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(
    rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity"
)
_OBJECT, _ARRAY = ord("{"), ord("[")
_CLOSERS = {_OBJECT: ord("}"), _ARRAY: ord("]")}


class Member(NamedTuple):
    """One member of an object: its key as raw JSON text, and the span of its value."""

    key: bytes
    start: int
    end: int


class Scanned(NamedTuple):
    """The members of an object in order, and the offset just past its closing brace."""

    members: list[Member]
    end: int


class _Broken(Exception):
    """The bytes are no JSON from here on."""


def scan_object(data: bytes, start: int = 0) -> Scanned | None:
    """The top-level members of the object that begins at `start`.

    Accepts what the standard library's `json` accepts, apart from depth. Linear, iterative.

    Returns:
        None when no complete, valid object begins there.
    """
    if start >= len(data) or data[start] != _OBJECT:
        return None
    try:
        return _Scanner(data, start).scan()
    except _Broken:
        return None


class _Scanner:
    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._at = start
        self._open: list[int] = []
        self._members: list[Member] = []
        self._key = b""
        self._value_start = 0

    def scan(self) -> Scanned:
        self._begin_value()
        while self._open:
            self._after_value()
        return Scanned(self._members, self._at)

    def _space(self) -> int:
        """The next byte that is no white space."""
        found = _SPACE.match(self._data, self._at)
        self._at = found.end() if found else self._at
        if self._at >= len(self._data):
            raise _Broken
        return self._data[self._at]

    def _take(self, pattern: re.Pattern[bytes]) -> bytes:
        found = pattern.match(self._data, self._at)
        if found is None or found.end() == found.start():
            raise _Broken
        self._at = found.end()
        return found.group()

    def _begin_value(self) -> None:
        """Consume a scalar whole, or the beginning of containers down to the first scalar."""
        while True:
            byte = self._space()
            if len(self._open) == 1 and self._open[0] == _OBJECT:
                self._value_start = self._at
            if byte not in _CLOSERS:
                self._take(_STRING if byte == ord('"') else _SCALAR)
                self._end_value()
                return
            self._open.append(byte)
            self._at += 1
            if self._space() == _CLOSERS[byte]:
                self._close()
                return
            if byte == _OBJECT:
                self._name()

    def _name(self) -> None:
        if self._space() != ord('"'):
            raise _Broken
        key = self._take(_STRING)
        if len(self._open) == 1:
            self._key = key
        if self._space() != ord(":"):
            raise _Broken
        self._at += 1

    def _after_value(self) -> None:
        byte = self._space()
        inside = self._open[-1]
        if byte == _CLOSERS[inside]:
            self._close()
        elif byte == ord(","):
            self._at += 1
            if inside == _OBJECT:
                self._name()
            self._begin_value()
        else:
            raise _Broken

    def _close(self) -> None:
        self._open.pop()
        self._at += 1
        self._end_value()

    def _end_value(self) -> None:
        if len(self._open) == 1:
            self._members.append(Member(self._key, self._value_start, self._at))

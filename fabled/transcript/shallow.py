"""Walking a JSON container without building it: any depth, exact spans, nothing decoded.

For what the standard library cannot follow (some thousand levels deep it gives up), and
for whoever needs to know where a member's bytes begin and end.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

# Possessive throughout: what a run has taken is never given back, so that an
# unterminated string costs one pass and not an exponential search.
_TOKEN = re.compile(
    rb"[ \t\n\r]*+(?:"
    rb'("(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    rb"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
    rb"|true|false|null|NaN|-?Infinity)"
    rb"|([{\[])|([}\]])|(,)|(:))"
)
_STRING, _SCALAR, _OPEN, _CLOSE, _COMMA, _COLON = range(1, 7)
_OBJECT = ord("{")
_BRACKETS = 2
"""An ASCII closing bracket's code is its opening one's plus this."""

# What may come next; FIRST: just after an opening bracket.
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _NAMED, _AFTER = range(6)
_LEGAL = {
    _STRING: {_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY},
    _SCALAR: {_VALUE, _FIRST_VALUE},
    _OPEN: {_VALUE, _FIRST_VALUE},
    _CLOSE: {_AFTER, _FIRST_VALUE, _FIRST_KEY},
    _COMMA: {_AFTER},
    _COLON: {_NAMED},
}


class Member(NamedTuple):
    """One member of an object, and the span of its value."""

    key: str
    start: int
    end: int


class Scanned(NamedTuple):
    """The members of an object in order, and the offset just past its closing brace."""

    members: list[Member]
    end: int


class Items(NamedTuple):
    """The spans of an array's values in order, and the offset just past its bracket."""

    spans: list[tuple[int, int]]
    end: int


def scan_object(data: bytes, start: int = 0) -> Scanned | None:
    """The top-level members of the object that begins at `start`, duplicates included.

    Accepts what the standard library's `json` accepts, apart from depth. Linear, iterative.

    Returns:
        None when no complete, valid object begins there.
    """
    if data[start : start + 1] != b"{":
        return None
    walk = _Walk()
    end = walk.run(data, start)
    if end is None:
        return None
    members = [
        Member(json.loads(key.decode("utf-8", "surrogateescape")), *span)
        for key, span in zip(walk.keys, walk.spans, strict=True)
    ]
    return Scanned(members, end)


def scan_array(data: bytes, start: int = 0) -> Items | None:
    """The values of the array that begins at `start`; otherwise as `scan_object`."""
    if data[start : start + 1] != b"[":
        return None
    walk = _Walk()
    end = walk.run(data, start)
    return None if end is None else Items(walk.spans, end)


class _Walk:
    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.spans: list[tuple[int, int]] = []
        self._open = bytearray()
        self._value_start = 0

    def run(self, data: bytes, at: int) -> int | None:
        """Walk one container; returns the offset past it, None when it is not whole and valid."""
        token, expected = _TOKEN.match, _VALUE
        while True:
            found = token(data, at)
            if found is None:
                return None
            kind, at = found.lastindex, found.end()
            if kind is None or expected not in _LEGAL[kind]:
                return None
            step = self._next(kind, found, expected)
            if step is None:
                return None
            if not self._open:
                return at
            expected = step

    def _next(self, kind: int, found: re.Match[bytes], expected: int) -> int | None:
        """Take a token that is legal here; returns what may follow, None when nothing may."""
        start, end = found.span(kind)
        if kind == _STRING and expected in {_KEY, _FIRST_KEY}:
            if len(self._open) == 1:
                self.keys.append(found.group(kind))
            return _NAMED
        if kind <= _SCALAR:
            if len(self._open) == 1:
                self.spans.append((start, end))
            return _AFTER
        if kind == _OPEN:
            return self._enter(found.group(kind)[0], start)
        if kind == _CLOSE:
            return self._leave(found.group(kind)[0], end)
        if kind == _COMMA and self._open[-1] == _OBJECT:
            return _KEY
        return _VALUE

    def _enter(self, bracket: int, start: int) -> int:
        if len(self._open) == 1:
            self._value_start = start
        self._open.append(bracket)
        return _FIRST_KEY if bracket == _OBJECT else _FIRST_VALUE

    def _leave(self, bracket: int, end: int) -> int | None:
        if self._open.pop() != bracket - _BRACKETS:
            return None
        if len(self._open) == 1:
            self.spans.append((self._value_start, end))
        return _AFTER

"""What asking providers has cost and where it failed: one small durable file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fabled.system import Files

LIMIT = 8 << 20
MOST_FAILURES = 10_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
LONGEST_REST_H = 24 * 14


class Failure(msgspec.Struct):
    """The last failure of one thread; `count` of them in a row."""

    code: str
    message: str
    count: int
    at_ms: int

    def rests(self, now_ms: int) -> bool:
        """Whether it is too early to try again by itself: an hour, then two, then four ..."""
        hours = min(2 ** min(self.count - 1, 16), LONGEST_REST_H)
        until: int = self.at_ms + hours * HOUR_MS
        return now_ms < until


class _Stored(msgspec.Struct):
    day: int = 0
    tokens: int = 0
    failures: dict[str, Failure] = msgspec.field(default_factory=dict)


class Record:
    """The file; used by one run at a time.

    Args:
        files: The file system.
        path: Where it is.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._now = self._load()

    def _load(self) -> _Stored:
        data = self._files.read_small(self._path, LIMIT)
        try:
            return msgspec.json.decode(data or b"{}", type=_Stored)
        except msgspec.DecodeError:
            return _Stored()  # it says nothing that cannot be found out again

    def spent(self, now_ms: int) -> int:
        """Tokens of prompts sent today (UTC)."""
        return self._now.tokens if self._now.day == now_ms // DAY_MS else 0

    def failures(self) -> dict[str, Failure]:
        """The threads whose last attempt failed."""
        return self._now.failures

    def note(self, thread: str, tokens: int, fault: tuple[str, str] | None, now_ms: int) -> None:
        """Write down one outcome: what it cost, and its error's code and message."""
        now = self._now
        spent = self.spent(now_ms)
        now.day, now.tokens = now_ms // DAY_MS, spent + tokens
        before = now.failures.pop(thread, None)
        if fault is not None:
            count = 1 if before is None else before.count + 1
            now.failures[thread] = Failure(*fault, count, now_ms)
        while len(now.failures) > MOST_FAILURES:
            del now.failures[next(iter(now.failures))]
        data = json.dumps(msgspec.to_builtins(now)).encode()
        self._files.write_private(self._path, data)

    def forget(self, thread: str) -> None:
        """Leave nothing of a thread."""
        if self._now.failures.pop(thread, None) is not None:
            self._files.write_private(
                self._path, json.dumps(msgspec.to_builtins(self._now)).encode()
            )

"""The audit log: one line an event, appended and synced before what it announces goes on."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fabled.system import Clock, Files

PIECE = 1 << 20

SEALED, PRUNED, UNDONE, RESTORED = "sealed", "pruned", "undone", "restored"
VANISHED, MASS_DELETION, DAMAGED = "vanished", "mass_deletion", "damaged"
FORGOTTEN, IMPORTED, COLLECTED, TRASHED = "forgotten", "imported", "collected", "trashed"
DECLINED = "declined"


class News(NamedTuple):
    """Something to write down; `detail` holds sizes, numbers and ids, never words."""

    event: str
    session: str | None
    project: str | None
    path: str | None
    detail: dict[str, Any]


class Event(NamedTuple):
    """Something that was written down: its number, from 1, and when (UTC milliseconds)."""

    n: int
    ms: int
    news: News


class Journal:
    """An append-only file. Safe to share between threads; one process writes it.

    Args:
        files: The file system.
        clock: When.
        path: The file; made with the first event.
    """

    def __init__(self, files: Files, clock: Clock, path: str) -> None:
        self._files = files
        self._clock = clock
        self._path = path
        self._changed = threading.Condition()
        self._last, self._torn = self._look()

    def _look(self) -> tuple[int, bool]:
        """The last number, and whether a crash cut the last line."""
        last, end = 0, b"\n"
        for line in self._lines():
            event = _event(line)
            last = last if event is None else max(last, event.n)
            end = line[-1:]
        return last, end != b"\n"

    def _lines(self) -> Iterator[bytes]:
        if self._files.stat(self._path) is None:
            return
        with self._files.open_read(self._path) as handle:
            rest = b""
            while piece := handle.read(PIECE):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line + b"\n" for line in whole)
            if rest:
                yield rest

    def write(self, news: Sequence[News]) -> None:
        """Write events down, durably, in one go.

        Raises:
            DiskFull: None of them, or the beginning of them, is written.
            AccessDenied: As above.
        """
        if not news:
            return
        with self._changed:
            now = self._clock.now_ms()
            numbered = [Event(self._last + at, now, one) for at, one in enumerate(news, 1)]
            data = b"".join(_line(event) for event in numbered)
            torn, self._torn = self._torn, True  # unless all of it arrives
            self._files.append(self._path, (b"\n" if torn else b"") + data)
            self._torn = False
            self._last = numbered[-1].n
            self._changed.notify_all()

    def events(self, after: int = 0, session: str | None = None) -> list[Event]:
        """Events past a number, oldest first; those of one session if one is given.

        Cost: reads the whole file.
        """
        found = (_event(line) for line in self._lines())
        return [
            event
            for event in found
            if event is not None
            and event.n > after
            and (session is None or event.news.session == session)
        ]

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait for an event past a number; False when none came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._last > after, timeout_s)


def _line(event: Event) -> bytes:
    news = event.news
    value = {"n": event.n, "ms": event.ms, **news._asdict()}
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _event(line: bytes) -> Event | None:
    """None for a line that a crash cut, or that is none of ours."""
    try:
        value = json.loads(line)
        news = News(*(value[name] for name in News._fields))
        return Event(int(value["n"]), int(value["ms"]), news)
    except (ValueError, KeyError, TypeError):
        return None

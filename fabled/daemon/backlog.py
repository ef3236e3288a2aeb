"""What is waiting to be read: paths, each once, the live ones before the rest."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """A path to look at.

    Attributes:
        bytes: What may have to be read.
        since_s: Since when it waits, on the monotonic clock.
        asked: Number of the request; whoever waits for a request is served by a reading
            that began after it.
        afresh: Compare every byte, even if the file looks unchanged.
    """

    root: str
    path: str
    bytes: int
    since_s: float
    asked: int
    afresh: bool = False


class Pending(NamedTuple):
    """How much is waiting."""

    files: int
    bytes: int
    lag_s: float


class Backlog:
    """Two queues without duplicates, and the path in hand. Not locked."""

    def __init__(self) -> None:
        self._live: dict[str, Item] = {}
        self._rest: dict[str, Item] = {}
        self._hand: Item | None = None

    def __len__(self) -> int:
        return len(self._live) + len(self._rest)

    def add(self, item: Item, *, live: bool) -> None:
        """Queue a path; one that waits already keeps its waiting time, and is never demoted."""
        waiting = self._live.get(item.path) or self._rest.get(item.path)
        if waiting is not None:
            item = item._replace(
                since_s=waiting.since_s,
                bytes=max(item.bytes, waiting.bytes),
                asked=max(item.asked, waiting.asked),
                afresh=item.afresh or waiting.afresh,
            )
        if live or item.path in self._live:
            self._rest.pop(item.path, None)
            self._live[item.path] = item
        else:
            self._rest[item.path] = item

    def take(self) -> Item | None:
        """The next path: the live one that waits longest, else the next of the rest."""
        for queue in (self._live, self._rest):
            for path in queue:
                self._hand = queue.pop(path)
                return self._hand
        return None

    def put_down(self) -> None:
        """What was taken last is done, or was put back: it is no longer pending."""
        self._hand = None

    def newer(self, asked: int) -> list[Item]:
        """The paths asked for after that request, for somebody else to read; they stay waiting."""
        self._rest = {**self._live, **self._rest}
        self._live = {}
        return [item for item in self._rest.values() if item.asked > asked]

    def discard_done(self, path: str, asked: int) -> None:
        """Somebody else has read this path; if it was asked for again meanwhile, it stays."""
        for queue in (self._live, self._rest):
            if path in queue and queue[path].asked <= asked:
                del queue[path]

    def clear(self) -> None:
        """Forget everything: it will be found again."""
        self._live.clear()
        self._rest.clear()

    def paths(self) -> dict[str, int]:
        """Every waiting path, with the number of its last request."""
        return {item.path: item.asked for item in (*self._live.values(), *self._rest.values())}

    def rest_bytes(self) -> int:
        """Bytes waiting in the slow queue."""
        return sum(item.bytes for item in self._rest.values())

    def pending(self, now_s: float) -> Pending:
        """How much waits, and how long the first of it has waited."""
        items = [*self._live.values(), *self._rest.values()]
        if self._hand is not None:
            items.append(self._hand)
        oldest = min((item.since_s for item in items), default=now_s)
        return Pending(len(items), sum(item.bytes for item in items), max(0.0, now_s - oldest))

"""What a replacement is about: a live file at one moment, an order, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.vault.hashing import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.errors import FabledError
    from fabled.system import LiveFile, NewFile, OpenFile


class Snapshot(NamedTuple):
    """A live file at one moment.

    Attributes:
        size: End of its last whole line: what the new image is about.
        whole: End of the file.
        sha256: Of the bytes before `size`.
    """

    path: str
    dev: int
    ino: int
    size: int
    whole: int
    mtime_ns: int
    sha256: bytes


class Order(NamedTuple):
    """One replacement.

    Attributes:
        pieces: The new image of the snapshot's bytes.
        length: Of the new image.
        examine: Looks at the new image before anything happens; raises to stop.
        tail_fits: Whether bytes appended since may stand behind the new image.
        before: Called when all is prepared and durable, just before the door closes.
        original: Opens the snapshot's bytes, out of the Vault.
        note: More facts for the note in the home.
    """

    pieces: Iterator[bytes]
    length: int
    examine: Callable[[NewFile], None]
    tail_fits: Callable[[bytes], bool]
    before: Callable[[NewFile], None]
    original: Callable[[], OpenFile]
    note: dict[str, object]


class Replaced(NamedTuple):
    """What a replacement did.

    Attributes:
        tail: Bytes appended since the snapshot and carried over before the name changed.
        late: Bytes that a waiting writer wrote to the old file, carried over after.
        closed_s: How long the door was closed: the longest that a writer can have waited.
        held: Somebody still has the old file open; it is followed.
        fault: What went wrong after the name had changed hands; the next start looks after it.
    """

    tail: int
    late: int
    closed_s: float
    held: bool
    fault: FabledError | None = None


def snapshot(live: LiveFile, path: str) -> Snapshot:
    """Where the last whole line of an open live file ends, and what is before it.

    Cost: reads it once.
    """
    stat = live.stat()
    size = last_line_end(live, stat.size)
    sha256 = hash_of(live, size)
    return Snapshot(path, stat.dev, stat.ino, size, stat.size, stat.mtime_ns, sha256)


def hash_of(source: OpenFile, size: int) -> bytes:
    """The hash of the first bytes of a file; another one where there are fewer."""
    found = sha256_of(source.pread, size)
    return bytes.fromhex(found.sha256) if found.size == size else b""


def last_line_end(live: LiveFile, size: int) -> int:
    """The offset just past the last newline among the first `size` bytes."""
    at = size
    while at > 0:
        start = max(0, at - 65536)
        found = live.pread(start, at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0

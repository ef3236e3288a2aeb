"""Thread placement of transcripts that are growing, kept between two reads of one file."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from fabled.transcript.reader import Found, Reader
from fabled.transcript.records import understand
from fabled.transcript.threads import Placer

if TYPE_CHECKING:
    from fabled.system import FileStat, OpenFile
    from fabled.transcript.veil import Veil

KEEP_FILES = 8
KEEP_RECORDS = 50_000


class _Kept(NamedTuple):
    placer: Placer
    settled: int
    dev: int
    ino: int


class Prefix:
    """The first `end` bytes of a file, as a source for the reader."""

    def __init__(self, handle: OpenFile, end: int) -> None:
        self._handle = handle
        self._left = end
        handle.seek(0)

    def read(self, size: int, /) -> bytes:
        """The next bytes, none past the end of the prefix."""
        data = self._handle.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data


class Placers:
    """The most recently grown files' placers, a few and bounded.

    A missing one is built again from the file's own bytes, so that forgetting one costs
    time and changes nothing.
    """

    def __init__(self, veil: Veil) -> None:
        self._veil = veil
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def take(self, path: str, handle: OpenFile, settled: int) -> Placer:
        """The placer of the records before `settled`; the caller owns it until `keep`."""
        kept = self._kept.pop(path, None)
        if settled == 0:
            return Placer()
        stat = handle.stat()
        if kept is not None and kept[1:] == (settled, stat.dev, stat.ino):
            return kept.placer
        placer = Placer()
        placer.extend(
            [
                understand(item.envelope, item.offset, self._veil).node
                for item in Reader(Prefix(handle, settled))
                if isinstance(item, Found)
            ]
        )
        return placer

    def keep(self, path: str, placer: Placer, settled: int, stat: FileStat) -> None:
        """Keep a placer that covers exactly the bytes before `settled`."""
        self._kept[path] = _Kept(placer, settled, stat.dev, stat.ino)
        while len(self._kept) > 1 and (
            len(self._kept) > KEEP_FILES
            or sum(len(kept.placer) for kept in self._kept.values()) > KEEP_RECORDS
        ):
            self._kept.popitem(last=False)

    def drop(self, path: str) -> None:
        """Forget one file's placer."""
        self._kept.pop(path, None)

    def clear(self) -> None:
        """Forget them all."""
        self._kept.clear()

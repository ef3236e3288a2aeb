"""An image: the bytes that a live file had, read out of one generation or a chain of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from fabled.errors import GenerationDamaged, NotFound
from fabled.system import FileStat
from fabled.vault.frames import Frames, Plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabled.system import Files
    from fabled.vault.values import Generation

PIECE = 1 << 20


class Image:
    """An `OpenFile` over a chain; its files are opened when first read.

    Args:
        files: The file system.
        chain: From the whole image to the last tail, each the base of the next.
    """

    def __init__(self, files: Files, chain: Sequence[Generation]) -> None:
        self._files = files
        self._chain = chain
        self._open: dict[int, Frames | Plain] = {}
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes of the whole image."""
        return self._chain[-1].end

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes of a range, shorter only where the image ends.

        Raises:
            GenerationDamaged: A generation is missing or does not decompress.
        """
        end = min(offset + length, self.size)
        found: list[bytes] = []
        for number, part in enumerate(self._chain):
            start, stop = max(offset, part.card.offset), min(end, part.end)
            if start < stop:
                piece = self._part(number).pread(start - part.card.offset, stop - start)
                if len(piece) != stop - start:
                    raise GenerationDamaged(f"{part.data_path} is shorter than its sidecar says")
                found.append(piece)
        return found[0] if len(found) == 1 else b"".join(found)

    def _part(self, number: int) -> Frames | Plain:
        part = self._open.get(number)
        if part is None:
            part = self._open[number] = open_part(self._files, self._chain[number])
        return part

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        data = self.pread(self._at, size)
        self._at += len(data)
        return data

    def seek(self, offset: int, /) -> int:
        """Make the next `read` begin there."""
        self._at = offset
        return offset

    def stat(self) -> FileStat:
        """A generation never changes: its number stands for its identity."""
        mode, first = self._chain[-1].card.mode, self._chain[0].card.number
        return FileStat(0, first, self.size, 0, mode, "file")

    def close(self) -> None:
        """Close what was opened."""
        for part in self._open.values():
            part.close()
        self._open = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_part(files: Files, generation: Generation) -> Frames | Plain:
    """One generation's own bytes.

    Raises:
        GenerationDamaged: Its data file is missing or has no table.
    """
    path = generation.data_path
    try:
        file = files.open_read(path)
    except NotFound as missing:
        raise GenerationDamaged(f"{path} is missing; only its sidecar is there") from missing
    if generation.card.compression != "zstd":
        return Plain(file)
    try:
        return Frames(file, path)
    except GenerationDamaged:
        file.close()
        raise

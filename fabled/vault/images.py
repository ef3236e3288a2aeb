"""An image: the bytes that a live file had, read out of one generation or a chain of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from fabled.errors import GenerationDamaged, NotFound
from fabled.system import FileStat
from fabled.vault.frames import Frames, Nothing, Plain

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
        holes: Give zeros for what cannot be read, instead of an error.
    """

    def __init__(self, files: Files, chain: Sequence[Generation], *, holes: bool = False) -> None:
        self._files = files
        self._holes = holes
        self._chain = chain
        self._open: dict[int, Frames | Plain | Nothing] = {}
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
                if len(piece) != stop - start and self._holes:
                    piece += bytes(stop - start - len(piece))
                elif len(piece) != stop - start:
                    raise GenerationDamaged(f"{part.data_path} is shorter than its sidecar says")
                found.append(piece)
        return found[0] if len(found) == 1 else b"".join(found)

    def _part(self, number: int) -> Frames | Plain | Nothing:
        part = self._open.get(number)
        if part is None:
            part = self._open[number] = self._opened(self._chain[number])
        return part

    def _opened(self, generation: Generation) -> Frames | Plain | Nothing:
        try:
            return open_part(self._files, generation, holes=self._holes)
        except GenerationDamaged:
            if not self._holes:
                raise
            return Nothing(generation.card.size)

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


def open_part(files: Files, generation: Generation, *, holes: bool = False) -> Frames | Plain:
    """One generation's own bytes; with `holes`, zeros for the frames that are damaged.

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
        return Frames(file, path, holes=holes)
    except GenerationDamaged:
        file.close()
        raise

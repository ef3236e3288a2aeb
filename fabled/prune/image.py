"""The new image of a transcript: the old bytes, but for the edits of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.prune.values import Plan, Source

PIECE = 1 << 20


def pieces(source: Source, plan: Plan) -> Iterator[bytes]:
    """The new image in pieces of at most a few MiB; its length is `plan.after_bytes`."""
    held: list[bytes] = []
    waiting = 0
    for piece in _parts(source, plan):
        held.append(piece)
        waiting += len(piece)
        if waiting >= PIECE:
            yield b"".join(held)
            held, waiting = [], 0
    if held:
        yield b"".join(held)


def _parts(source: Source, plan: Plan) -> Iterator[bytes]:
    at = 0
    for edit in plan.edits:
        yield from _copied(source, at, edit.offset)
        yield edit.data
        at = edit.offset + edit.length
    yield from _copied(source, at, plan.size)


def _copied(source: Source, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        piece = source.pread(start, min(PIECE, end - start))
        if not piece:
            return  # the caller compares the length
        start += len(piece)
        yield piece

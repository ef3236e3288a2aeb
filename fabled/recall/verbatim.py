"""Reading a record behind its pointer: a seek, a read, and a check that it is still the one."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

from fabled.errors import GenerationDamaged, NotFound, StaleIndex
from fabled.map.store import DIGEST_BYTES
from fabled.transcript.envelope import Envelope
from fabled.transcript.tolerant import decode_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.model import Pointer
    from fabled.system import Opener, OpenFile

CHUNK = 1 << 20
WHOLE = 8 << 20
"""Longer records are streamed, not held."""


def read(disk: Opener, pointer: Pointer) -> bytes:
    """The record's bytes, identical to what the client wrote.

    Raises:
        StaleIndex: The file changed and no longer holds them there.
        AccessDenied: The file cannot be read.
    """
    return b"".join(stream(disk, pointer))


def stream(disk: Opener, pointer: Pointer) -> Iterator[bytes]:
    """The record's bytes in pieces; all of them are checked before the first is given.

    Raises:
        StaleIndex: The file changed and no longer holds them there.
        AccessDenied: The file cannot be read.
    """
    try:
        handle = disk.open_read(pointer.path)
    except NotFound:
        raise _stale(pointer, "is gone") from None
    with handle, _named(pointer):
        if pointer.length <= WHOLE:
            data = handle.pread(pointer.offset, pointer.length)
            _check(pointer, len(data), hashlib.sha256(data).digest())
            yield data
            return
        hashed = hashlib.sha256()
        length = 0
        for piece in _pieces(handle, pointer):
            hashed.update(piece)
            length += len(piece)
        _check(pointer, length, hashed.digest())
        yield from _pieces(handle, pointer)


@contextlib.contextmanager
def _named(pointer: Pointer) -> Iterator[None]:
    """Say of damage in which strand it was met, so that other copies can be looked for."""
    try:
        yield
    except GenerationDamaged as fault:
        raise GenerationDamaged(fault.message, hint=fault.hint, path=pointer.path) from fault


def _pieces(handle: OpenFile, pointer: Pointer) -> Iterator[bytes]:
    at, end = pointer.offset, pointer.offset + pointer.length
    while at < end:
        piece = handle.pread(at, min(CHUNK, end - at))
        if not piece:
            return
        at += len(piece)
        yield piece


def _check(pointer: Pointer, length: int, digest: bytes) -> None:
    if length != pointer.length or digest[:DIGEST_BYTES] != pointer.digest:
        raise _stale(pointer, "changed since it was indexed")


def _stale(pointer: Pointer, what: str) -> StaleIndex:
    return StaleIndex(f"{pointer.path} {what} (record {pointer.name})", path=pointer.path)


def envelope(data: bytes) -> Envelope:
    """The outer members of a record's bytes."""
    return decode_as(data, Envelope) or Envelope()

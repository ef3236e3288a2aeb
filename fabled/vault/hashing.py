"""What a range of bytes hashes to, wherever they are read from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 1 << 20


class Hashed(NamedTuple):
    """A SHA-256 in hex, and of how many bytes."""

    sha256: str
    size: int


def sha256_of(pread: Callable[[int, int], bytes], size: int) -> Hashed:
    """Hash the first `size` bytes, or as many as there are."""
    hashed, at = hashlib.sha256(), 0
    while at < size:
        piece = pread(at, min(PIECE, size - at))
        if not piece:
            break
        hashed.update(piece)
        at += len(piece)
    return Hashed(hashed.hexdigest(), at)

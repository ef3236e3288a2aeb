"""What of an old file the one in its place does not have yet.

Where the old file was only appended to, that is a run of bytes. Where somebody changed
it otherwise - cut its end off, wrote it anew - its lines are counted against those that
are kept already, and each line beyond that count is new.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fabled.system import OpenFile

PIECE = 1 << 20
DIGEST = 16

Ledger = Counter[bytes]
"""How often a line, known by its digest, is kept."""


def digest(line: bytes) -> bytes:
    """What stands for a line in a ledger, its newline left out."""
    return hashlib.sha256(line.rstrip(b"\n")).digest()[:DIGEST]


def lines(source: OpenFile, start: int, end: int) -> Iterator[bytes]:
    """The lines of a range, newlines included; the last one may have none."""
    rest = b""
    while start < end:
        piece = source.pread(start, min(PIECE, end - start))
        if not piece:
            break
        start += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def ledger(found: Iterable[bytes]) -> Ledger:
    """Count lines."""
    return Counter(digest(line) for line in found)


def surplus(found: Iterable[bytes], kept: Ledger) -> list[bytes]:
    """The lines that there are more of than are kept, in order."""
    left = Counter(kept)
    new: list[bytes] = []
    for line in found:
        name = digest(line)
        if left[name] > 0:
            left[name] -= 1
        else:
            new.append(line)
    return new


class Missing(NamedTuple):
    """What has to be done so that a live file holds what came.

    Attributes:
        fill_at: Where, among what follows the new image, bytes of ours were left out.
        fill: Those bytes.
        rest: What is still to be appended.
    """

    fill_at: int
    fill: bytes
    rest: bytes


def missing(came: bytes, there: bytes) -> Missing | None:
    """Compare what came to an old file with what follows the new image in the live one.

    Args:
        came: Bytes of the old file behind what the new image is about.
        there: Bytes of the live file behind the new image.

    Returns:
        None when they differ in another way than a death in the middle of carrying explains:
        then lines have to be compared.
    """
    same = _common(came, there)
    if same in (len(there), len(came)):
        return Missing(same, b"", came[same:])
    # A death between the two writes of `write_at_end`: the last byte, zeros before it.
    zeros = len(there) - same - len(there[same:].lstrip(b"\0"))
    end = same + zeros + 1
    closed = zeros and end <= len(came) and there[end - 1 : end] == came[end - 1 : end]
    if not closed:
        return None
    after = _common(came[end:], there[end:])
    if end + after not in (len(came), len(there)):
        return None
    return Missing(same, came[same : end - 1], came[max(end + after, len(there)) :])


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low

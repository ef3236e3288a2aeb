"""The evict gate: proof that everything a prune may remove is kept, or no prune.

A `Proof` is only made here. `prune.apply` takes one and nothing else will do; there is no
flag that goes round it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from fabled.errors import GateRefused
from fabled.map.store import digest
from fabled.model import Damage
from fabled.prune.facts import Window
from fabled.transcript.reader import Reader
from fabled.vault.hashing import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabled.map.fidelity import Spot
    from fabled.prune.orders import Snapshot
    from fabled.system import OpenFile
    from fabled.vault.values import Generation

_MADE_HERE = object()


class Proof:
    """That one generation holds every byte of one snapshot. Made by `prove` only."""

    def __init__(self, made: object, shot: Snapshot, generation: Generation, sha256: str) -> None:
        if made is not _MADE_HERE:
            raise GateRefused("a proof can only come from the gate")
        self.shot = shot
        self.generation = generation
        self.sha256 = sha256


class Backup(Protocol):
    """Where generations are read back."""

    def image(self, generation: Generation) -> OpenFile:
        """The whole image of a generation."""


class _Spots(NamedTuple):
    missing: int
    records: int


def prove(
    live: OpenFile,
    shot: Snapshot,
    generation: Generation,
    backup: Backup,
    indexed: Callable[[Generation], set[Spot]],
) -> Proof:
    """Prove that a generation holds the snapshot, read back from the disk, and the Map knows it.

    Args:
        live: The open live file.
        shot: Which of its bytes it is about.
        generation: Its image begins with them.
        backup: The Vault.
        indexed: Place, length and digest of each copy that the Map has of that generation.

    Raises:
        GateRefused: It does not hold; nothing may be removed.
    """
    with backup.image(generation) as image:
        kept = _hash(image, shot.size)
        there = _hash(live, shot.size)
        if kept != there:
            raise GateRefused(f"the generation of {shot.path} does not read back as the transcript")
        spots = indexed(generation)
        found = _missing(image, shot.size, spots)
    if found.missing:
        raise GateRefused(
            f"the Map does not know {found.missing} of {found.records} records of the generation"
            f" of {shot.path}"
        )
    return Proof(_MADE_HERE, shot, generation, there)


def _hash(source: OpenFile, size: int) -> str:
    found = sha256_of(source.pread, size)
    if found.size != size:
        raise GateRefused(f"only {found.size} of {size} bytes could be read back")
    return found.sha256


def _missing(image: OpenFile, size: int, spots: set[Spot]) -> _Spots:
    """How many records of the image the Map has no copy of, at this place and length."""
    missing, records = 0, 0
    for item in Reader(Window(image, size)):
        if isinstance(item, Damage):
            continue
        records += 1
        raw = item.raw if item.raw is not None else image.pread(item.offset, item.length)
        missing += (item.offset, item.length, digest(raw)) not in spots
    return _Spots(missing, records)

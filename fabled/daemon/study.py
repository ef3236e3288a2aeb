"""Deriving what belongs to whole threads - terms and cards - for the threads that changed.

It comes after reading: a transcript is searchable first. A slice is short, so that a
file that grows meanwhile hardly waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.cards.extractive import Notes
from fabled.cards.shelf import CardShelf, current
from fabled.errors import AccessDenied, GenerationDamaged, StaleIndex
from fabled.map import cards, queries, vocabulary
from fabled.map.store import unstudied
from fabled.recall.verbatim import envelope, read
from fabled.transcript.records import title_of
from fabled.transcript.terms import Gatherer
from fabled.transcript.text import spoken
from fabled.transcript.touched import blocks, calls

if TYPE_CHECKING:
    from fabled.map.db import Writer, WriteTxn
    from fabled.model import Pointer
    from fabled.system import Clock
    from fabled.transcript.veil import Veil
    from fabled.vault.sources import Sources

BATCH = 64
HOLD = 8 << 20
"""Longer records are left out: such a one is data, not prose."""

_TALK = frozenset({"user", "assistant", "summary", "queue-operation", "custom-title", "ai-title"})


class Studied(NamedTuple):
    """One slice.

    Attributes:
        threads: How many were brought up to date.
        left: Whether there are more.
        stale: Files that were not what the Map says: read them afresh.
    """

    threads: int
    left: bool
    stale: tuple[str, ...]


class Student:
    """Works through the writer, on its thread.

    Args:
        sources: The file system and the Vault.
        veil: What is nobody's vocabulary, and in no card.
        shelf: The cards that cannot be derived.
    """

    def __init__(self, sources: Sources, veil: Veil, shelf: CardShelf) -> None:
        self._sources = sources
        self._veil = veil
        self._shelf = shelf

    def again(self, writer: Writer, keys: list[str]) -> None:
        """Let threads count as changed, by their keys."""
        if not keys:
            return
        with writer.transaction() as txn:
            unstudied(txn, {queries.thread_by_key(txn, key) for key in keys})

    def slice(self, writer: Writer, clock: Clock, seconds: float) -> Studied:
        """Bring threads up to date for about so long, in one transaction; at least one thread."""
        until = clock.monotonic_s() + seconds
        stale: set[str] = set()
        done = 0
        with writer.transaction() as txn:
            waiting = vocabulary.waiting(txn, BATCH)
            for thread in waiting:
                self._study(txn, thread, stale)
                done += 1
                if clock.monotonic_s() >= until:
                    break
        left = done < len(waiting) or len(waiting) == BATCH
        return Studied(done, left, tuple(sorted(stale)))

    def _study(self, txn: WriteTxn, thread: int, stale: set[str]) -> None:
        pointers = queries.thread_records(txn, thread)
        gatherer, notes = Gatherer(self._veil), Notes(self._veil)
        for pointer in pointers:
            if pointer.kind.partition(":")[0] in _TALK and pointer.length <= HOLD:
                self._take(pointer, gatherer, notes, stale)
        found = gatherer.result()
        vocabulary.save(txn, thread, found)
        if not pointers:
            cards.save(txn, thread, None)
            return
        kept = self._shelf.get(queries.thread_key(txn, thread))
        tokens = sum(pointer.tokens for pointer in pointers)
        cards.save(txn, thread, notes.card(found) if kept is None else current(kept, tokens))

    def _take(self, pointer: Pointer, gatherer: Gatherer, notes: Notes, stale: set[str]) -> None:
        try:
            record = envelope(read(self._sources, pointer))
        except StaleIndex as fault:
            stale.add(fault.path)  # it is read again, and the thread after it
            return
        except (AccessDenied, GenerationDamaged):
            return
        said = spoken(record)
        gatherer.add(said.parts)
        notes.add(said.parts, calls(blocks(record)), title_of(record, said, self._veil))

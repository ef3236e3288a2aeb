"""The Vault as answers need it: by live path, by session, in sums."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from fabled.recall.dates import iso
from fabled.vault.values import PRUNED, Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabled.map.sessions import LiveRow, SessionRow
    from fabled.vault.journal import Event, Journal
    from fabled.vault.sources import Sources
    from fabled.vault.store import Vault


class Totals(NamedTuple):
    """The Vault in numbers: bytes on disk, and what they hold."""

    generations: int
    bytes: int
    raw_bytes: int


class View(NamedTuple):
    """Every generation at one moment: by live path and by session, oldest first."""

    by_path: Mapping[str, list[Generation]]
    by_session: Mapping[str, list[Generation]]
    totals: Totals

    def is_sealed(self, path: str, size: int, mtime_ns: int) -> bool:
        """Whether the newest generation has this size and time."""
        lineage = self.by_path.get(path)
        if not lineage:
            return False
        head = lineage[-1]
        return (head.end, head.card.mtime_ns) == (size, mtime_ns)

    def sealed_part(self, file: LiveRow) -> int:
        """How many of a live file's bytes are sealed, by what it was when last read."""
        lineage = self.by_path.get(file.path)
        if not lineage or self.is_sealed(file.path, file.size, file.mtime_ns):
            return file.size if lineage else 0
        return lineage[-1].end if lineage[-1].end <= file.size else 0

    def session_bytes(self, row: SessionRow) -> tuple[int, int]:
        """Sealed and unsealed bytes of a session; of its newest images when it vanished."""
        if row.live:
            sealed = sum(self.sealed_part(file) for file in row.live)
            return sealed, sum(file.size for file in row.live) - sealed
        heads = {one.origin: one for one in self.by_session.get(row.session, [])}
        transcripts = [one for one in heads.values() if one.card.path.endswith(".jsonl")]
        return sum(one.end for one in transcripts), 0


class Shelf:
    """Safe to share between threads.

    Args:
        sources: The file system and the Vault.
        vault: The store.
        journal: The audit log.
    """

    def __init__(self, sources: Sources, vault: Vault, journal: Journal) -> None:
        self.sources = sources
        self.vault = vault
        self.journal = journal
        self._lock = threading.Lock()
        self._view: tuple[int, View] | None = None
        self._undone: tuple[int, set[tuple[str | None, int]]] = (-1, set())

    def view(self) -> View:
        """Every generation now. Cost: nothing, unless something was written since."""
        with self._lock:
            version = self.vault.catalogue.version
            if self._view is None or self._view[0] != version:
                self._view = (version, _view(self.vault.catalogue.generations()))
            return self._view[1]

    def about(self, session: str) -> dict[str, Any]:
        """A session's generations, prunes and events."""
        generations = self.view().by_session.get(session, [])
        events = self.journal.events(session=session)
        undone = undone_numbers(events)
        return {
            "generations": [generation_json(one) for one in generations],
            "prunes": [
                {**receipt_json(one), "undone": (one.origin.live, one.card.number) in undone}
                for one in generations
                if one.card.receipt is not None
            ],
            "events": [event_json(event) for event in events],
        }

    def undone(self) -> set[tuple[str | None, int]]:
        """The prunes that were taken back: live path and the pruned generation's number."""
        last = self.journal.last
        if self._undone[0] != last:
            self._undone = (last, undone_numbers(self.journal.events()))
        return self._undone[1]

    def prunes(self) -> dict[str, Any]:
        """What prunes saved, as `status` shows it; the ones undone do not count."""
        undone = self.undone()
        every = [one for found in self.view().by_path.values() for one in found]
        receipts = [
            one.card.receipt
            for one in every
            if one.card.kind == PRUNED
            and one.card.receipt is not None
            and (one.origin.live, one.card.number) not in undone
        ]
        last = max((receipt.pruned_ms for receipt in receipts), default=None)
        return {
            "count": len(receipts),
            "saved_bytes": sum(r.before_bytes - r.after_bytes for r in receipts),
            "last": iso(last),
        }


def _view(generations: list[Generation]) -> View:
    by_path: dict[str, list[Generation]] = {}
    by_session: dict[str, list[Generation]] = {}
    for one in generations:
        by_path.setdefault(one.origin.live, []).append(one)
        by_session.setdefault(one.card.session, []).append(one)
    totals = Totals(
        len(generations),
        sum(one.card.stored for one in generations if not one.card.imported),
        sum(one.card.size for one in generations),
    )
    return View(by_path, by_session, totals)


def undone_numbers(events: list[Event]) -> set[tuple[str | None, int]]:
    """The prunes that were taken back: live path and the pruned generation's number."""
    return {
        (event.news.path, event.news.detail.get("generation", -1))
        for event in events
        if event.news.event == "undone"
    }


def generation_json(one: Generation) -> dict[str, Any]:
    """A generation as the socket shows it."""
    card = one.card
    return {
        "session": card.session,
        "project": card.path.partition("/")[0],
        "path": one.origin.live,
        "kind": card.kind,
        "number": card.number,
        "base": card.base,
        "offset": card.offset,
        "size": card.size,
        "image_bytes": one.end,
        "stored": card.stored,
        "compression": card.compression,
        "sealed_at": iso(card.sealed_ms),
        "reason": card.reason,
        "receipt": None if card.receipt is None else msgspec.to_builtins(card.receipt),
        "stored_path": one.data_path,
    }


def receipt_json(one: Generation) -> dict[str, Any]:
    """A prune as the socket shows it."""
    receipt = one.card.receipt
    facts = {} if receipt is None else msgspec.to_builtins(receipt)
    pruned_at = iso(receipt.pruned_ms) if receipt is not None else None
    facts.pop("pruned_ms", None)
    return {"path": one.origin.live, "generation": one.card.number, "at": pruned_at, **facts}


def event_json(event: Event) -> dict[str, Any]:
    """An event as the socket shows it."""
    return {"n": event.n, "ts": iso(event.ms), **event.news._asdict()}

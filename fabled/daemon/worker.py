"""The one thread that writes the Map: it reads what waits on the desk, a file a transaction.

A large backlog goes to a child process (see `backfill`), which is the only writer
while it runs. A Map that SQLite finds damaged is set aside and begun anew.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog

from fabled import __version__
from fabled.daemon.folders import inside
from fabled.daemon.offload import Offload
from fabled.daemon.tickets import Done
from fabled.errors import (
    FabledError,
    InternalError,
    MapCorrupt,
    from_wire,
)
from fabled.map.indexer import Indexer
from fabled.map.opening import clear_away, open_map, set_aside, swap_in
from fabled.map.reconcile import survey
from fabled.transcript.layout import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabled.daemon.backlog import Item
    from fabled.daemon.desk import Desk
    from fabled.daemon.tickets import Ticket
    from fabled.map.db import Snapshots, Writer
    from fabled.system import System

log = structlog.get_logger("worker")

OFFLOAD_BYTES = 8 << 20
"""A backlog of more than this is read by a child process."""

RETRY_S = 5.0
RELEASE_S = 20.0
END_S = 30.0


class Worker:
    """Owns the writer.

    Args:
        system: The ports.
        desk: Where its work waits.
        writer: The Map, open; the worker closes it.
        snapshots: The readers, which stand aside while the Map is swapped.
        key: The home's sentinel key.
        lock_fd: Inherited by a child, so that the home stays locked while one runs.
        on_failure: Called when the worker cannot go on; the daemon is to end.

    Attributes:
        failure: Why the worker could not go on.
    """

    def __init__(
        self,
        system: System,
        desk: Desk,
        writer: Writer,
        snapshots: Snapshots,
        key: bytes,
        lock_fd: int,
        on_failure: Callable[[], None],
    ) -> None:
        self._system = system
        self._desk = desk
        self._writer = writer
        self._snapshots = snapshots
        self._key = key
        self._lock_fd = lock_fd
        self._on_failure = on_failure
        self.failure: FabledError | None = None
        self._indexer = Indexer(writer, system.files, key)
        self._rested = True
        self._children_fail = False
        self._thread = threading.Thread(target=self._run, name="worker")

    def start(self) -> None:
        """Begin; the first thing is a survey."""
        self._desk.ask_survey()
        self._thread.start()

    def stop(self) -> None:
        """Finish the file in hand, end a child, close the Map."""
        self._desk.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except FabledError as fault:
            log.exception("the worker cannot go on")
            self.failure = fault
        except Exception as fault:  # a daemon that no longer indexes must not look alive
            log.exception("the worker failed")
            self.failure = InternalError(f"indexing failed: {fault!r}")
        finally:
            hint = "Ask again when it is back."
            self._desk.fail_all(InternalError("the daemon is stopping", hint=hint))
            self._close()
            if self.failure is not None:
                self._on_failure()

    def _close(self) -> None:
        """Close the Map with an empty log: one file that holds everything."""
        try:
            self._writer.checkpoint(truncate=True)
        except FabledError as fault:
            log.warning("the Map's log stays", error=fault.message)
        self._writer.close()

    def _step(self) -> bool:
        """Do the next thing; False when it is time to end."""
        woken = self._desk.wait(None if self._rested else RELEASE_S)
        asked = self._desk.asked()
        if asked.stop:
            return False
        try:
            if asked.suspect:
                self._check()
            if asked.rebuilds:
                self._rebuild(asked.rebuilds)
            self._survey(asked.surveys)
            if not woken:
                self._rest()
            self._read()
        except MapCorrupt as fault:
            self._start_over(fault, [*asked.rebuilds, *asked.surveys])
        except FabledError as fault:
            log.warning("indexing pauses", code=fault.code, error=fault.message)
            self._desk.stall(RETRY_S, fault)
            self._fail([*asked.rebuilds, *asked.surveys], fault)
        return True

    def _fail(self, tickets: Sequence[Ticket], fault: FabledError) -> None:
        for ticket in tickets:
            if not ticket.over:
                ticket.fail(fault)

    def _rest(self) -> None:
        self._indexer.release()
        self._writer.checkpoint()
        self._system.processes.release_memory()
        self._rested = True
        self._children_fail = False

    def _survey(self, tickets: Sequence[Ticket]) -> None:
        if not tickets:
            return
        with self._snapshots.snapshot() as snapshot:
            found = [survey(snapshot, self._system.files, root) for root in self._desk.roots]
        self._desk.surveyed(found, tickets)
        if self._desk.child is None:
            self._desk.queue(self._indexer.retry_stale(), live=False, afresh=True)

    def _read(self) -> None:
        if self._desk.rest_bytes() > OFFLOAD_BYTES and not self._children_fail:
            self._offload(self._writer.path)
            return
        item = self._desk.take()
        if item is None:
            return
        try:
            self._read_one(item)
        except FabledError:
            self._desk.put_back(item)
            raise
        except Exception as fault:  # one transcript must not keep the others from being read
            log.exception("a transcript cannot be indexed", path=item.path)
            refusal = f"internal error in {item.path}: {fault!r}"
            self._desk.handled(Done(item.path, item.asked, 0, 0, refusal))
        self._desk.resume()

    def _read_one(self, item: Item) -> None:
        below = inside(self._system.files, item.path)
        if below is None and not item.path.endswith(SUFFIX):
            below = self._indexer.known_below(item.path)  # a folder that went away
        if below is not None:
            self._desk.queue(below, live=True)
            self._desk.handled(Done(item.path, item.asked, 0, 0, None))
            return
        outcome = self._indexer.index(item.root, item.path, afresh=item.afresh)
        self._rested = self._rested and outcome.bytes_read == 0
        self._desk.queue(outcome.stale, live=False, afresh=True)
        refusal = outcome.refusal.message if outcome.refusal is not None else None
        done = Done(item.path, item.asked, outcome.bytes_read, outcome.records, refusal)
        self._desk.handled(done)

    # --- a child reads a large backlog ---

    def _offload(self, path: str) -> bool:
        """Have a child read everything that differs; True when it did all of it.

        Raises:
            FabledError: What the child met.
        """
        plan = {
            "map": path,
            "roots": list(self._desk.roots),
            "key": self._key.hex(),
            "asked": self._desk.last_asked,
        }
        known = -1  # what waits already is sent as well: the child may find it clean
        offload = Offload(self._system.processes, self._lock_fd, plan, self._desk.wake)
        self._desk.child = offload.pid
        log.info("backfill begins", child=offload.pid)
        complete = False
        faults: list[FabledError] = []
        while not (offload.finished or complete or self._desk.stopping):
            self._desk.wait_beside(lambda: offload.waiting, known)
            self._survey(self._desk.asked_beside())
            known, before = self._desk.last_asked, known
            offload.send(self._desk.newer(before))
            for message in offload.messages():
                faults += self._hear(message)
                complete = offload.knows_all(message.get("idle", -1))
        status = offload.end(END_S)
        self._desk.child = None
        log.info("backfill ends", status=status, complete=complete)
        if faults:
            raise faults[0]
        self._children_fail = not complete and not self._desk.stopping
        return complete

    def _hear(self, message: dict[str, Any]) -> list[FabledError]:
        if "error" in message:
            return [from_wire(*message["error"])]
        if "survey" in message:
            self._desk.expect(message["survey"], message["asked"])
        elif "path" in message:
            self._desk.queue(message["stale"], live=False, afresh=True)
            names = ("path", "asked", "bytes", "records", "refused")
            self._desk.handled(Done(*(message[name] for name in names)))
        return []

    def _rebuild(self, tickets: Sequence[Ticket]) -> None:
        """Build a new Map beside the old one, which answers meanwhile, and swap it in."""
        path = self._writer.path
        fresh = f"{path}.new"
        files = self._system.files
        clear_away(files, fresh)
        complete = False
        try:
            complete = self._offload(fresh)
        finally:
            if not complete:
                clear_away(files, fresh)
        if not complete:
            self._fail(tickets, InternalError("the rebuild was broken off; the Map is as it was"))
            return
        with self._snapshots.closed():
            self._writer.close()
            swap_in(files, fresh, path)
            self._reopen()
        log.info("the Map was rebuilt")
        self._desk.start_over(tickets)

    def _check(self) -> None:
        """Look for damage that a reader met; raises `MapCorrupt` when it is there."""
        self._writer.check()

    def _start_over(self, fault: MapCorrupt, tickets: Sequence[Ticket]) -> None:
        with self._snapshots.closed():
            self._writer.close()
            aside = set_aside(self._system.files, self._writer.path, self._system.clock.now_ms())
            self._reopen()
        log.error("the Map was damaged and is rebuilt", error=fault.message, aside=aside)
        self._desk.note("aside", f"the Map was damaged and is rebuilt; the old one is {aside}")
        self._desk.start_over([ticket for ticket in tickets if not ticket.over])

    def _reopen(self) -> None:
        path, clock = self._writer.path, self._system.clock
        opened = open_map(self._system.files, path, __version__, now_ms=clock.now_ms())
        self._writer = opened.writer
        self._indexer = Indexer(opened.writer, self._system.files, self._key)

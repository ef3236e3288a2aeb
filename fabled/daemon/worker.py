"""The one thread that writes the Map: it reads what waits on the desk, a file a transaction.

A large backlog goes to a child process (see `backfill`), which is the only writer
while it runs. A Map that SQLite finds damaged is set aside and begun anew.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from fabled import __version__
from fabled.cards.shelf import CardShelf
from fabled.daemon.folders import inside
from fabled.daemon.offload import Offload
from fabled.daemon.study import Student
from fabled.daemon.tickets import Done
from fabled.errors import (
    FabledError,
    InternalError,
    MapCorrupt,
    from_wire,
)
from fabled.map.indexer import GONE, READ, Indexer
from fabled.map.opening import clear_away, clear_damaged, open_map, set_aside, swap_in
from fabled.map.reconcile import survey, survey_vault
from fabled.transcript.layout import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabled.daemon.backlog import Item
    from fabled.daemon.desk import Desk
    from fabled.daemon.home import Home
    from fabled.daemon.tickets import Ticket
    from fabled.map.db import Snapshots, Writer
    from fabled.system import System
    from fabled.transcript.veil import Veil
    from fabled.vault.sources import Sources

log = structlog.get_logger("worker")

OFFLOAD_BYTES = 8 << 20
"""A backlog of more than this is read by a child process."""

RETRY_S = 5.0
RELEASE_S = 20.0
SETTLE_S = 2.0
"""A thread that is growing is not studied anew at each of its records."""

SLICE_S = 0.1
END_S = 30.0


class Calls(NamedTuple):
    """Whom the worker tells; called on its own thread.

    Attributes:
        failed: It cannot go on: the daemon is to end.
        gone: These live transcripts were deleted.
    """

    failed: Callable[[], None]
    gone: Callable[[list[str]], None]


class Under(NamedTuple):
    """What the worker works under: the locked home, and what may not be indexed."""

    home: Home
    veil: Veil


class Worker:
    """Owns the writer.

    Args:
        system: The ports.
        desk: Where its work waits.
        writer: The Map, open; the worker closes it.
        snapshots: The readers, which stand aside while the Map is swapped.
        sources: The file system and the Vault.
        under: The home, whose lock a child inherits, and what is not indexed.
        calls: Whom to tell.

    Attributes:
        failure: Why the worker could not go on.
    """

    def __init__(
        self,
        system: System,
        desk: Desk,
        writer: Writer,
        snapshots: Snapshots,
        sources: Sources,
        under: Under,
        calls: Calls,
    ) -> None:
        self._system = system
        self._desk = desk
        self._writer = writer
        self._snapshots = snapshots
        self._sources = sources
        self._home = under.home
        self._veil = under.veil
        self._lock_fd = under.home.lock.fd
        self._calls = calls
        self._gone: list[str] = []
        self.failure: FabledError | None = None
        self._indexer = Indexer(writer, sources, under.veil)
        self._student = Student(sources, under.veil, CardShelf(system.files, under.home.cards))
        self._busy_since: float | None = None
        self._unstudied = True
        self._studying = False
        self._studies: list[Ticket] = []
        self._rested = True
        self._children_fail = False
        self._thread = threading.Thread(target=self._run, name="worker")

    def busy_since(self) -> float | None:
        """Since when it has been in one step, on the monotonic clock; None while it waits."""
        return self._busy_since

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
                self._calls.failed()

    def _close(self) -> None:
        """Close the Map with an empty log: one file that holds everything."""
        try:
            self._writer.checkpoint(truncate=True)
        except FabledError as fault:
            log.warning("the Map's log stays", error=fault.message)
        self._writer.close()

    def _step(self) -> bool:
        """Do the next thing; False when it is time to end."""
        self._busy_since = None
        woken = self._desk.wait(self._patience())
        self._busy_since = self._system.clock.monotonic_s()
        asked = self._desk.asked()
        self._studies += asked.studies
        if asked.stop:
            self._fail(self._studies, InternalError("the daemon is stopping"))
            return False
        try:
            if asked.suspect:
                self._check()
            if asked.rebuilds:
                self._rebuild(asked.rebuilds)
            self._survey(asked.surveys)
            if not woken and not self._unstudied:
                self._rest()
            self._read()
            if not woken or self._studies:
                self._study()
            self._scrub(asked.scrubs)
            self._tell()
        except MapCorrupt as fault:
            self._start_over(fault, [*asked.rebuilds, *asked.surveys, *asked.scrubs])
        except FabledError as fault:
            log.warning("indexing pauses", code=fault.code, error=fault.message)
            self._desk.stall(RETRY_S, fault)
            self._fail([*asked.rebuilds, *asked.surveys, *asked.scrubs], fault)
        return True

    def _patience(self) -> float | None:
        """How long to wait for other work before the next slice of study, or a rest."""
        if self._studies or self._studying:
            return 0.0
        if self._unstudied:
            return SETTLE_S
        return None if self._rested else RELEASE_S

    def _study(self) -> None:
        """Derive terms and cards, a slice at a time, while nothing waits to be read."""
        if self._desk.work().pending.files:
            return
        self._student.again(self._writer, self._desk.to_restudy())
        done = self._student.slice(self._writer, self._system.clock, SLICE_S)
        self._unstudied = self._studying = done.left
        self._rested = self._rested and not done.threads
        self._desk.queue(done.stale, live=False, afresh=True)
        if not done.left:
            studies, self._studies = self._studies, []
            for ticket in studies:
                ticket.finish()

    def _fail(self, tickets: Sequence[Ticket], fault: FabledError) -> None:
        for ticket in tickets:
            if not ticket.over:
                ticket.fail(fault)

    def _scrub(self, tickets: Sequence[Ticket]) -> None:
        if not tickets:
            return
        clear_damaged(self._system.files, self._writer.path)
        with self._snapshots.closed():  # a reader would keep the log from being emptied
            self._writer.scrub()
        for ticket in tickets:
            ticket.finish()

    def _tell(self) -> None:
        """Pass on what was deleted, once nothing waits any more: deletions come in crowds."""
        if self._gone and not self._desk.work().pending.files:
            gone, self._gone = self._gone, []
            self._calls.gone(gone)

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
            if self._sources.catalogue is not None:
                found.append(survey_vault(snapshot, self._sources.catalogue))
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
        sealed = item.root == self._sources.vault_root
        below = None if sealed else inside(self._system.files, item.path)
        if below is None and not sealed and not item.path.endswith(SUFFIX):
            below = self._indexer.known_below(item.path)  # a folder that went away
        if below is not None:
            self._desk.queue(below, live=True)
            self._desk.handled(Done(item.path, item.asked, 0, 0, None))
            return
        outcome = self._indexer.index(item.root, item.path, afresh=item.afresh)
        self._rested = self._rested and outcome.bytes_read == 0
        self._unstudied = self._unstudied or outcome.action in {READ, GONE}
        if outcome.action == GONE and not sealed:
            self._gone.append(item.path)
        self._desk.queue(outcome.stale, live=False, afresh=True)
        refusal = outcome.refusal.message if outcome.refusal is not None else None
        done = Done(item.path, item.asked, outcome.bytes_read, outcome.records, refusal, sealed)
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
            "vault": self._sources.vault_root,
            "tombstones": list(self._home.tombstones),
            "cards": self._home.cards,
            "key": self._veil.key.hex(),
            "redact": self._veil.redact,
            "asked": self._desk.last_asked,
        }
        known = -1  # what waits already is sent as well: the child may find it clean
        offload = Offload(self._system.processes, self._lock_fd, plan, self._desk.wake)
        self._desk.child = offload.pid
        log.info("backfill begins", child=offload.pid)
        complete = False
        faults: list[FabledError] = []
        while not (offload.finished or complete or self._desk.stopping):
            self._busy_since = None  # the child is asked for signs of life by its messages
            self._desk.wait_beside(lambda: offload.waiting, known)
            self._busy_since = self._system.clock.monotonic_s()
            self._survey(self._desk.asked_beside())
            known, before = self._desk.last_asked, known
            offload.send(self._desk.newer(before))
            for message in offload.messages():
                faults += self._hear(message)
                complete = offload.knows_all(message.get("idle", -1))
        self._unstudied = True
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
            if message["gone"]:
                self._gone.append(message["path"])
            names = ("path", "asked", "bytes", "records", "refused", "sealed")
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
        opened = open_map(self._system.files, path, __version__, self._veil, now_ms=clock.now_ms())
        self._writer = opened.writer
        self._indexer = Indexer(opened.writer, self._sources, self._veil)
        self._unstudied = True

"""Where work for the Map is left and looked up: backlog, asked passes, warnings, progress.

Any thread may leave work here; one thread, the worker, does it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.daemon.backlog import Backlog, Item, Pending
from fabled.daemon.tickets import Done, Meter, Progress, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabled.errors import FabledError
    from fabled.map.reconcile import Survey

REFUSALS_SHOWN = 20


class Work(NamedTuple):
    """What is being done at this moment, for `status`."""

    pending: Pending
    progress: Progress | None
    surveyed: bool
    warnings: tuple[str, ...]
    child: int | None


class Asked(NamedTuple):
    """What the worker is to do next, beside the backlog."""

    stop: bool
    suspect: bool
    rebuilds: list[Ticket]
    surveys: list[Ticket]
    scrubs: list[Ticket]
    studies: list[Ticket]


class Desk:
    """Safe to share between threads.

    Args:
        roots: Projects folders.
        monotonic_s: The clock.
        vault: The Vault's folder, whose strands are work as well.
    """

    def __init__(
        self, roots: Sequence[str], monotonic_s: Callable[[], float], vault: str | None = None
    ) -> None:
        self._vault = vault
        self._now = monotonic_s
        self._changed = threading.Condition()
        self._roots = tuple(roots)
        self._backlog = Backlog()
        self._tickets: list[Ticket] = []
        self._surveys: list[Ticket] = []
        self._rebuilds: list[Ticket] = []
        self._scrubs: list[Ticket] = []
        self._studies: list[Ticket] = []
        self._restudy: set[str] = set()
        self._meter = Meter()
        self._refused: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._asked = 0
        self._surveyed = False
        self._suspect = False
        self._stop = False
        self._retry_at_s: float | None = None
        self.child: int | None = None

    # --- leaving work ---

    @property
    def roots(self) -> tuple[str, ...]:
        """The projects folders."""
        return self._roots

    def mark(self, path: str) -> None:
        """A path below a root may have changed. Cheap: called for every file event."""
        if path.endswith(".meta.json"):
            path = path.removesuffix(".meta.json") + ".jsonl"
        self.queue([path], live=True)

    def queue(self, paths: Sequence[str], *, live: bool, afresh: bool = False) -> None:
        """Leave paths to be read; those below no root are nobody's business."""
        with self._changed:
            for path in paths:
                self._add(path, 0, live=live, afresh=afresh)
            self._changed.notify_all()

    def queue_sealed(self, paths: Sequence[str]) -> None:
        """Leave strands to be read, wherever their files lie."""
        with self._changed:
            for path in paths:
                self._asked += 1
                item = Item(self._vault or "", path, 0, self._now(), self._asked)
                self._backlog.add(item, live=True)
            self._changed.notify_all()

    def _add(
        self, path: str, size: int, *, live: bool, afresh: bool = False, root: str | None = None
    ) -> None:
        root = root or self.root_of(path)
        if root is not None:
            self._asked += 1
            item = Item(root, path, size, self._now(), self._asked, afresh)
            self._backlog.add(item, live=live)

    def ask_survey(self) -> Ticket:
        """Compare the roots with the Map; over when all that it found is readable."""
        return self._ask(self._surveys)

    def ask_rebuild(self) -> Ticket:
        """Build the Map anew beside the old one and swap it in."""
        return self._ask(self._rebuilds)

    def ask_scrub(self) -> Ticket:
        """Leave nothing of what was deleted from the Map on the disk."""
        return self._ask(self._scrubs)

    def restudy(self, threads: Sequence[str]) -> None:
        """Derive terms and cards of these threads anew, by their keys, with the next study."""
        with self._changed:
            self._restudy.update(threads)

    def to_restudy(self) -> list[str]:
        """Take what was asked for."""
        with self._changed:
            found, self._restudy = sorted(self._restudy), set()
            return found

    def ask_study(self) -> Ticket:
        """Derive terms and cards of every thread that changed; the ticket is over then."""
        return self._ask(self._studies)

    def refresh(self, paths: Sequence[str], timeout_s: float) -> bool:
        """Have files read afresh now; False when that took longer than the time given."""
        ticket = Ticket()
        with self._changed:
            for path in paths:
                self._add(path, 0, live=True, afresh=True)
            waiting = self._backlog.paths()
            ticket.begin({path: waiting[path] for path in paths if path in waiting})
            self._tickets.append(ticket)
            self._changed.notify_all()
        return ticket.wait(timeout_s)

    def suspect(self) -> None:
        """A reader found the Map damaged: the worker is to look into it."""
        with self._changed:
            self._suspect = True
            self._changed.notify_all()

    def stop(self) -> None:
        """The worker is to finish the file in hand and end."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()

    def note(self, name: str, text: str | None) -> None:
        """Set a warning for `status`, or take it back."""
        with self._changed:
            if text is None:
                self._notes.pop(name, None)
            else:
                self._notes[name] = text

    def work(self) -> Work:
        """What is being done at this moment."""
        now = self._now()
        with self._changed:
            pending = self._backlog.pending(now)
            refused = [*self._refused.values()]
            more = len(refused) - REFUSALS_SHOWN
            warnings = [*self._notes.values(), *refused[:REFUSALS_SHOWN]]
            if more > 0:
                warnings.append(f"{more} more files or folders cannot be read")
            progress = self._meter.progress(pending.bytes, now)
            return Work(pending, progress, self._surveyed, tuple(warnings), self.child)

    def root_of(self, path: str) -> str | None:
        """The root a path lies below, the deepest when roots are nested; or the Vault."""
        if self._vault is not None and path.startswith(self._vault + "/"):
            return self._vault
        fits = [root for root in self._roots if path.startswith(root + "/")]
        return max(fits, key=len, default=None)

    def _ask(self, queue: list[Ticket]) -> Ticket:
        ticket = Ticket()
        with self._changed:
            queue.append(ticket)
            self._changed.notify_all()
        return ticket

    # --- the worker's side ---

    def wake(self) -> None:
        """Let the worker look again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, idle_s: float | None) -> bool:
        """Wait for work; False when none came within `idle_s` (None: however long it takes).

        After `stall` queued paths do not count as work until the pause is over.
        """

        def ready() -> bool:
            asked = self._surveys or self._rebuilds or self._scrubs or self._studies
            return bool(
                self._stop or self._suspect or asked or (len(self._backlog) and not self._stalled())
            )

        with self._changed:
            if self._stalled():
                idle_s = (self._retry_at_s or 0) - self._now()
                return self._changed.wait_for(ready, idle_s) or len(self._backlog) > 0
            return self._changed.wait_for(ready, idle_s)

    def wait_beside(self, heard: Callable[[], bool], asked: int) -> None:
        """While a child reads: wait until it said something, or something has to be done.

        Args:
            heard: Whether the child said something.
            asked: The last request that the child knows of.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: heard() or self._stop or self._surveys or self._asked > asked
            )

    @property
    def stopping(self) -> bool:
        """The worker is to end."""
        return self._stop

    def asked_beside(self) -> list[Ticket]:
        """Take the surveys asked for while a child reads; the rest waits until it has ended."""
        with self._changed:
            surveys, self._surveys = self._surveys, []
            return surveys

    @property
    def last_asked(self) -> int:
        """Number of the last request: a reading that begins now serves all up to it."""
        return self._asked

    def expect(self, files: Sequence[Sequence[Any]], asked: int) -> None:
        """A child that began after request `asked` found these [path, root, bytes] to read."""
        now = self._now()
        with self._changed:
            for path, root, size in files:
                self._backlog.add(Item(root, path, size, now, asked), live=False)
            self._meter.begin(now)

    def _stalled(self) -> bool:
        return self._retry_at_s is not None and self._now() < self._retry_at_s

    def asked(self) -> Asked:
        """Take what was asked; rebuilds and surveys are the worker's to finish."""
        with self._changed:
            asked = Asked(
                self._stop,
                self._suspect,
                self._rebuilds,
                self._surveys,
                self._scrubs,
                self._studies,
            )
            self._rebuilds, self._surveys, self._scrubs, self._studies = [], [], [], []
            self._suspect = False
            return asked

    def take(self) -> Item | None:
        """The next path to read; None while stalled or when there is none."""
        with self._changed:
            item = None if self._stalled() else self._backlog.take()
            if item is not None:
                self._meter.begin(self._now())
            return item

    def newer(self, asked: int) -> list[Item]:
        """The paths asked for after a request, for a child to read; they stay pending."""
        with self._changed:
            return self._backlog.newer(asked)

    def rest_bytes(self) -> int:
        """Bytes waiting behind the live paths; 0 while stalled."""
        with self._changed:
            return 0 if self._stalled() else self._backlog.rest_bytes()

    def surveyed(self, found: Sequence[Survey], tickets: Sequence[Ticket]) -> None:
        """Queue what surveys found; the tickets are over when all that waits now is done."""
        now = self._now()
        with self._changed:
            self._refused = {}
            for one in found:
                self._refused.update(one.refused)
                for dirty in one.dirty:
                    self._add(dirty.path, dirty.pending_bytes, live=False, root=dirty.root)
                for path in one.gone:
                    self._add(path, 0, live=False, root=one.root)
            self._surveyed = True
            for ticket in tickets:
                ticket.begin(self._backlog.paths())
            self._tickets += [ticket for ticket in tickets if not ticket.over]
            if len(self._backlog):
                self._meter.begin(now)
            else:
                self._meter.rest()

    def handled(self, done: Done) -> None:
        """A path was brought up to date, or cannot be."""
        with self._changed:
            self._backlog.put_down()
            self._backlog.discard_done(done.path, done.asked)
            self._meter.add(done.bytes, self._now())
            if done.refusal is None:
                self._refused.pop(done.path, None)
            else:
                self._refused[done.path] = done.refusal
            if not len(self._backlog):
                self._meter.rest()
            for ticket in self._tickets:
                ticket.handled(done)
            self._tickets = [ticket for ticket in self._tickets if not ticket.over]

    def put_back(self, item: Item) -> None:
        """A path could not be read now."""
        with self._changed:
            self._backlog.put_down()
            self._backlog.add(item, live=False)

    def stall(self, pause_s: float, fault: FabledError) -> None:
        """Pause for a while, and tell those who wait for a pass why."""
        with self._changed:
            self._retry_at_s = self._now() + pause_s
            self._notes["stalled"] = fault.message
            tickets, self._tickets = self._tickets, []
        for ticket in tickets:
            ticket.fail(fault)

    def resume(self) -> None:
        """Writing works again."""
        with self._changed:
            self._retry_at_s = None
            self._notes.pop("stalled", None)

    def start_over(self, tickets: Sequence[Ticket]) -> None:
        """The Map is a new one: forget what waits and survey again.

        Whoever waits for a pass, `tickets` among them, waits for that survey's.
        """
        with self._changed:
            self._backlog.clear()
            self._surveys += [*self._tickets, *tickets] or [Ticket()]
            self._tickets = []
            self._changed.notify_all()

    def fail_all(self, fault: FabledError) -> None:
        """Nobody will do what is still asked."""
        with self._changed:
            asked = [*self._surveys, *self._rebuilds, *self._scrubs, *self._studies]
            waiting = [*self._tickets, *asked]
        for ticket in waiting:
            ticket.fail(fault)

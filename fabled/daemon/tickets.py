"""Passes that somebody waits for, and how far the running one is."""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fabled.errors import FabledError


class Progress(NamedTuple):
    """How far a pass is; `eta_s` is None until there is something to go by."""

    done_bytes: int
    total_bytes: int
    eta_s: float | None


class Done(NamedTuple):
    """A path that was read.

    Attributes:
        asked: The reading began after this request.
        refusal: Why it could not be read.
        sealed: It is a strand of the Vault, and no transcript to be counted.
    """

    path: str
    asked: int
    bytes: int
    records: int
    refusal: str | None
    sealed: bool = False


class Ticket:
    """One asked pass. Safe to share between threads."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._paths: dict[str, int] | None = None
        self._over = False
        self.files = 0
        self.bytes = 0
        self.records = 0
        self.refused = 0
        self.error: FabledError | None = None

    def begin(self, paths: dict[str, int]) -> None:
        """The pass consists of these paths, each asked for with this number."""
        with self._changed:
            self._paths = dict(paths)
            self._settle()

    def handled(self, done: Done) -> None:
        """A path was brought up to date, or cannot be."""
        with self._changed:
            if self._paths is None or self._paths.get(done.path, done.asked + 1) > done.asked:
                return
            del self._paths[done.path]
            if done.sealed and done.refusal is None:
                self._settle()
                return
            self.files += done.refusal is None
            self.refused += done.refusal is not None
            self.bytes += done.bytes
            self.records += done.records
            self._settle()

    def fail(self, error: FabledError) -> None:
        """The pass cannot be completed now."""
        with self._changed:
            self.error = error
            self._finish()

    def finish(self) -> None:
        """The pass is complete, whatever was left."""
        with self._changed:
            self._finish()

    def _settle(self) -> None:
        if not self._paths:
            self._finish()

    def _finish(self) -> None:
        self._over = True
        self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether the pass is complete or failed."""
        return self._over

    def wait(self, timeout_s: float) -> bool:
        """Wait until the pass is over; False when the time ran out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._over, timeout_s)


class Meter:
    """Measures the running pass from the first waiting byte to the last."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._done = 0
        self._running = False

    def add(self, size: int, now_s: float) -> None:
        """So many bytes were read."""
        if not self._running:
            self._began_s, self._done, self._running = now_s, 0, True
        self._done += size

    def begin(self, now_s: float) -> None:
        """Something is waiting; a pass that runs already goes on."""
        if not self._running:
            self._began_s, self._done, self._running = now_s, 0, True

    def rest(self) -> None:
        """Nothing is waiting any more."""
        self._running = False

    def progress(self, waiting_bytes: int, now_s: float) -> Progress | None:
        """None when no pass is running."""
        if not self._running:
            return None
        spent = now_s - self._began_s
        eta = waiting_bytes * spent / self._done if self._done and spent > 0 else None
        return Progress(self._done, self._done + waiting_bytes, eta)

"""Whether the daemon is alive: it answers a question about the present, and its writer moves.

Not a timer that ticks in a thread of its own: a daemon that hangs must not look alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fabled.errors import FabledError
from fabled.map.db import Deadline

if TYPE_CHECKING:
    from fabled.map.db import Snapshots
    from fabled.system import Clock

HUNG_S = 600.0
"""One step of the writer never takes so long: the longest is one transcript of gigabytes."""

QUESTION_S = 10.0


class Writer(Protocol):
    """Who writes the Map, as far as its pulse goes."""

    def busy_since(self) -> float | None:
        """Since when it has been in one step, on the monotonic clock; None while it waits."""


class Vitality:
    """Asked from time to time; says what is wrong, if anything is.

    Args:
        clock: The clock.
        snapshots: The Map, for reading.
        writer: The worker.
        hung_s: How long one step of the writer may take.
    """

    def __init__(
        self, clock: Clock, snapshots: Snapshots, writer: Writer, *, hung_s: float = HUNG_S
    ) -> None:
        self._clock = clock
        self._snapshots = snapshots
        self._writer = writer
        self._hung_s = hung_s

    def trouble(self) -> str | None:
        """Why it would be wrong to say that all is well; None when it is."""
        since = self._writer.busy_since()
        if since is not None and self._clock.monotonic_s() - since > self._hung_s:
            return f"the writer has been in one step for more than {self._hung_s:.0f} s"
        try:
            deadline = Deadline(self._clock.monotonic_s, QUESTION_S)
            with self._snapshots.snapshot(deadline) as snapshot:
                snapshot.value("SELECT count(*) FROM sessions")
        except FabledError as fault:
            return f"the Map does not answer: {fault.message}"
        return None

"""Long work that somebody follows: it runs to its end, whether or not he still listens."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from fabled.daemon.replies import error_body, json_bytes
from fabled.errors import FabledError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Say: TypeAlias = "Callable[[dict[str, Any]], None]"
"""Reports one step."""

Work: TypeAlias = "Callable[[Say], None]"
log = structlog.get_logger("errands")

TICK_S = 0.5


class Errand:
    """One piece of work in a thread of its own, begun at once.

    Args:
        name: For the thread and the log.
        work: Does it; is given a function that reports a step.
    """

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work
        self._steps: deque[dict[str, Any]] = deque()
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._say)
        except FabledError as fault:
            self._say(error_body(fault))
        except Exception:  # the follower is told; the log has the traceback
            log.exception("an errand failed", name=self.name)
            self._say(error_body(InternalError(f"{self.name} failed; the daemon's log says how")))
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _say(self, step: dict[str, Any]) -> None:
        with self._changed:
            self._steps.append(step)
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """The work has ended."""
        return self._over

    def lines(self) -> Iterator[bytes]:
        """Each step as a line, when it is there, until the work is over."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._steps or self._over, TICK_S)
                if not self._steps and self._over:
                    return
                ready = [self._steps.popleft() for _ in range(len(self._steps))]
            for step in ready:
                yield json_bytes(step) + b"\n"

    def join(self) -> None:
        """Wait until the work is over."""
        self._thread.join()

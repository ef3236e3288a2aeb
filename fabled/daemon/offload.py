"""The daemon's side of a backfill: start the child, feed it, hear it, end it."""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabled.daemon.backlog import Item
    from fabled.system import Processes


class Offload:
    """One child process. Everything but the hearing happens on the owner's thread.

    Args:
        processes: The port that starts it.
        lock_fd: The home's lock, inherited: while the child lives, no other daemon starts.
        plan: Map, roots and key, as the child expects them.
        wake: Called when a message has arrived.
    """

    def __init__(
        self,
        processes: Processes,
        lock_fd: int,
        plan: dict[str, Any],
        wake: Callable[[], None],
    ) -> None:
        self._wake = wake
        self._messages: deque[dict[str, Any]] = deque()
        self._sent = 0
        self._broken = False
        self._child = processes.spawn(
            [sys.executable, "-I", "-m", "fabled.daemon.backfill"], pass_fds=(lock_fd,)
        )
        self._write(plan)
        self._ear = threading.Thread(target=self._hear, name="backfill")
        self._ear.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    @property
    def waiting(self) -> bool:
        """There is something to hear, or nothing more will come."""
        return bool(self._messages) or not self._ear.is_alive()

    @property
    def finished(self) -> bool:
        """The child has ended and everything it said was taken."""
        return not self._ear.is_alive() and not self._messages

    def messages(self) -> list[dict[str, Any]]:
        """What the child said since the last time."""
        taken: list[dict[str, Any]] = []
        while self._messages:
            taken.append(self._messages.popleft())
        return taken

    def send(self, items: Sequence[Item]) -> None:
        """Have the child read these paths next."""
        for item in items:
            self._sent += 1
            self._write(item._asdict())

    def knows_all(self, idle: int) -> bool:
        """Whether a child that was idle after so many lines has nothing left to do."""
        return idle == self._sent

    def end(self, timeout_s: float) -> int | None:
        """Let the child finish its file and end; None when it had to be killed."""
        try:
            self._child.stdin.close()
        except BrokenPipeError:
            self._broken = True
        status = self._child.wait(timeout_s)
        if status is None:
            self._child.kill()  # one transaction a file: this is as harmless as a power cut
            self._child.wait(timeout_s)
        self._ear.join()
        self._child.close()
        return status

    def _write(self, message: dict[str, Any]) -> None:
        if self._broken:
            return
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            self._broken = True  # it has ended; its exit status says why

    def _hear(self) -> None:
        for line in self._child.stdout:
            if line.endswith(b"\n"):
                self._messages.append(json.loads(line))
                self._wake()
        self._wake()

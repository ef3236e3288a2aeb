"""Old files that somebody may still write to: what comes is appended to the live one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabled.errors import NotFound

if TYPE_CHECKING:
    from fabled.system import LiveFile, System

FOLLOW_S = 30.0
"""How long an old file is followed after nobody had it open any more."""


@dataclass(slots=True)
class _Old:
    file: LiveFile
    path: str
    end: int
    note: str
    until_s: float
    held: bool
    leases: bool


class Follower:
    """Safe to share between threads. `look` has to be called every second or so.

    Args:
        system: The ports.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._olds: list[_Old] = []
        self.late_bytes = 0

    def add(
        self, file: LiveFile, path: str, end: int, note: str, *, held: bool, quickly: bool
    ) -> None:
        """Follow an old file from an offset on; it is ours now, with its note and second name.

        Args:
            file: Open.
            path: The live file that took its place.
            end: What is before it was carried over.
            note: The note in the home; removed at the end.
            held: Somebody has it open for writing.
            quickly: A lease can tell when nobody has; else the time alone decides.
        """
        until = self._system.clock.monotonic_s() + FOLLOW_S
        with self._lock:
            old = _Old(file, path, end, note, until, held, quickly)
            self._olds.append(old)
            self._remember(old)
        self.look()

    def _remember(self, old: _Old) -> None:
        """Let the second name say how far the file was carried over.

        After a crash, what may have been pruned since must not be carried over again.
        """
        for entry in second_names(self._system, old.path, old.note):
            name = f"{entry.rpartition('.')[0]}.{old.end}"
            if name != entry:
                self._system.files.replace(entry, name)

    @property
    def busy(self) -> bool:
        """Something is being followed."""
        return bool(self._olds)

    def held(self) -> list[str]:
        """Live files whose old one somebody still has open."""
        with self._lock:
            return [old.path for old in self._olds if old.held]

    def look(self) -> int:
        """Carry over what came; let go of what nobody can write to. Returns bytes carried."""
        with self._lock:
            carried = sum(self._forward(old) for old in self._olds)
            self._olds = [old for old in self._olds if not self._over(old)]
        self.late_bytes += carried
        return carried

    def _forward(self, old: _Old) -> int:
        size = old.file.stat().size
        if size <= old.end:
            return 0
        data = old.file.pread(old.end, size - old.end)
        data = data[: data.rfind(b"\n") + 1]
        if not data or not self._system.files.append_live(old.path, data):
            return 0
        old.end += len(data)
        self._remember(old)
        return len(data)

    def _over(self, old: _Old) -> bool:
        if self._system.clock.monotonic_s() < old.until_s:
            return False
        if old.leases and old.file.lease():
            old.file.unlease()
            old.held = False
        elif old.leases:
            old.held = True
            return False
        if old.file.stat().size > old.end and self._rest(old):
            return False  # bytes that could not be carried over stay where they are found
        self._let_go(old)
        return True

    def _rest(self, old: _Old) -> bool:
        data = old.file.pread(old.end, old.file.stat().size - old.end)
        return b"\n" in data

    def _let_go(self, old: _Old) -> None:
        old.file.close()
        forget(self._system, old.path, old.note)

    def close(self) -> None:
        """Look once more and close every file; notes and names stay for the next start."""
        self.look()
        with self._lock:
            for old in self._olds:
                old.file.close()
            self._olds = []


def forget(system: System, path: str, note: str) -> None:
    """Remove the second name of an old file, then its note."""
    for name in second_names(system, path, note):
        system.files.remove(name)
    system.files.remove(note)


def second_names(system: System, path: str, note: str) -> list[str]:
    """The second names that a note is about; there is at most one."""
    label = note.rpartition("/")[2].removesuffix(".json")
    try:
        entries = system.files.scan(path.rpartition("/")[0])
    except NotFound:
        return []
    return [entry.path for entry in entries if entry.name.startswith(f".fabled-old-{label}.")]

"""The operating system as ports: files, clock and processes, with the real ones.

Everything else sees the `Protocol` classes only, so that a test can hand in a disk
that is full or a clock that jumps. `OSError` ends here: no room becomes `DiskFull`,
nothing there becomes `None` or `NotFound` as each method says, and any other refusal
becomes `AccessDenied` with the path and the system's own words.
"""

from __future__ import annotations

from fabled.system.effects import Effects
from fabled.system.files import PosixFiles
from fabled.system.ports import (
    Child,
    Clock,
    Entry,
    Files,
    FileStat,
    LiveFile,
    Lock,
    NewFile,
    Opener,
    OpenFile,
    Processes,
    System,
)
from fabled.system.processes import PosixProcesses, SystemClock

__all__ = [
    "Child",
    "Clock",
    "Effects",
    "Entry",
    "FileStat",
    "Files",
    "LiveFile",
    "Lock",
    "NewFile",
    "OpenFile",
    "Opener",
    "Processes",
    "System",
    "real",
]


def real() -> System:
    """The operating system itself."""
    return System(PosixFiles(), SystemClock(), PosixProcesses())

"""Old files that somebody may still write to: what comes is appended to the live one.

Nothing that was completely written to an old file is given up. What was appended is
carried over as bytes; where the old file was changed in another way, its new lines are.
An old file is let go when nobody has it open any more and its every byte is accounted
for; until then it has a second name and a note, so that a restart goes on with it.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import FabledError, NotFound
from fabled.prune import carrying

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabled.prune.carrying import Ledger
    from fabled.system import LiveFile, OpenFile, System

FOLLOW_S = 30.0
"""How long an old file is followed after the last change, though nobody has it open."""

BLIND_S = 86_400.0
"""How long, where no lease can tell whether somebody still has it open."""

OLD_NAME = ".fabled-old-"
"""How the second name of an old file begins; the client ignores such names."""


@dataclass(slots=True)
class Old:
    """One old file.

    Attributes:
        file: Open; the follower's own.
        path: The live file that took its place.
        note: The note in the home; removed at the end.
        extra: Another name of it to remove at the end.
        start: What is before it, the new image is about.
        end: What is before it was carried over.
        leases: A lease can tell when nobody has it open; else the time alone decides.
        original: Opens what the old file was, out of the Vault.
        carried: Lines carried over so far.
        held: Somebody has it open for writing.
        fresh: It lost its name just now: somebody may be about to open it who looked the
            name up before. Else a lease is proof enough.
    """

    file: LiveFile
    path: str
    note: str
    start: int
    end: int
    leases: bool
    original: Callable[[], OpenFile]
    carried: Ledger
    held: bool = True
    fresh: bool = True
    extra: str = ""
    until_s: float = 0.0
    blind_until_s: float = 0.0
    seen: tuple[int, int] | None = None
    hashed: hashlib._Hash | None = None
    basis: Ledger | None = None
    torn_at: int | None = None
    dirty: bool = field(default=True)


class Looked(NamedTuple):
    """What one look did: bytes carried over, and what could not be done."""

    carried: int
    faults: tuple[FabledError, ...]


class Follower:
    """Safe to share between threads. `look` has to be called every second or so.

    Args:
        system: The ports.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._files = system.files
        self._lock = threading.Lock()
        self._olds: list[Old] = []
        self.late_bytes = 0

    def add(self, old: Old) -> Looked:
        """Follow an old file; it is ours now, with its note and second name."""
        now = self._system.clock.monotonic_s()
        old.until_s = now + FOLLOW_S if old.fresh or not old.leases else now
        old.blind_until_s = now + BLIND_S
        with self._lock:
            self._olds.append(old)
            faults: tuple[FabledError, ...] = ()
            try:
                self._remember(old)
            except FabledError as fault:
                faults = (fault,)
            looked = self._look()
            return looked._replace(faults=faults + looked.faults)

    @property
    def busy(self) -> bool:
        """Something is being followed."""
        return bool(self._olds)

    def held(self) -> list[str]:
        """Live files whose old one somebody still has open."""
        with self._lock:
            return [old.path for old in self._olds if old.held]

    def settled(self, path: str) -> bool:
        """Whether nothing more can come to a live file from old ones; lets go of those at once.

        Without leases: whether nothing has come for `FOLLOW_S`.
        """
        now = self._system.clock.monotonic_s()
        with self._lock:
            for old in [one for one in self._olds if one.path == path]:
                if old.leases:
                    old.until_s = min(old.until_s, now)
            self._look()
            return not any(
                old.path == path and (old.leases or old.until_s > now) for old in self._olds
            )

    def look(self) -> Looked:
        """Carry over what came; let go of what nobody can write to."""
        with self._lock:
            return self._look()

    def _look(self) -> Looked:
        carried = 0
        faults: list[FabledError] = []
        left: list[Old] = []
        for old in self._olds:
            over = False
            try:  # one that cannot be carried over must not keep the others waiting
                carried += self._forward(old)
                late, over = self._over(old)
                carried += late
            except FabledError as fault:
                faults.append(fault)
            if not over:
                left.append(old)
        self._olds = left
        self.late_bytes += carried
        return Looked(carried, tuple(faults))

    # --- carrying over ---

    def _forward(self, old: Old, *, last: bool = False) -> int:
        """Carry over what came since the last look; with `last`, an unfinished line as well."""
        stat = old.file.stat()
        state = (stat.size, stat.mtime_ns)
        if state == old.seen and not last:
            return 0
        if state != old.seen and old.seen is not None:
            old.until_s = max(old.until_s, self._system.clock.monotonic_s() + FOLLOW_S)
        if self._intact(old, stat.size, closely=last or old.hashed is None):
            done, whole = self._append(old, stat.size, last=last)
        else:
            done, whole = self._merge(old, stat.size, last=last)
        if whole:
            old.seen = state  # else it is tried again, changed or not
        old.dirty = old.dirty or done > 0
        return done

    def _intact(self, old: Old, size: int, *, closely: bool) -> bool:
        """Whether what was carried over is still what the old file begins with."""
        if size < old.end:
            return False
        if old.basis is not None and old.hashed is None:
            return False  # it was rewritten before; the last merge could not be finished
        if old.hashed is None:
            old.hashed = self._first_hash(old)
            return old.hashed is not None
        if not closely:
            return True  # the last look compares every byte
        return _hash(old.file, old.end).digest() == old.hashed.digest()

    def _first_hash(self, old: Old) -> hashlib._Hash | None:
        """Compare with the Vault; None when it is not what was sealed."""
        with old.original() as original:
            sealed = _hash(original, old.start)
        mine = _hash(old.file, old.start)
        if mine.digest() != sealed.digest():
            return None
        tail = carrying.ledger(carrying.lines(old.file, old.start, old.end))
        if tail - old.carried:
            return None
        return _hash(old.file, old.end)

    def _append(self, old: Old, size: int, *, last: bool) -> tuple[int, bool]:
        if old.torn_at is not None and self._torn(old.path) != old.torn_at:
            # Room ran out inside a line, and somebody wrote behind it: that line once more.
            old.end = _line_start(old.file, old.end)
            old.hashed, old.torn_at = _hash(old.file, old.end), None
        data = old.file.pread(old.end, size - old.end)
        if not last:
            data = data[: data.rfind(b"\n") + 1]
        if not data:
            return 0, True
        closing = b"" if data.endswith(b"\n") else b"\n"
        done = min(len(data), self._put(old, data + closing))
        piece = data[:done]
        old.carried += carrying.ledger(piece.split(b"\n")[:-1])
        if old.hashed is not None:
            old.hashed.update(piece)
        old.end += done
        self._remember(old)
        return done, done == len(data)

    def _merge(self, old: Old, size: int, *, last: bool) -> tuple[int, bool]:
        """Somebody changed the old file's beginning: carry over the lines that are new in it."""
        if old.basis is None:
            with old.original() as original:
                old.basis = carrying.ledger(carrying.lines(original, 0, old.start))
        old.hashed = None
        found = list(carrying.lines(old.file, 0, size))
        if found and not found[-1].endswith(b"\n") and not last:
            found.pop()
        new = carrying.surplus(found, old.basis + old.carried)
        done = 0
        for line in new:
            whole = line if line.endswith(b"\n") else line + b"\n"
            put = self._put(old, whole)
            done += put
            if put < len(whole):
                return done, False
            old.carried[carrying.digest(line)] += 1
        old.end = sum(map(len, found))
        old.hashed = _hash(old.file, old.end)
        self._remember(old)
        return done, True

    def _put(self, old: Old, data: bytes) -> int:
        """Append to the live file, behind a whole line; returns how much of the data was taken."""
        torn = self._torn(old.path)
        head = b"\n" if torn is not None and torn != old.torn_at else b""
        taken = self._files.append_live(old.path, head + data)
        if taken is None:
            raise NotFound(
                f"{old.path} is gone, and {len(data)} bytes came late to the file it replaced",
                hint=f"They are in the file {OLD_NAME}... beside it.",
            )
        done = max(0, taken - len(head))
        old.torn_at = None if done == len(data) else self._torn(old.path)
        return done

    def _torn(self, path: str) -> int | None:
        """The size of a live file that ends inside a line; None when it does not."""
        with self._files.open_read(path) as live:
            size = live.stat().size
            return size if size and live.pread(size - 1, 1) != b"\n" else None

    def _remember(self, old: Old) -> None:
        """Let the second name say how far the file was carried over.

        After a crash, what may have been pruned since must not be carried over again.
        """
        for entry in second_names(self._system, old.path, old.note):
            name = f"{entry.rpartition('.')[0]}.{old.end}"
            if name != entry:
                self._files.replace(entry, name)

    # --- letting go ---

    def _over(self, old: Old) -> tuple[int, bool]:
        """Whether nothing can come any more; then the rest is carried over and all is removed."""
        now = self._system.clock.monotonic_s()
        if now < old.until_s:
            return 0, False
        if not old.leases:
            if now < old.blind_until_s:
                old.held = False
                return 0, False
            return self._finish(old), True
        old.held = self._elsewhere(old) or not old.file.lease()
        if old.held:
            return 0, False
        try:
            return self._finish(old), True
        except FabledError:
            old.file.unlease()
            raise

    def _elsewhere(self, old: Old) -> bool:
        """Whether somebody gave it another name, through which more can come."""
        names = 1 + bool(old.extra)
        return old.file.stat().links > names

    def _finish(self, old: Old) -> int:
        """Account for every byte, make it durable, and only then take the names away."""
        done = self._forward(old, last=True)
        if old.dirty and self._files.stat(old.path) is not None:
            self._files.sync_file(old.path)
        if old.extra:
            self._files.remove(old.extra)
        forget(self._system, old.path, old.note)
        old.file.close()
        return done

    def close(self) -> Looked:
        """Look once more and close every file; notes and names stay for the next start."""
        looked = self.look()
        with self._lock:
            for old in self._olds:
                old.file.close()
            self._olds = []
        return looked


def _line_start(source: OpenFile, end: int) -> int:
    """Where the line begins that an offset lies in."""
    at = end
    while at > 0:
        begin = max(0, at - 65536)
        found = source.pread(begin, at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0


def _hash(source: OpenFile, end: int) -> hashlib._Hash:
    hashed, at = hashlib.sha256(), 0
    while at < end and (piece := source.pread(at, min(carrying.PIECE, end - at))):
        hashed.update(piece)
        at += len(piece)
    return hashed


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
    return [entry.path for entry in entries if entry.name.startswith(f"{OLD_NAME}{label}.")]

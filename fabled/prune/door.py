"""Putting a new image in the place of a live transcript, without losing what comes meanwhile.

The client opens the file, appends and closes it again, whenever it likes, and knows
nothing of us. With leases (Linux) the door is closed for some milliseconds: nobody has
the file open for writing, whoever comes waits in the kernel, the tail is carried over,
the name changes hands, and what a waiter still wrote to the old file is carried over too.
Without leases the old file is followed afterwards instead.

The old file keeps a second name beside the live one until nothing can come any more, and
a note in the home says so: after a crash `recovery` finishes what was begun.

Steps and figures: see ARCHITECTURE.md, "The prune".
"""

from __future__ import annotations

import gc
import json
import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied, DiskFull, FabledError, FileBusy, FileChanged
from fabled.map.fingerprint import fingerprint
from fabled.system.opened import TEMP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.prune.following import Follower
    from fabled.system import LiveFile, NewFile, System

OLD_NAME = ".fabled-old-"
"""How the second name of an old file begins; the client ignores such names."""

HEADROOM = 64 << 20
DRAIN_S = 0.25
POLL_S = 0.0005
LOOKUP_S = 0.001
"""Whoever looked the name up just before it changed stands at the lease after this time."""


class Snapshot(NamedTuple):
    """A live file at one moment.

    Attributes:
        size: End of its last whole line: what the new image is about.
        mark: Fingerprint of those bytes.
    """

    path: str
    dev: int
    ino: int
    size: int
    mtime_ns: int
    mark: bytes


class Order(NamedTuple):
    """One replacement.

    Attributes:
        pieces: The new image of the snapshot's bytes.
        length: Of the new image.
        examine: Looks at the new image before anything happens; raises to stop.
        tail_fits: Whether bytes appended since may stand behind the new image.
        before: Called when all is prepared and durable, just before the door closes.
        note: More facts for the note in the home.
    """

    pieces: Iterator[bytes]
    length: int
    examine: Callable[[NewFile], None]
    tail_fits: Callable[[bytes], bool]
    before: Callable[[NewFile], None]
    note: dict[str, object]


class Replaced(NamedTuple):
    """What a replacement did.

    Attributes:
        tail: Bytes appended since the snapshot and carried over before the name changed.
        late: Bytes that a waiting writer wrote to the old file, carried over after.
        closed_s: How long the door was closed: the longest that a writer can have waited.
        held: Somebody still has the old file open; it is followed.
        fault: What went wrong after the name had changed hands; the next start looks after it.
    """

    tail: int
    late: int
    closed_s: float
    held: bool
    fault: FabledError | None = None


def snapshot(live: LiveFile, path: str) -> Snapshot:
    """Where the last whole line of an open live file ends, and what is before it.

    Raises:
        FileBusy: It is a file that may not be replaced: a link, or with another name.
    """
    stat = live.stat()
    size = last_line_end(live, stat.size)
    return Snapshot(path, stat.dev, stat.ino, size, stat.mtime_ns, fingerprint(live, size))


def last_line_end(live: LiveFile, size: int) -> int:
    """The offset just past the last newline among the first `size` bytes."""
    at = size
    while at > 0:
        start = max(0, at - 65536)
        found = live.pread(start, at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


class Door:
    """Replaces live files, one at a time.

    Args:
        system: The ports.
        pending: Folder of the notes, in the home.
        follower: Takes over old files that may still be written to.
    """

    def __init__(self, system: System, pending: str, follower: Follower) -> None:
        self._system = system
        self._files = system.files
        self._pending = pending
        self._follower = follower
        self._never = threading.Event()

    def replace(self, live: LiveFile, shot: Snapshot, order: Order) -> Replaced:
        """Put the new image in place; the live file is before or after, never between.

        Args:
            live: The open live file; given away: it is closed when nothing can come any more.
            shot: What it was when the new image was decided on.
            order: What to put there.

        Raises:
            FileBusy: Somebody has it open for writing, or it has other names.
            FileChanged: It is not what it was, or what came since does not fit.
            DiskFull: There is no room; nothing was touched.
        """
        try:
            done = self._replace(live, shot, order)
        except BaseException:
            live.close()
            raise
        return done

    def _replace(self, live: LiveFile, shot: Snapshot, order: Order) -> Replaced:
        folder = shot.path.rpartition("/")[0]
        self._may(live, shot, folder, order.length)
        label = secrets.token_hex(8)
        note = self._write_note(shot, label, order)
        try:
            with self._files.create(shot.path, label=label) as new:
                leases = self._knows(new, live, shot)
                self._fill(new, live, order)
                order.examine(new)
                order.before(new)
                step = self._through if leases else self._without_leases
                done, end = step(live, shot, order, new, note)
        except BaseException:
            self._files.remove(note)
            raise
        # There is no way back from here: a fault is told, and takes nothing back.
        try:
            self._files.sync_folder(folder)
            self._follower.add(live, shot.path, end, note, held=done.held, quickly=leases)
        except FabledError as fault:
            return done._replace(fault=fault)
        return done

    def _may(self, live: LiveFile, shot: Snapshot, folder: str, length: int) -> None:
        stat = live.stat()
        if stat.uid != self._system.processes.uid() or stat.links != 1:
            raise FileBusy(
                f"{shot.path} has {stat.links} names or belongs to another user",
                hint="A transcript with other names, such as hard links, is left alone.",
            )
        if self._system.processes.remote(shot.path):
            raise FileBusy(
                f"{shot.path} lies on a network file system",
                hint="There is no proof there that nobody writes to it; it is left alone.",
            )
        if self._files.free_bytes(folder) < length + HEADROOM:
            raise DiskFull(f"replacing {shot.path} needs {length + HEADROOM} free bytes")

    def _knows(self, new: NewFile, live: LiveFile, shot: Snapshot) -> bool:
        """Whether there are leases here; with them, look first whether a writer is there."""
        if not new.knows_leases():
            return False
        if not live.lease():
            raise FileBusy(f"{shot.path} is open for writing")
        live.unlease()
        return True

    def _fill(self, new: NewFile, live: LiveFile, order: Order) -> None:
        written = 0
        for piece in order.pieces:
            new.write(piece)
            written += len(piece)
        if written != order.length:
            raise FileChanged("the transcript changed while its new image was being written")
        new.take_after(live)
        new.sync()

    def _write_note(self, shot: Snapshot, label: str, order: Order) -> str:
        """Durable before anything is made; returns its path."""
        self._files.make_private_dir(self._pending)
        temp = f"{shot.path.rpartition('/')[0]}/{TEMP_PREFIX}{label}"
        facts = {"path": shot.path, "temp": temp, "label": label, **order.note}
        note = f"{self._pending}/{label}.json"
        self._files.write_private(note, json.dumps(facts).encode())
        return note

    # --- with leases ---

    def _through(
        self, live: LiveFile, shot: Snapshot, order: Order, new: NewFile, note: str
    ) -> tuple[Replaced, int]:
        """From the closed door to the open one. Nothing slow in here: writers may be waiting."""
        collecting = gc.isenabled()
        gc.disable()
        began = self._system.clock.monotonic_s()
        try:
            tail = self._change_hands(live, shot, order, new, note)
            end = shot.size + tail
            late, empty = self._let_in(live, new, end)
        finally:
            if collecting:
                gc.enable()
        closed = self._system.clock.monotonic_s() - began
        return Replaced(tail, late, closed, held=not empty), end + late

    def _change_hands(
        self, live: LiveFile, shot: Snapshot, order: Order, new: NewFile, note: str
    ) -> int:
        """Close the door, carry the tail over, give the name to the new file.

        Returns:
            Bytes of the tail. Any refusal leaves everything as it was.
        """
        if not live.lease():
            raise FileBusy(f"{shot.path} was opened for writing")
        old = None
        try:
            tail = self._tail(live, shot, order, whole=False)
            self._carry(new, live, tail)
            _require(new.lease(), FileBusy, f"the new image of {shot.path} is open elsewhere")
            old = self._second_name(shot, note, shot.size + len(tail))
            named = self._files.stat(old)  # the client may have renamed its own file over it
            alone = named is not None and (named.dev, named.ino) == (shot.dev, shot.ino)
            alone = alone and new.leased() and live.stat().size == shot.size + len(tail)
            _require(alone, FileChanged, f"{shot.path} was opened meanwhile")
            new.replace(shot.path, durably=False)
        except BaseException:
            live.unlease()
            if old is not None:
                self._files.remove(old)
            raise
        return len(tail)

    def _let_in(self, live: LiveFile, new: NewFile, end: int) -> tuple[int, bool]:
        """Let waiting writers finish with the old file, and carry over what they wrote.

        Returns:
            Bytes carried over, and whether nobody has the old file open any more. There is no
            way back from here: what fails is left to the follower.
        """
        late, empty = 0, False
        try:
            self._system.clock.wait(self._never, LOOKUP_S)
            live.unlease()
            empty = self._drain(live)
            data = _whole(live, end)
            if data:
                new.write_at_end(data)
            late = len(data)
            if empty:
                live.unlease()
        except FabledError:
            return 0, False
        finally:
            new.close()
        return late, empty

    def _drain(self, live: LiveFile) -> bool:
        """Wait until nobody has the old file open for writing; False when the time is over."""
        clock = self._system.clock
        until = clock.monotonic_s() + DRAIN_S
        while not live.lease():
            if clock.monotonic_s() > until:
                return False
            clock.wait(self._never, POLL_S)
        return True

    def _tail(self, live: LiveFile, shot: Snapshot, order: Order, *, whole: bool) -> bytes:
        """What was appended since the snapshot, if it is still the file it was."""
        here = self._files.stat(shot.path)
        stat = live.stat()
        if here is None or (here.dev, here.ino, here.links) != (shot.dev, shot.ino, 1):
            raise FileChanged(f"{shot.path} was replaced by somebody else")
        if stat.size < shot.size or fingerprint(live, shot.size) != shot.mark:
            raise FileChanged(f"{shot.path} was rewritten by somebody else")
        if stat.size == shot.size and stat.mtime_ns != shot.mtime_ns:
            raise FileChanged(f"{shot.path} was changed in place by somebody else")
        tail = live.pread(shot.size, stat.size - shot.size)
        if whole and not tail.endswith(b"\n") and tail:
            raise FileChanged(f"{shot.path} ends in the middle of a line")
        if tail and not order.tail_fits(tail):
            raise FileChanged(f"what was appended to {shot.path} refers to what would be pruned")
        return tail

    def _carry(self, new: NewFile, live: LiveFile, tail: bytes) -> None:
        if tail:
            new.write(tail)
        new.set_mtime(live.stat().mtime_ns)
        if tail:
            new.sync()

    def _second_name(self, shot: Snapshot, note: str, end: int) -> str:
        label = note.rpartition("/")[2].removesuffix(".json")
        old = f"{shot.path.rpartition('/')[0]}/{OLD_NAME}{label}.{end}"
        if not self._files.link(shot.path, old, durably=False):
            raise AccessDenied(f"{old} is there already")
        return old

    # --- without ---

    def _without_leases(
        self, live: LiveFile, shot: Snapshot, order: Order, new: NewFile, note: str
    ) -> tuple[Replaced, int]:
        """Copy, change the name, follow: for systems that cannot keep a writer waiting."""
        began = self._system.clock.monotonic_s()
        tail = self._tail(live, shot, order, whole=True)
        end = shot.size + len(tail)
        self._carry(new, live, tail)
        old = self._second_name(shot, note, end)
        try:
            still = live.stat().size == end
            _require(still, FileBusy, f"{shot.path} is being written to")
            new.replace(shot.path, durably=False)
        except BaseException:
            self._files.remove(old)
            raise
        new.close()
        closed = self._system.clock.monotonic_s() - began
        return Replaced(len(tail), 0, closed, held=True), end


def _require(fact: bool, refusal: type[FabledError], message: str) -> None:
    if not fact:
        raise refusal(message)


def _whole(live: LiveFile, end: int) -> bytes:
    """The whole lines past an offset."""
    data = live.pread(end, max(0, live.stat().size - end))
    return data[: data.rfind(b"\n") + 1]

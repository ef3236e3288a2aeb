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
import hashlib
import json
import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied, DiskFull, FabledError, FileBusy, FileChanged
from fabled.map.fingerprint import fingerprint
from fabled.prune import carrying
from fabled.prune.following import OLD_NAME, Old, forget
from fabled.prune.notes import read_note
from fabled.prune.orders import Replaced, hash_of
from fabled.system.opened import TEMP_PREFIX

if TYPE_CHECKING:
    from fabled.prune.carrying import Ledger
    from fabled.prune.following import Follower, Looked
    from fabled.prune.orders import Order, Snapshot
    from fabled.system import FileStat, LiveFile, NewFile, System

HEADROOM = 64 << 20
DRAIN_S = 0.25
POLL_S = 0.0005
SMALL = 8 << 20
"""A transcript of fewer bytes is compared whole while writers wait: some milliseconds."""

TICK_NS = 20_000_000
"""A change so soon after another may carry the same time."""

LOOKS = 3
LOOKUP_S = 0.001
"""Whoever looked the name up just before it changed stands at the lease after this time."""


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
            return self._replace(live, shot, order)
        except FabledError:
            live.close()
            raise

    def _replace(self, live: LiveFile, shot: Snapshot, order: Order) -> Replaced:
        folder = shot.path.rpartition("/")[0]
        self._may(live, shot, folder, order.length)
        label = secrets.token_hex(8)
        note = self._write_note(shot, label, order)
        try:
            with self._files.create(shot.path, label=label) as new:
                leases = self._knows(new, live, shot)
                image = self._fill(new, live, order)
                self._write_note(shot, label, order, image)
                order.examine(new)
                order.before(new)
                self._supersede(shot.path, label)
                step = self._through if leases else self._without_leases
                passed = step(live, shot, order, new, note)
        except FabledError:
            # Nothing but a refusal comes this way, and always before the name changed hands.
            # Any other fault leaves all as it is to the next start.
            forget(self._system, shot.path, note)
            raise
        return self._afterwards(live, shot, order, note, passed)

    def _afterwards(
        self, live: LiveFile, shot: Snapshot, order: Order, note: str, passed: _Passed
    ) -> Replaced:
        """There is no way back from here: a fault is told, and takes nothing back."""
        done = passed.done
        fault = passed.fault
        try:
            self._files.sync_folder(shot.path.rpartition("/")[0])
        except FabledError as found:
            fault = fault or found
        end = passed.end + done.late
        leases = passed.leases
        old = Old(live, shot.path, note, shot.size, end, leases, order.original, passed.carried)
        old.held = done.held
        looked = self._follower.add(old)
        try:
            looked = self._follow_stranger(shot, order, note, passed) or looked
        except FabledError as found:
            fault = fault or found
        return done._replace(fault=fault or next(iter(looked.faults), None))

    def _follow_stranger(
        self, shot: Snapshot, order: Order, note: str, passed: _Passed
    ) -> Looked | None:
        """Somebody put another file there in the last moment: what is new in it is kept, too."""
        if passed.stranger is None:
            return None
        other = self._files.open_live(passed.stranger)
        old = Old(
            other,
            shot.path,
            note,
            shot.size,
            shot.size,
            leases=passed.leases,
            original=order.original,
            carried=passed.carried,
            extra=passed.stranger,
        )
        return self._follower.add(old)

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

    def _fill(self, new: NewFile, live: LiveFile, order: Order) -> str:
        """Write the new image and make it durable; returns its hash."""
        written, hashed = 0, hashlib.sha256()
        for piece in order.pieces:
            new.write(piece)
            hashed.update(piece)
            written += len(piece)
        if written != order.length:
            raise FileChanged("the transcript changed while its new image was being written")
        new.take_after(live)
        new.sync()
        return hashed.hexdigest()

    def _write_note(
        self, shot: Snapshot, label: str, order: Order, image: str | None = None
    ) -> str:
        """Durable before anything is made, and again when the image is; returns its path."""
        self._files.make_private_dir(self._pending)
        temp = f"{shot.path.rpartition('/')[0]}/{TEMP_PREFIX}{label}"
        facts: dict[str, object] = {"path": shot.path, "temp": temp, "label": label}
        facts |= {"size": shot.size, "length": order.length, "image": image, **order.note}
        note = f"{self._pending}/{label}.json"
        self._files.write_private(note, json.dumps(facts).encode())
        return note

    def _supersede(self, path: str, label: str) -> None:
        """Let older notes about this file say that another replacement follows theirs.

        What follows their image in the live file may be pruned by it: after a crash, only how
        far their old file was carried over counts.
        """
        for entry in self._files.scan(self._pending):
            if entry.name == f"{label}.json" or not entry.name.endswith(".json"):
                continue
            note = read_note(self._files, entry.path)
            if note is not None and note["path"] == path and not note.get("superseded"):
                data = json.dumps({**note, "superseded": True}).encode()
                self._files.write_private(entry.path, data)

    # --- with leases ---

    def _through(
        self, live: LiveFile, shot: Snapshot, order: Order, new: NewFile, note: str
    ) -> _Passed:
        """From the closed door to the open one. Nothing slow in here: writers may be waiting."""
        collecting = gc.isenabled()
        seen = self._still(live, shot)
        gc.disable()
        began = self._system.clock.monotonic_s()
        try:
            tail, stranger = self._change_hands(live, shot, order, new, note, seen)
            end = shot.size + len(tail)
            late, empty, fault = self._let_in(live, new, end, fingerprint(live, end))
        finally:
            if collecting:
                gc.enable()
        closed = self._system.clock.monotonic_s() - began
        carried = carrying.ledger(_lines(tail + late))
        done = Replaced(len(tail), len(late), closed, held=not empty)
        return _Passed(done, end, carried, leases=True, stranger=stranger, fault=fault)

    def _change_hands(
        self, live: LiveFile, shot: Snapshot, order: Order, new: NewFile, note: str, seen: FileStat
    ) -> tuple[bytes, str | None]:
        """Close the door, carry the tail over, give the name to the new file.

        Returns:
            The tail, and the name of a file that somebody put there in the last moment. Any
            refusal leaves everything as it was.
        """
        if not live.lease():
            raise FileBusy(f"{shot.path} was opened for writing")
        old = None
        try:
            tail = self._tail(live, shot, order, seen, whole=False)
            self._carry(new, live, tail)
            _require(new.lease(), FileBusy, f"the new image of {shot.path} is open elsewhere")
            old = self._second_name(shot, note, shot.size + len(tail))
            named = self._files.stat(old)  # the client may have renamed its own file over it
            alone = named is not None and (named.dev, named.ino, named.links) == (
                shot.dev,
                shot.ino,
                2,
            )
            alone = alone and new.leased() and live.stat().size == shot.size + len(tail)
            _require(alone, FileChanged, f"{shot.path} was opened meanwhile")
            stranger = self._give_name(new, shot)
        except FabledError:
            live.unlease()
            if old is not None:
                self._files.remove(old)
            raise
        return tail, stranger

    def _give_name(self, new: NewFile, shot: Snapshot) -> str | None:
        """Let the new file have the name; what had it keeps the temporary one for a moment.

        Returns:
            That temporary name, if it was not the file we know that had the name.
        """
        temp = new.path
        if not new.exchange(shot.path):
            new.replace(shot.path, durably=False)
            return None
        came = self._files.stat(temp)
        if came is not None and (came.dev, came.ino) != (shot.dev, shot.ino):
            return temp
        try:
            self._files.remove(temp)
        except FabledError:
            return temp  # it is looked after as a stranger: nothing new is in it
        return None

    def _let_in(
        self, live: LiveFile, new: NewFile, end: int, mark: bytes
    ) -> tuple[bytes, bool, FabledError | None]:
        """Let waiting writers finish with the old file, and carry over what they appended.

        Returns:
            Bytes carried over, whether nobody has the old file open any more, and what went
            wrong. There is no way back from here: what fails, and what is no plain appending,
            is left to the follower.
        """
        late, empty, fault = b"", False, None
        try:
            self._system.clock.wait(self._never, LOOKUP_S)
            live.unlease()
            empty = self._drain(live)
            size = live.stat().size
            if size > end and fingerprint(live, end) == mark:
                late = live.pread(end, size - end)
                # With nobody there to finish a line, the bytes are carried over as they are.
                late = late if empty else late[: late.rfind(b"\n") + 1]
                new.write_at_end(late)
            if empty:
                live.unlease()
        except FabledError as found:
            late, empty, fault = b"", False, found
        try:
            new.close()
        except FabledError as found:
            fault = fault or found
        return late, empty, fault

    def _drain(self, live: LiveFile) -> bool:
        """Wait until nobody has the old file open for writing; False when the time is over."""
        clock = self._system.clock
        until = clock.monotonic_s() + DRAIN_S
        while not live.lease():
            if clock.monotonic_s() > until:
                return False
            clock.wait(self._never, POLL_S)
        return True

    def _still(self, live: LiveFile, shot: Snapshot) -> FileStat:
        """See that what was decided upon is still there, to the byte; returns the state seen.

        Raises:
            FileChanged: It is not, or it is never at rest.
        """
        for _ in range(LOOKS):
            stat = live.stat()
            settled = self._system.clock.now_ms() * 1_000_000 - stat.mtime_ns > TICK_NS
            if settled and (stat.size, stat.mtime_ns) == (shot.whole, shot.mtime_ns):
                return stat
            same = stat.size >= shot.size and hash_of(live, shot.size) == shot.sha256
            _require(same, FileChanged, f"{shot.path} was rewritten by somebody else")
            after = live.stat()
            if (after.size, after.mtime_ns) == (stat.size, stat.mtime_ns):
                return stat
        return live.stat()

    def _tail(
        self, live: LiveFile, shot: Snapshot, order: Order, seen: FileStat, *, whole: bool
    ) -> bytes:
        """What was appended since the snapshot, if it is still the file it was."""
        here = self._files.stat(shot.path)
        stat = live.stat()
        if here is None or (here.dev, here.ino, here.links) != (shot.dev, shot.ino, 1):
            raise FileChanged(f"{shot.path} was replaced by somebody else")
        if (stat.size, stat.mtime_ns) != (seen.size, seen.mtime_ns):
            _require(shot.size <= SMALL, FileChanged, f"{shot.path} is being written to")
        if shot.size <= SMALL:
            same = stat.size >= shot.size and hash_of(live, shot.size) == shot.sha256
            _require(same, FileChanged, f"{shot.path} was rewritten by somebody else")
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
    ) -> _Passed:
        """Copy, change the name, follow: for systems that cannot keep a writer waiting."""
        seen = self._still(live, shot)
        began = self._system.clock.monotonic_s()
        tail = self._tail(live, shot, order, seen, whole=True)
        end = shot.size + len(tail)
        self._carry(new, live, tail)
        old = self._second_name(shot, note, end)
        try:
            still = live.stat().size == end
            _require(still, FileBusy, f"{shot.path} is being written to")
            stranger = self._give_name(new, shot)
        except FabledError:
            self._files.remove(old)
            raise
        fault = None
        try:
            new.close()
        except FabledError as found:
            fault = found
        closed = self._system.clock.monotonic_s() - began
        done = Replaced(len(tail), 0, closed, held=True)
        carried = carrying.ledger(_lines(tail))
        return _Passed(done, end, carried, leases=False, stranger=stranger, fault=fault)


class _Passed(NamedTuple):
    """The name changed hands: what was carried over by then, up to where, and what is left."""

    done: Replaced
    end: int
    carried: Ledger
    leases: bool
    stranger: str | None
    fault: FabledError | None


def _require(fact: bool, refusal: type[FabledError], message: str) -> None:
    if not fact:
        raise refusal(message)


def _lines(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])

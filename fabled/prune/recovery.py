"""After a crash in the middle of a replacement: it is finished or taken back.

Names may have survived in any order, so each question is answered by what the files
hold. What had been written to an old file and is not in the live one is carried over,
and the old file is followed on: whoever had it open may still have.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.errors import AccessDenied, FabledError, NotFound
from fabled.map.reconcile import deleted
from fabled.prune import carrying
from fabled.prune.following import OLD_NAME, Old, forget
from fabled.prune.notes import read_note
from fabled.system.opened import TEMP_PREFIX
from fabled.vault.hashing import sha256_of
from fabled.vault.values import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fabled.prune.following import Follower
    from fabled.system import Files, LiveFile, OpenFile, System
    from fabled.vault.store import Vault
    from fabled.vault.values import Generation


class Recovered(NamedTuple):
    """One replacement that a crash interrupted.

    Attributes:
        happened: The new image had its name already; None: nobody can tell now.
        carried: Bytes of the old file appended to the live one now.
        note: What was written down before it began.
        fault: What keeps it from being finished; it is tried again at the next start.
    """

    path: str
    happened: bool | None
    carried: int
    note: dict[str, Any]
    fault: FabledError | None = None


class Verdict(NamedTuple):
    """What became of an interrupted prune: its generation, and whether that was put in place."""

    generation: Generation
    happened: bool


def recover(
    system: System, pending: str, follower: Follower, original: Callable[[dict[str, Any]], OpenFile]
) -> list[Recovered]:
    """Finish or take back every replacement that has a note. Doing it again does nothing.

    Args:
        system: The ports.
        pending: Folder of the notes, in the home.
        follower: Takes over the old files.
        original: Opens the bytes that a note's replacement was about.
    """
    found: list[Recovered] = []
    if system.files.stat(pending) is None:
        return found
    for entry in system.files.scan(pending):
        if entry.name.startswith(TEMP_PREFIX):
            system.files.remove(entry.path)
        elif entry.name.endswith(".json"):
            note = read_note(system.files, entry.path)
            if note is None:
                system.files.remove(entry.path)
                continue
            try:  # one that cannot be finished must not keep the others waiting
                found.append(_Interrupted(system, entry.path, note).finish(follower, original))
            except FabledError as fault:
                found.append(Recovered(note["path"], None, 0, note, fault))
    return found


def sealed(vault: Vault) -> Callable[[dict[str, Any]], OpenFile]:
    """What opens, out of a Vault, the bytes that a note's replacement was about."""

    def opened(note: dict[str, Any]) -> OpenFile:
        origin = Origin(*note["origin"])
        for one in vault.catalogue.lineage(origin):
            if one.card.number == note["sealed"]:
                return vault.image(one)
        raise NotFound(f"generation {note['sealed']} of {origin.live} is not there any more")

    return opened


def verdict(files: Files, found: Recovered, lineage: Sequence[Generation]) -> Verdict | None:
    """Look at the transcript itself: names may have survived in any order.

    Args:
        files: The file system.
        found: The interrupted replacement.
        lineage: Generations of the transcript, oldest first.

    Returns:
        None when it was no prune, had not got as far as a generation, or cannot be told now.
    """
    newest = lineage[-1] if lineage else None
    receipt = newest.card.receipt if newest is not None else None
    if newest is None or receipt is None or receipt.pruned_ms != found.note.get("pruned_ms"):
        return None
    try:
        with files.open_read(found.path) as live:
            seen = sha256_of(live.pread, newest.end).sha256 == newest.card.image_sha256
            before = _begins_with_the_old(live, lineage, receipt.before)
    except NotFound:
        return None if found.happened is None else Verdict(newest, found.happened)
    # A pruned image may be the beginning of the one before it.
    return Verdict(newest, seen and not before)


def _begins_with_the_old(live: OpenFile, lineage: Sequence[Generation], number: int) -> bool:
    old = next((one for one in lineage if one.card.number == number), None)
    if old is None:
        return False
    found = sha256_of(live.pread, old.end)
    return found.size == old.end and found.sha256 == old.card.image_sha256


class _Second(NamedTuple):
    """The second name of an old file, and how far that was carried over."""

    path: str
    end: int


class _Interrupted:
    """One note, and what there is of its replacement."""

    def __init__(self, system: System, note_path: str, note: dict[str, Any]) -> None:
        self._system = system
        self._files = system.files
        self._note_path = note_path
        self._note = note
        self._path: str = note["path"]
        self._temp: str = note["temp"]

    def finish(
        self, follower: Follower, original: Callable[[dict[str, Any]], OpenFile]
    ) -> Recovered:
        folder = self._path.rpartition("/")[0]
        if self._files.stat(folder) is None and not self._given_up():
            return self._result(None, 0)  # perhaps a disk that is not mounted yet
        second = self._second()
        if second is None:
            return self._without_second()
        live, old, temp = (self._files.stat(p) for p in (self._path, second.path, self._temp))
        strange = temp is not None and old is not None and temp.ino != old.ino
        same = live is not None and old is not None and live.ino == old.ino
        if same or (strange and self._is_new(self._temp)):
            self._files.remove(self._temp)
            forget(self._system, self._path, self._note_path)
            return self._result(False, 0)
        if not strange:
            self._files.remove(self._temp)
        # Somebody's own file may have had the name in the moment when it changed hands.
        extra = self._temp if strange else ""
        in_place = not self._note.get("superseded") and self._is_new(self._path)
        carried = self._follow(follower, second, original, extra, in_place=in_place)
        return self._result(True if in_place else None, carried)

    def _is_new(self, path: str) -> bool:
        """Whether a file begins with the new image."""
        length = int(self._note["length"])
        try:
            with self._files.open_read(path) as file:
                found = sha256_of(file.pread, length)
        except NotFound:
            return False
        return found.size == length and found.sha256 == self._note.get("image")

    def _result(self, happened: bool | None, carried: int) -> Recovered:
        return Recovered(self._path, happened, carried, self._note)

    def _given_up(self) -> bool:
        """Whether the project's folder was deleted, rather than being out of sight."""
        origin = self._note.get("origin")
        if not isinstance(origin, list) or not origin or not isinstance(origin[0], str):
            return False
        return deleted(self._files, origin[0], self._path)

    def _without_second(self) -> Recovered:
        """Before the name changed hands, or after everything was done."""
        if self._files.stat(self._temp) is not None:
            self._files.remove(self._temp)
        self._files.remove(self._note_path)
        return self._result(None, 0)

    def _second(self) -> _Second | None:
        start = f"{OLD_NAME}{self._note['label']}."
        try:
            entries = self._files.scan(self._path.rpartition("/")[0])
        except NotFound:
            return None
        for entry in entries:
            end = entry.name.removeprefix(start)
            if entry.name.startswith(start) and end.isdigit():
                return _Second(entry.path, int(end))
        return None

    def _follow(
        self,
        follower: Follower,
        second: _Second,
        original: Callable[[dict[str, Any]], OpenFile],
        extra: str,
        *,
        in_place: bool,
    ) -> int:
        """Carry over what is missing, and have the old file followed on."""
        start = int(self._note["size"])
        file = self._files.open_live(second.path)
        try:
            carried, end, kept = self._catch_up(file, second, start, original, in_place=in_place)
            leases = self._files.leases(self._path.rpartition("/")[0])
        except BaseException:
            file.close()
            raise

        def source() -> OpenFile:
            return original(self._note)

        old = Old(file, self._path, self._note_path, start, end, leases, source, kept, fresh=False)
        looked = follower.add(old)
        if extra:
            other = self._files.open_live(extra)
            stranger = Old(
                other,
                self._path,
                self._note_path,
                start,
                start,
                leases,
                source,
                kept,
                fresh=False,
                extra=extra,
            )
            looked = follower.add(stranger)
        if looked.faults:
            raise looked.faults[0]
        return carried + looked.carried

    def _catch_up(
        self,
        file: LiveFile,
        second: _Second,
        start: int,
        original: Callable[[dict[str, Any]], OpenFile],
        *,
        in_place: bool,
    ) -> tuple[int, int, carrying.Ledger]:
        """Bytes carried over now, up to where in the old file, and the lines kept by then."""
        size = file.stat().size
        if size < start or not self._begins_as_sealed(file, start, original):
            return 0, start, self._lines_there(in_place=in_place)
        came = file.pread(start, size - start)
        plain = None
        if in_place:
            plain = self._compare(came)
        if plain is None:
            kept = self._lines_there(in_place=in_place)
            late = file.pread(second.end, max(0, size - second.end))
            return self._by_lines(late, second, start, came, kept, in_place=in_place)
        done = 0
        if plain.fill:
            where = int(self._note["length"]) + plain.fill_at
            self._files.fill(self._path, where, plain.fill)
        if plain.rest:
            done = self._append(plain.rest)
        end = start + len(came) - len(plain.rest) + done
        return done, end, carrying.ledger(_lines(came[: end - start]))

    def _begins_as_sealed(
        self, file: LiveFile, start: int, original: Callable[[dict[str, Any]], OpenFile]
    ) -> bool:
        with original(self._note) as sealed:
            return _hash(sealed, start) == _hash(file, start)

    def _compare(self, came: bytes) -> carrying.Missing | None:
        """What came, against what follows the new image in the live file."""
        length = int(self._note["length"])
        with self._files.open_read(self._path) as live:
            there = live.pread(length, max(0, live.stat().size - length))
        return carrying.missing(came, there)

    def _lines_there(self, *, in_place: bool) -> carrying.Ledger:
        """The lines of the live file behind the new image; all of them where that is gone."""
        begin = int(self._note["length"]) if in_place else 0
        try:
            with self._files.open_read(self._path) as live:
                return carrying.ledger(carrying.lines(live, begin, live.stat().size))
        except NotFound:
            return carrying.ledger([])

    def _by_lines(
        self,
        late: bytes,
        second: _Second,
        start: int,
        came: bytes,
        kept: carrying.Ledger,
        *,
        in_place: bool,
    ) -> tuple[int, int, carrying.Ledger]:
        """Others wrote as well, or the file was replaced once more: line by line."""
        about, begin = (came, start) if in_place else (late, second.end)
        whole = about[: about.rfind(b"\n") + 1]
        new = carrying.surplus(_lines(whole), kept)
        done = self._append(b"".join(new)) if new else 0
        if done < sum(map(len, new)):
            raise AccessDenied(f"{self._path}: not all that came late could be appended")
        return done, begin + len(whole), kept | carrying.ledger(_lines(came))

    def _append(self, data: bytes) -> int:
        with self._open_or_explain(len(data)) as live:
            size = live.stat().size
            torn = size > 0 and live.pread(size - 1, 1) != b"\n"
            length = int(self._note["length"])
            ours = size >= length and self._is_plain(live, size)
        head = b"\n" if torn and not ours else b""
        done = self._files.append_live(self._path, head + data)
        self._files.sync_file(self._path)
        return max(0, (done or 0) - len(head))

    def _is_plain(self, live: OpenFile, size: int) -> bool:
        """Whether the live file ends in the middle of what came to the old one."""
        second = self._second()
        if second is None:
            return False
        start, length = int(self._note["size"]), int(self._note["length"])
        with self._files.open_read(second.path) as old:
            return live.pread(length, size - length) == old.pread(start, size - length)

    def _open_or_explain(self, late: int) -> OpenFile:
        try:
            return self._files.open_read(self._path)
        except NotFound:
            raise AccessDenied(
                f"{self._path} is gone, and {late} bytes came late to the file it replaced",
                hint=f"They are in the file {OLD_NAME}... beside it.",
            ) from None


def _hash(source: OpenFile, size: int) -> tuple[bytes, int]:
    hashed, at = hashlib.sha256(), 0
    while at < size and (piece := source.pread(at, min(carrying.PIECE, size - at))):
        hashed.update(piece)
        at += len(piece)
    return hashed.digest(), at


def _lines(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])

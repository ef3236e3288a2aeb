"""After a crash in the middle of a replacement: what had been written is carried over once."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.errors import AccessDenied, NotFound
from fabled.prune.following import forget
from fabled.system.opened import TEMP_PREFIX
from fabled.vault.hashing import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fabled.system import Files, OpenFile, System
    from fabled.vault.values import Generation

LIMIT = 65536
PIECE = 1 << 20


class Recovered(NamedTuple):
    """One replacement that a crash interrupted.

    Attributes:
        happened: The new image had its name already.
        carried: Bytes of the old file appended to the live one now.
        note: What was written down before it began.
    """

    path: str
    happened: bool
    carried: int
    note: dict[str, Any]


def recover(system: System, pending: str) -> list[Recovered]:
    """Finish or take back every replacement that has a note. Doing it again does nothing.

    Raises:
        AccessDenied: A file cannot be read or written; what was not done is done next time.
        DiskFull: As above.
    """
    found: list[Recovered] = []
    if system.files.stat(pending) is None:
        return found
    for entry in system.files.scan(pending):
        if entry.name.startswith(TEMP_PREFIX):
            system.files.remove(entry.path)
        elif entry.name.endswith(".json"):
            note = _read(system.files, entry.path)
            if note is not None:
                found.append(_one(system, entry.path, note))
            else:
                system.files.remove(entry.path)
    return found


class Verdict(NamedTuple):
    """What became of an interrupted prune: its generation, and whether that was put in place."""

    generation: Generation
    happened: bool


def verdict(files: Files, found: Recovered, lineage: Sequence[Generation]) -> Verdict | None:
    """Look at the transcript itself: names may have survived in any order.

    Args:
        files: The file system.
        found: The interrupted replacement.
        lineage: Generations of the transcript, oldest first.

    Returns:
        None when it was no prune, or had not got as far as a generation.
    """
    newest = lineage[-1] if lineage else None
    receipt = newest.card.receipt if newest is not None else None
    if newest is None or receipt is None or receipt.pruned_ms != found.note.get("pruned_ms"):
        return None
    try:
        with files.open_read(found.path) as live:
            seen = sha256_of(live.pread, newest.end)
    except NotFound:
        return Verdict(newest, found.happened)
    return Verdict(newest, seen.sha256 == newest.card.image_sha256)


def _read(files: Files, path: str) -> dict[str, Any] | None:
    try:
        value = json.loads(files.read_small(path, LIMIT) or b"null")
    except ValueError:
        return None
    good = isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("path", "temp", "label")
    )
    return value if good else None


def _one(system: System, note_path: str, note: dict[str, Any]) -> Recovered:
    files = system.files
    path, temp = note["path"], note["temp"]
    old = _second_name(files, path, note["label"])
    there = files.stat(temp)
    if old is None:
        if there is not None:
            files.remove(temp)
        files.remove(note_path)
        return Recovered(path, happened=False, carried=0, note=note)
    name, end = old
    live, previous = files.stat(path), files.stat(name)
    same = live is not None and previous is not None and live.ino == previous.ino
    carried = 0
    if not same:
        carried = _carry(files, name, end, path)
    if there is not None:
        files.remove(temp)
    forget(system, path, note_path)
    return Recovered(path, happened=not same, carried=carried, note=note)


def _second_name(files: Files, path: str, label: str) -> tuple[str, int] | None:
    """The old file beside the live one, and how much of it was carried over."""
    start = f".fabled-old-{label}."
    try:
        entries = files.scan(path.rpartition("/")[0])
    except NotFound:
        return None
    for entry in entries:
        tail = entry.name.removeprefix(start)
        if entry.name.startswith(start) and tail.isdigit():
            return entry.path, int(tail)
    return None


def _carry(files: Files, old: str, end: int, path: str) -> int:
    """Append the old file's whole late lines that the live one does not have."""
    with files.open_read(old) as handle:
        late = handle.pread(end, max(0, handle.stat().size - end))
    late = late[: late.rfind(b"\n") + 1]
    if not late:
        return 0
    try:
        with files.open_read(path) as handle:
            have = {hashlib.sha256(line).digest() for line in _lines(handle)}
            size = handle.stat().size
            torn = size > 0 and handle.pread(size - 1, 1) != b"\n"
    except NotFound:
        raise AccessDenied(
            f"{path} is gone, and {old} has {len(late)} bytes that came late",
            hint=f"Rename {old} to {path}, or remove it.",
        ) from None
    new = [
        line
        for line in (piece + b"\n" for piece in late[:-1].split(b"\n"))
        if hashlib.sha256(line).digest() not in have
    ]
    if not new:
        return 0
    data = (b"\n" if torn else b"") + b"".join(new)
    files.append_live(path, data)
    return len(data)


def _lines(handle: OpenFile) -> Iterator[bytes]:
    rest = b""
    while piece := handle.read(PIECE):
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest

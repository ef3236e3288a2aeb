"""Which live files belong together, which of them are due, and sealing them.

A session's transcript, its subagents' transcripts with their descriptions and its
spilled tool results are archived together: the client's cleanup takes some of them and
leaves others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied, DiskFull, FabledError, NotFound
from fabled.transcript.layout import SUFFIX
from fabled.vault.forgetting import Span, Without, hidden_spans
from fabled.vault.names import LIVE_DEPTH
from fabled.vault.values import Generation, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fabled.system import Files, FileStat, OpenFile
    from fabled.vault.store import Vault
    from fabled.vault.tombstones import Tombstones

_STRAY = re.compile(r"\.fabled-[0-9a-f]{16}")
_UNFINISHED = re.compile(r"\.fabled-.*|.*\.(?:jsonl|json|txt)(?:\.compact)?\.tmp\.[0-9a-f.]+")
"""Files that somebody, the client or we, is about to rename."""

NOT_SESSIONS = frozenset({"memory"})


class LiveFile(NamedTuple):
    """One file of a session, as a listing found it."""

    origin: Origin
    stat: FileStat


class Unit(NamedTuple):
    """What is archived together.

    Attributes:
        session: As the place says: the id in the main file's name or the folder's.
        files: The transcript first, then what lies in the session's folder.
    """

    root: str
    folder: str
    session: str
    files: tuple[LiveFile, ...]

    @property
    def changed_ns(self) -> int:
        """When any of its files was changed last."""
        return max(file.stat.mtime_ns for file in self.files)


def units(files: Files, root: str, project: str | None = None) -> Iterator[Unit]:
    """Every session below a root, or in one project folder of it.

    Folders that cannot be listed are left out.

    Cost: a listing a folder, a stat a file.
    """
    for folder in _scan(files, root, "dir", project):
        names: dict[str, list[str]] = {}
        for path, kind in folder[1]:
            if kind == "file" and path.endswith(SUFFIX):
                names.setdefault(path.removesuffix(SUFFIX), []).insert(0, path)
            elif kind == "dir" and path.rpartition("/")[2] not in NOT_SESSIONS:
                names.setdefault(path, []).extend(_below(files, path, 0))
        for stem in sorted(names):
            found = tuple(_stats(files, root, names[stem]))
            if found:
                yield Unit(root, folder[0], stem.rpartition("/")[2], found)


def _scan(
    files: Files, root: str, kind: str, project: str | None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    entries = _entries(files, root) if project is None else [(f"{root}/{project}", kind)]
    for entry in entries:
        if entry[1] == kind:
            yield entry[0].rpartition("/")[2], _entries(files, entry[0])


def _entries(files: Files, folder: str) -> list[tuple[str, str]]:
    try:
        return [(entry.path, entry.kind) for entry in files.scan(folder)]
    except (NotFound, AccessDenied):
        return []  # the survey reports what cannot be listed


def _below(files: Files, folder: str, depth: int) -> Iterator[str]:
    for path, kind in _entries(files, folder):
        if kind == "file":
            yield path
        elif kind == "dir" and depth < LIVE_DEPTH:
            yield from _below(files, path, depth + 1)


def _stats(files: Files, root: str, paths: Iterable[str]) -> Iterator[LiveFile]:
    for path in paths:
        name = path.rpartition("/")[2]
        if _UNFINISHED.fullmatch(name):
            continue
        try:
            stat = files.stat(path)
        except AccessDenied:
            continue  # the survey reports it; the others are not to be missed for it
        if stat is not None and stat.kind == "file":
            yield LiveFile(Origin(root, path.removeprefix(root).lstrip("/")), stat)


def sweep_strays(files: Files, root: str) -> int:
    """Remove unfinished files of ours that a crash left below a projects folder.

    Only names that we make, and only at start, when nobody is making one. Returns how many.
    """
    removed = 0
    for path, kind in _entries(files, root):
        for found in _below(files, path, 0) if kind == "dir" else ():
            if _STRAY.fullmatch(found.rpartition("/")[2]):
                removed += files.remove(found)
    return removed


class Dues(NamedTuple):
    """When a session is due; times in nanoseconds of UTC.

    Attributes:
        quiet_before: Changed last before this: quiet.
        expires_before: Changed last before this: the client's cleanup comes for it soon.
    """

    quiet_before: int
    expires_before: int


def why_due(unit: Unit, dues: Dues) -> str | None:
    """Why a session is to be sealed now; None when it is not."""
    if unit.changed_ns <= dues.quiet_before:
        return "quiet"
    return "expiring" if expiring(unit, dues) else None


def expiring(unit: Unit, dues: Dues) -> bool:
    """Whether the client's cleanup comes for a file of the session soon."""
    return min(file.stat.mtime_ns for file in unit.files) <= dues.expires_before


def is_sealed(vault: Vault, file: LiveFile) -> bool:
    """Whether the newest generation has this file's size and time: then nothing is read.

    Its data has to be there, too: what the Vault lost, it takes again while it can.
    """
    try:
        lineage = vault.catalogue.lineage(file.origin)
    except AccessDenied:
        return False  # sealing it says why not
    if not lineage:
        return False
    head = lineage[-1]
    same = (head.end, head.card.mtime_ns) == (file.stat.size, file.stat.mtime_ns)
    return same and vault.present(head)


def _hidden(origin: Origin, handle: OpenFile, tombstones: Tombstones | None) -> list[Span]:
    if not tombstones or not origin.path.endswith(SUFFIX):
        return []
    return hidden_spans(handle, tombstones)


class Outcome(NamedTuple):
    """What became of one file: a generation, or why there is none.

    Attributes:
        fresh: The generation was written now.
    """

    origin: Origin
    generation: Generation | None
    fresh: bool = False
    refusal: FabledError | None = None


def seal_file(
    vault: Vault,
    files: Files,
    origin: Origin,
    reason: str,
    session_of: Callable[[str], str | None],
    tombstones: Tombstones | None = None,
) -> Outcome:
    """Seal a live file to its last byte as it is now.

    Args:
        vault: The Vault.
        files: The file system.
        origin: The live file.
        reason: Goes into the sidecar.
        session_of: The session that the Map has for a path.
        tombstones: What was forgotten is not sealed again.

    Raises:
        DiskFull: The Vault cannot grow: no use in going on.
    """
    try:
        handle = files.open_read(origin.live)
    except (NotFound, AccessDenied) as refusal:
        return Outcome(origin, None, refusal=refusal)
    with handle:
        stat = handle.stat()
        session = session_of(origin.live)
        try:
            before = {one.card.number for one in vault.catalogue.lineage(origin)}
            source = Without(handle, stat.size, _hidden(origin, handle, tombstones), stat)
            generation = vault.seal(origin, source, source.size, reason, session)
        except DiskFull:
            raise
        except FabledError as refusal:  # the others are not to be missed for one
            return Outcome(origin, None, refusal=refusal)
    return Outcome(origin, generation, fresh=generation.card.number not in before)

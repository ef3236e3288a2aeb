"""Comparing a whole root with the Map: which files to read, which are gone.

Absence is not deletion: a root that is missing, cannot be listed, or is suddenly
empty may be an unmounted disk. What the Map knows of it stays until it is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied, NotFound
from fabled.map import files
from fabled.transcript.layout import SUFFIX, meta_path, place

if TYPE_CHECKING:
    from fabled.map.db import Snapshot
    from fabled.map.files import FileRow
    from fabled.system import Files, FileStat
    from fabled.vault.catalogue import Catalogue
    from fabled.vault.values import Generation

DEPTH = 8
"""Folders below a root that are looked into; the client uses at most six."""


class Dirty(NamedTuple):
    """A file to read: its root, path, and how many bytes that will be at most."""

    root: str
    path: str
    pending_bytes: int
    mtime_ns: int


class Survey(NamedTuple):
    """One root compared with the Map.

    Attributes:
        root: The projects folder, or the Vault's folder.
        present: False when the root is missing, unlistable, or empty though the Map knows
            files below it; nothing is concluded then.
        dirty: Files to read, the most recently changed first.
        gone: Paths of files that are no longer there.
        seen: Transcripts there are.
        refused: Folders that could not be listed, with the reason; what the Map knows
            below them stays.
    """

    root: str
    present: bool
    dirty: list[Dirty]
    gone: list[str]
    seen: int
    refused: dict[str, str]


class _Walk:
    def __init__(self, disk: Files) -> None:
        self._disk = disk
        self.transcripts: list[str] = []
        self.metas: set[str] = set()
        self.refused: dict[str, str] = {}

    def below(self, folder: str, depth: int) -> bool:
        """Collect a folder's files; False when it cannot be listed."""
        try:
            entries = self._disk.scan(folder)
        except NotFound:
            return False
        except AccessDenied as refusal:
            self.refused[folder] = refusal.message
            return False
        for entry in entries:
            if entry.kind == "dir" and depth < DEPTH:
                self.below(entry.path, depth + 1)
            elif entry.kind == "file" and entry.name.endswith(SUFFIX):
                self.transcripts.append(entry.path)
            elif entry.kind == "file" and entry.name.endswith(".meta.json"):
                self.metas.add(entry.path)
        return bool(entries) or depth > 0

    def meta(self, transcript: str) -> str | None:
        """The state of the description beside an agent's transcript."""
        path = meta_path(transcript)
        stat = self._disk.stat(path) if path in self.metas else None
        return None if stat is None else meta_state(stat)


def survey(snapshot: Snapshot, disk: Files, root: str) -> Survey:
    """Compare one root with the Map. Cost: a listing a folder and a stat a transcript.

    Args:
        snapshot: The Map as it was last committed.
        disk: The file system.
        root: The projects folder, without a slash at its end.
    """
    known = {row.path: row for row in files.every(snapshot, root)}
    walk = _Walk(disk)
    if not walk.below(root, 0):
        return Survey(root, present=False, dirty=[], gone=[], seen=0, refused=walk.refused)
    dirty: list[Dirty] = []
    seen = 0
    for path in walk.transcripts:
        if place(path.removeprefix(root).lstrip("/")) is None:
            continue
        stat = disk.stat(path)
        if stat is None or stat.kind != "file":
            continue
        seen += 1
        row = known.pop(path, None)
        if row is not None and as_known(row, stat) and row.meta == walk.meta(path):
            continue
        grown = row is not None and row.ino == stat.ino and stat.size > row.size
        size = stat.size - row.settled if row is not None and grown else stat.size
        dirty.append(Dirty(root, path, size, stat.mtime_ns))
    dirty.sort(key=lambda d: (-d.mtime_ns, d.path))
    gone = [path for path in known if not _hidden(path, walk.refused)]
    return Survey(root, present=True, dirty=dirty, gone=gone, seen=seen, refused=walk.refused)


def survey_vault(snapshot: Snapshot, catalogue: Catalogue) -> Survey:
    """Compare the Vault with the Map. Cost: nothing but memory, once its sidecars were read."""
    root = catalogue.root
    known = {row.path: row for row in files.every(snapshot, root)}
    try:
        strands = catalogue.strands()
    except AccessDenied as refusal:
        return Survey(root, False, [], [], 0, {root: refusal.message})
    dirty: list[Dirty] = []
    seen = 0
    for strand in strands:
        imported = strand.head.card.imported
        if not imported and place(strand.head.card.path) is None:
            continue
        seen += 1
        row = known.pop(strand.path, None)
        meta = sealed_meta(catalogue, strand.head)
        state = None if meta is None else sealed_state(meta)
        if row is None or row.size != strand.head.end or row.meta != state:
            begun = 0 if row is None else row.settled
            size = max(0, strand.head.end - begun)
            dirty.append(Dirty(root, strand.path, size, strand.head.card.mtime_ns))
    dirty.sort(key=lambda d: (-d.mtime_ns, d.path))
    return Survey(root, True, dirty, sorted(known), seen, {})


def sealed_meta(catalogue: Catalogue, transcript: Generation) -> Generation | None:
    """The newest generation of the description beside an agent's transcript."""
    path = transcript.card.path
    if "/subagents/" not in path or transcript.card.imported:
        return None
    lineage = catalogue.lineage(transcript.origin._replace(path=meta_path(path)))
    return lineage[-1] if lineage else None


def sealed_state(meta: Generation) -> str:
    """What tells one sealed description from the next."""
    return f"generation {meta.card.number}"


def as_known(row: FileRow, stat: FileStat) -> bool:
    """Whether a file looks exactly as it did when it was last read."""
    known = (row.dev, row.ino, row.size, row.mtime_ns)
    return known == (stat.dev, stat.ino, stat.size, stat.mtime_ns)


def meta_state(stat: FileStat) -> str:
    """What tells one state of an agent's description from the next."""
    return f"{stat.ino}:{stat.size}:{stat.mtime_ns}"


def _hidden(path: str, refused: dict[str, str]) -> bool:
    return any(path.startswith(folder + "/") for folder in refused)


def deleted(disk: Files, root: str, path: str) -> bool:
    """Whether a missing file below a root was deleted, rather than being out of sight.

    True when every folder from the root down to the first missing one can be listed and
    the root is not empty.
    """
    folder = root
    try:
        if not disk.scan(root):
            return False
        for part in path.removeprefix(root).lstrip("/").split("/")[:-1]:
            folder = f"{folder}/{part}"
            disk.scan(folder)
    except NotFound:
        return folder != root
    except AccessDenied:
        return False
    return True

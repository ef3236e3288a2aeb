"""Existing backups, found in place: registered with a sidecar of ours, only ever read."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied, FabledError, NotFound
from fabled.vault import names
from fabled.vault.catalogue import card_bytes
from fabled.vault.images import PIECE
from fabled.vault.values import FORMAT, Generation, Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.system import Clock, Files
    from fabled.vault.store import Vault

_BACKUP = re.compile(r"v(\d{1,9})-(raw|pruned)\.jsonl")
DEPTH = 8


class Backup(NamedTuple):
    """A file that looks like a generation: `<folder>/<session>/vN-<kind>.jsonl`."""

    path: str
    session: str
    number: int
    kind: str


class Found(NamedTuple):
    """A backup that was registered now (`fresh`) or before, or why it was not."""

    path: str
    generation: Generation | None
    fresh: bool = False
    refusal: FabledError | None = None


def backups(files: Files, folder: str) -> Iterator[Backup]:
    """Every backup below a folder, gaps in the numbers and all.

    Raises:
        NotFound: There is no such folder.
        AccessDenied: It cannot be listed.
    """
    yield from _below(files, folder, 0)


def _below(files: Files, folder: str, depth: int) -> Iterator[Backup]:
    for entry in files.scan(folder):
        name = _BACKUP.fullmatch(entry.name)
        if entry.kind == "file" and name:
            session = folder.rpartition("/")[2]
            yield Backup(entry.path, session, int(name[1]), name[2])
        elif entry.kind == "dir" and depth < DEPTH:
            try:
                yield from _below(files, entry.path, depth + 1)
            except (NotFound, AccessDenied):
                continue  # the others are not to be missed for one closed folder


def register(vault: Vault, files: Files, clock: Clock, folder: str, backup: Backup) -> Found:
    """Make a backup known to the Vault. Cost: reads it once, to know it again later."""
    place = f"{vault.root}/{names.IMPORTS}"
    label = hashlib.sha256(os.fsencode(backup.path)).hexdigest()[:32]
    known = [one for one in vault.catalogue.imports() if one.data_path == backup.path]
    try:
        card = _card(files, clock, folder, backup)
    except (NotFound, AccessDenied) as refusal:
        return Found(backup.path, None, refusal=refusal)
    if known and known[0].card.sha256 == card.sha256:
        return Found(backup.path, known[0])
    files.make_private_dir(place)
    side = f"{place}/{label}{names.CARD}"
    if files.stat(side) is not None and vault.catalogue.card_at(side) is None:
        files.remove(side)  # damaged: what it said can be said again, the backup is here
    if not files.create_exclusive(side, card_bytes(card)):
        fault = AccessDenied(
            f"{backup.path} changed since it was imported; what was sealed then is gone",
            hint="Copy it under another name and import that.",
        )
        return Found(backup.path, None, refusal=fault)
    vault.catalogue.refresh_imports()
    return Found(backup.path, Generation(names.IMPORTS, card, backup.path), fresh=True)


def _card(files: Files, clock: Clock, folder: str, backup: Backup) -> Sidecar:
    hashed, size = hashlib.sha256(), 0
    with files.open_read(backup.path) as handle:
        stat = handle.stat()
        while piece := handle.read(PIECE):
            hashed.update(piece)
            size += len(piece)
    return Sidecar(
        format=FORMAT,
        root=folder,
        path=backup.path.removeprefix(folder).lstrip("/"),
        session=backup.session,
        kind=backup.kind,
        number=backup.number,
        base=None,
        offset=0,
        size=size,
        sha256=hashed.hexdigest(),
        image_sha256=hashed.hexdigest(),
        compression="none",
        stored=size,
        stored_sha256=hashed.hexdigest(),
        mtime_ns=stat.mtime_ns,
        mode=stat.mode & 0o7777,
        sealed_ms=clock.now_ms(),
        reason="import",
        imported=True,
    )

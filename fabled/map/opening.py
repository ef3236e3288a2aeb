"""Opening the Map for writing; a damaged one is set aside and begun anew, never repaired."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import MapCorrupt
from fabled.map.db import Writer
from fabled.map.schema import VERSION, agree, migrate, number

if TYPE_CHECKING:
    from fabled.system import Files
    from fabled.transcript.veil import Veil

SUFFIXES = ("", "-wal", "-shm")


class Opened(NamedTuple):
    """A Map ready to be written.

    Attributes:
        aside: Where a damaged Map was put; None when there was none.
        migrations: Names of the schema steps applied.
    """

    writer: Writer
    aside: str | None
    migrations: list[str]


def open_map(
    disk: Files, path: str, version: str, veil: Veil, *, now_ms: int, bulk: bool = False
) -> Opened:
    """Open the Map, make or migrate its schema, and start over where SQLite finds damage.

    A Map whose words were taken in under another `veil` is emptied: all is read again.

    Raises:
        MapTooNew: A newer fabled wrote it; it is left alone.
        AccessDenied: It cannot be opened.
        DiskFull: There is no room for it.
    """
    try:
        return Opened(*_open(disk, path, version, veil, bulk=bulk))
    except MapCorrupt:
        aside = set_aside(disk, path, now_ms)
    writer, _, migrations = _open(disk, path, version, veil, bulk=bulk)
    return Opened(writer, aside, migrations)


BEFORE = ".before-upgrade"
"""Ends the name of the copy of a Map that an older fabled wrote; one is kept."""


def _keep_before(disk: Files, writer: Writer) -> None:
    """Keep a copy of a Map that is about to be upgraded: its program may be wanted back."""
    with writer.transaction() as txn:
        old = 0 < number(txn) < VERSION
    copy = f"{writer.path}{BEFORE}"
    if old:
        disk.remove(copy)
        writer.copy(copy)


def _open(
    disk: Files, path: str, version: str, veil: Veil, *, bulk: bool
) -> tuple[Writer, None, list[str]]:
    writer = Writer(path, bulk=bulk)
    with contextlib.ExitStack() as undo:
        undo.callback(writer.close)
        _keep_before(disk, writer)
        migrations = migrate(writer, version)
        with writer.transaction() as txn:
            txn.row("SELECT count(*) FROM files")
            agree(txn, "redact", str(veil.redact))
        undo.pop_all()
    return writer, None, migrations


def set_aside(disk: Files, path: str, now_ms: int) -> str:
    """Rename a damaged Map, its log with it; returns the new name. Nothing has it open."""
    aside = f"{path}.damaged-{now_ms}"
    for suffix in SUFFIXES:
        if disk.stat(path + suffix) is not None:
            disk.replace(path + suffix, aside + suffix)
    return aside


def clear_damaged(disk: Files, path: str) -> None:
    """Remove every other copy of the Map: it may hold words that were forgotten since."""
    folder, _, name = path.rpartition("/")
    for entry in disk.scan(folder):
        if entry.name.startswith(f"{name}.damaged-") or entry.name == name + BEFORE:
            disk.remove(entry.path)


def swap_in(disk: Files, fresh: str, path: str) -> None:
    """Put a complete new Map in the place of the old one. Nothing has either open."""
    for suffix in ("-wal", "-shm"):
        disk.remove(path + suffix)
    disk.replace(fresh, path)


def clear_away(disk: Files, path: str) -> None:
    """Remove an unfinished Map and its log."""
    for suffix in SUFFIXES:
        disk.remove(path + suffix)

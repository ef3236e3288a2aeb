"""What the Vault may let go of: only what is kept as well or better elsewhere in it.

Letting go is moving into the trash folder; the trash is emptied after `TRASH_DAYS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.vault import names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from fabled.system import Clock, Files
    from fabled.vault.catalogue import Strand
    from fabled.vault.store import Vault
    from fabled.vault.values import Generation, Origin

TRASH_DAYS = 30
ORPHANS = "orphans-"
DAY_MS = 86_400_000


class Removable(NamedTuple):
    """A strand that may go, and what proves it."""

    strand: Strand
    because: str


def removable(
    strands: Sequence[Strand],
    undoable: Collection[tuple[str, int]],
    covered: Callable[[Strand, Sequence[Strand]], bool],
) -> list[Removable]:
    """The strands of one live file that may go, decided newest last.

    Kept in any case: the strand with the newest generation, the oldest whole image, and what
    an undo would need.

    Args:
        strands: Those of one live file.
        undoable: (live path, number) of generations that an undo would read.
        covered: Whether every record of a strand has a copy of at least its length, and all
            its damaged bytes too, in other strands.
    """
    kept = list(strands)
    found: list[Removable] = []
    newest = max(strands, key=lambda s: s.head.card.number)
    oldest = min(strands, key=lambda s: s.chain[0].card.number)
    for strand in sorted(strands, key=lambda s: s.chain[0].card.number):
        others = [one for one in kept if one is not strand]
        if strand in (newest, oldest) or _needed(strand, others, undoable):
            continue
        if covered(strand, others):
            kept = others
            found.append(Removable(strand, "every record is kept elsewhere, as long or longer"))
    return found


def _needed(
    strand: Strand, others: Sequence[Strand], undoable: Collection[tuple[str, int]]
) -> bool:
    numbers = {one.card.number for one in own(strand)}
    if any((one.origin.live, one.card.number) in undoable for one in own(strand)):
        return True
    return any(one.card.number in numbers for other in others for one in other.chain)


def own(strand: Strand) -> list[Generation]:
    """The generations that are in no other strand's beginning."""
    paths = [one.data_path for one in strand.chain]
    return list(strand.chain[paths.index(strand.path) :])


def trash(vault: Vault, files: Files, clock: Clock, generations: Sequence[Generation]) -> str:
    """Move generations into the trash, newest first; returns the folder in it.

    A crash in between leaves each one whole, here or there.
    """
    stamp = f"{vault.root}/{names.TRASH}/{clock.now_ms()}"
    for one in sorted(generations, key=lambda g: -g.card.number):
        target = f"{stamp}/{one.folder}"
        files.make_private_dir(target)
        card = names.card_name(one.card.number, one.card.kind)
        # The sidecar goes first: data without one is no generation, and is swept into the trash.
        files.replace(f"{vault.root}/{one.folder}/{card}", f"{target}/{card}")
        files.replace(one.data_path, f"{target}/{one.data_path.rpartition('/')[2]}")
        vault.catalogue.refresh(one.folder)
    return stamp


def empty_trash(vault: Vault, files: Files, clock: Clock) -> int:
    """Remove what has been in the trash for `TRASH_DAYS`; returns how many bytes that freed."""
    freed = 0
    root = f"{vault.root}/{names.TRASH}"
    if files.stat(root) is None:
        return 0
    for entry in files.scan(root):
        age = clock.now_ms() - int(entry.name) if entry.name.isdigit() else 0
        if entry.kind == "dir" and age > TRASH_DAYS * DAY_MS:
            freed += destroy(files, entry.path)
    return freed


def destroy(files: Files, folder: str) -> int:
    """Remove a folder and all that is in it; returns the bytes freed."""
    freed = 0
    for entry in files.scan(folder):
        if entry.kind == "dir":
            freed += destroy(files, entry.path)
        else:
            stat = files.stat(entry.path)
            freed += stat.size if stat is not None else 0
            files.remove(entry.path)
    files.remove_folder(folder)
    return freed


def sweep(vault: Vault, files: Files, clock: Clock) -> list[str]:
    """Clear away what a crash left: nameless files go, data without sidecar is put aside.

    It is put into the trash under a name that is never emptied: a sidecar may also have been
    lost in another way.

    Returns:
        Paths of the data that was put aside.
    """
    orphans: list[str] = []
    for folder, entries in _folders(files, vault.root):
        here = set(entries)
        for name in entries:
            if name.startswith(".fabled-"):
                files.remove(f"{folder}/{name}")
                continue
            data = names.read_data_name(name)
            if data is not None and names.card_name(data.number, data.kind) not in here:
                orphans.append(f"{folder}/{name}")
    for path in orphans:
        relative = path.removeprefix(vault.root + "/").rpartition("/")[0]
        target = f"{vault.root}/{names.TRASH}/{ORPHANS}{clock.now_ms()}/{relative}"
        files.make_private_dir(target)
        files.replace(path, f"{target}/{path.rpartition('/')[2]}")
        vault.catalogue.refresh(relative)
    return orphans


def _folders(files: Files, folder: str) -> Iterator[tuple[str, list[str]]]:
    if files.stat(folder) is None:
        return
    entries = files.scan(folder)
    yield folder, [entry.name for entry in entries if entry.kind == "file"]
    for entry in entries:
        if entry.kind == "dir" and entry.name != names.TRASH:
            yield from _folders(files, entry.path)


def by_origin(strands: Sequence[Strand]) -> dict[Origin, list[Strand]]:
    """Strands by the live file they are of, imported ones left out."""
    found: dict[Origin, list[Strand]] = {}
    for strand in strands:
        if not strand.head.card.imported:
            found.setdefault(strand.head.origin, []).append(strand)
    return found

"""Looking after the Vault: verify, collect, import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from fabled.errors import AccessDenied, FabledError, GenerationDamaged, NotFound
from fabled.map import fidelity
from fabled.map.store import digest
from fabled.vault import imports, retention
from fabled.vault import journal as events
from fabled.vault.journal import News
from fabled.vault.names import folder_of
from fabled.vault.values import PRUNED
from fabled.vault.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fabled.daemon.errands import Say
    from fabled.daemon.keeper import Keeper
    from fabled.vault.catalogue import Strand
    from fabled.vault.values import Generation, Origin

log = structlog.get_logger("upkeep")

SLICES = 30
"""The daily verification reads one of so many parts of the Vault."""

DAY_MS = 86_400_000


def verify_all(keeper: Keeper, say: Say) -> None:
    """Hash every generation again and read every best pointer; a step for each damage."""
    troubles = [t for folder in keeper.vault.catalogue.everything() for t in folder.troubles]
    generations = keeper.vault.catalogue.generations()
    total = sum(one.end for one in generations)
    done, damaged = 0, 0
    for trouble in troubles:
        damaged += 1
        say(_damage(trouble.path, None, "sidecar", f"{trouble.path} {trouble.what}"))
    hurt: list[Generation] = []
    for one in generations:
        for trouble in verify(keeper.system.files, keeper.vault, one):
            damaged += 1
            hurt.append(one)
            message = f"{trouble.path}: {trouble.what}"
            say(_damage(trouble.path, one.card.session, "generation", message))
        done += one.end
        say({"step": "progress", "done_bytes": done, "total_bytes": total})
        if keeper.stopping:
            return
    records, bad = _verify_pointers(keeper, say)
    _mend(keeper, hurt)
    say(
        {
            "step": "done",
            "generations": len(generations),
            "bytes": total,
            "records": records,
            "damaged": damaged + bad,
        }
    )


def _mend(keeper: Keeper, hurt: Sequence[Generation]) -> None:
    """Have the Map prefer other copies, and seal again what is still there live."""
    strands = [keeper.vault.catalogue.strand_of(one) for one in hurt]
    paths = [strand.path for strand in strands if strand is not None]
    keeper.desk.queue(list(dict.fromkeys(paths)), live=True, afresh=True)
    keeper.mend(one.origin for one in hurt if not one.card.imported)


def _damage(path: str, session: str | None, what: str, message: str) -> dict[str, Any]:
    return {"step": "damaged", "path": path, "session": session, "what": what, "message": message}


def _verify_pointers(keeper: Keeper, say: Say) -> tuple[int, int]:
    """Read every record at its best pointer; live files that changed are read again instead."""
    after, records, bad = 0, 0, 0
    while not keeper.stopping:
        with keeper.snapshots.snapshot() as snapshot:
            batch = list(fidelity.best_pointers(snapshot, after))
        if not batch:
            break
        after = batch[-1][0]
        records += len(batch)
        by_path: dict[str, list[fidelity.Spot]] = {}
        for _, best in batch:
            by_path.setdefault(best.path, []).append(best.spot)
        for path, spots in by_path.items():
            wrong = _wrong(keeper, path, spots)
            if wrong and keeper.shelf.sources.in_vault(path):
                bad += wrong
                say(_damage(path, None, "record", f"{path}: {wrong} records are not as indexed"))
            elif wrong:
                keeper.desk.queue([path], live=True, afresh=True)
    return records, bad


def _wrong(keeper: Keeper, path: str, spots: Sequence[fidelity.Spot]) -> int:
    wrong = 0
    try:
        with keeper.shelf.sources.open_read(path) as handle:
            for spot in sorted(spots):
                data = handle.pread(spot.offset, spot.length)
                wrong += len(data) != spot.length or digest(data) != spot.digest
    except (NotFound, AccessDenied, GenerationDamaged):
        return len(spots)
    return wrong


def verify_slice(keeper: Keeper) -> str:
    """The daily job: one part of the Vault; damage becomes an event and a warning."""
    day = keeper.system.clock.now_ms() // DAY_MS
    generations = keeper.vault.catalogue.generations()
    mine = [one for at, one in enumerate(generations) if at % SLICES == day % SLICES]
    news: list[News] = []
    hurt: list[Generation] = []
    for one in mine:
        if keeper.stopping:
            break
        for trouble in verify(keeper.system.files, keeper.vault, one):
            detail = {"generation": one.card.number, "what": trouble.what}
            project = one.card.path.partition("/")[0]
            news.append(News(events.DAMAGED, one.card.session, project, trouble.path, detail))
            hurt.append(one)
    keeper.journal.write(news)
    _mend(keeper, hurt)
    if news:
        log.error("generations are damaged", count=len(news))
        keeper.desk.note(
            "vault damage",
            f"{len(news)} generations in the Vault are damaged; run: fablectl vault verify",
        )
    return f"{len(mine)} generations read, {len(news)} damaged"


def collect(keeper: Keeper, say: Say, *, dry_run: bool) -> None:
    """Move what is provably kept elsewhere into the trash, and empty old trash."""
    removed: list[dict[str, Any]] = []
    kept, trash = 0, None
    with keeper.alone():
        strands = keeper.vault.catalogue.strands()
        undoable = _undoable(strands)
        for origin, mine in retention.by_origin(strands).items():
            if _in_doubt(keeper, origin, mine):
                kept += len(mine)
                continue
            found = retention.removable(mine, undoable, _covered(keeper))
            kept += len(mine) - len(found)
            for one in found:
                generations = retention.own(one.strand)
                removed += [_removed(generation, one.because) for generation in generations]
                if dry_run:
                    continue
                trash = retention.trash(
                    keeper.vault, keeper.system.files, keeper.system.clock, generations
                )
                detail = {"generations": [g.card.number for g in generations]}
                session = generations[0].card.session
                keeper.journal.write([News(events.COLLECTED, session, None, origin.live, detail)])
                keeper.desk.queue([one.strand.path], live=True)
        if not dry_run:
            retention.empty_trash(keeper.vault, keeper.system.files, keeper.system.clock)
    freed = sum(one["bytes"] for one in removed)
    say({"step": "done", "removed": removed, "bytes": freed, "kept": kept, "trash": trash})


def _undoable(strands: Iterable[Strand]) -> set[tuple[str, int]]:
    """What an undo of any prune would read: its own image, and the one before it."""
    needed: set[tuple[str, int]] = set()
    for strand in strands:
        for one in strand.chain:
            if one.card.kind == PRUNED and one.card.receipt is not None:
                needed.add((one.origin.live, one.card.number))
                needed.add((one.origin.live, one.card.receipt.before))
    return needed


def _in_doubt(keeper: Keeper, origin: Origin, strands: Sequence[Strand]) -> bool:
    """Whether something in the folder may continue what looks as if nothing did."""
    folder = keeper.vault.catalogue.folder(folder_of(origin.path))
    reached = {one.data_path for strand in strands for one in strand.chain}
    lineage = keeper.vault.catalogue.lineage(origin)
    return bool(folder.troubles) or any(one.data_path not in reached for one in lineage)


def _covered(keeper: Keeper) -> Any:
    def by_map(strand: Strand, others: Sequence[Strand]) -> bool:
        with keeper.snapshots.snapshot() as snapshot:
            return fidelity.covered(snapshot, strand.path, [other.path for other in others])

    def covered(strand: Strand, others: Sequence[Strand]) -> bool:
        if not by_map(strand, others):
            return False
        # What the Map says of others has to be readable as well.
        sound = [other for other in others if keeper.vault.intact(other.head)]
        return by_map(strand, sound)

    return covered


def _removed(one: Generation, because: str) -> dict[str, Any]:
    return {
        "session": one.card.session,
        "path": one.data_path,
        "number": one.card.number,
        "bytes": one.card.stored,
        "because": because,
    }


def take_over(keeper: Keeper, folder: str, say: Say) -> None:
    """Register existing backups below a folder; they are read where they lie."""
    done = {"generations": 0, "bytes": 0, "sessions": 0, "skipped": 0}
    names: set[str] = set()
    news: list[News] = []
    fresh: list[str] = []
    files, clock = keeper.system.files, keeper.system.clock
    with keeper.alone():
        for backup in imports.backups(files, folder):
            found = imports.register(keeper.vault, files, clock, folder, backup)
            if found.generation is None:
                done["skipped"] += 1
                refusal = found.refusal or FabledError("cannot be read")
                say({"step": "skipped", "path": found.path, "message": refusal.message})
                continue
            card = found.generation.card
            names.add(card.session)
            done["generations"] += 1
            done["bytes"] += card.size
            facts = {"kind": card.kind, "number": card.number, "bytes": card.size}
            say({"step": "found", "session": card.session, "path": found.path, **facts})
            if found.fresh:
                detail = {"generation": card.number, "bytes": card.size}
                news.append(News(events.IMPORTED, card.session, None, found.path, detail))
                fresh.append(found.path)
        keeper.journal.write(news)
    keeper.desk.queue_sealed(fresh)
    say({"step": "done", **done, "sessions": len(names)})

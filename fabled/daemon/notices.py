"""What the keeper tells: warnings for `status`, and deletions for the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from fabled.daemon.retention import cleanup_days
from fabled.vault import journal as events
from fabled.vault.journal import News

if TYPE_CHECKING:
    from fabled.daemon.keeper import Keeper
    from fabled.prune.following import Looked

log = structlog.get_logger("keeper")

MASS = 10
"""So many deletions at once are an event of their own."""


def after_archive(keeper: Keeper, refused: int, why: str) -> None:
    """Say what keeps files from being kept: refusals, the disk cap, the client's settings."""
    desk = keeper.desk
    said = f"{refused} files could not be sealed: {why}"
    desk.note("not sealed", said if refused else None)
    cap = int(keeper.settings.values["vault.max_bytes"])
    used = keeper.shelf.view().totals.bytes
    over = f"the Vault holds {used} bytes; vault.max_bytes is {cap}" if 0 < cap < used else None
    desk.note("vault cap", over and f"{over}. Nothing is deleted; see: fablectl vault gc")
    # The client's own settings can keep it from writing transcripts at all.
    off = [root for root in desk.roots if cleanup_days(keeper.system.files, root) == 0]
    said = "cleanupPeriodDays is 0 in the client's settings: it may write no transcripts"
    desk.note("client settings", f"{said} ({', '.join(off)})" if off else None)


def of_followed(keeper: Keeper, looked: Looked) -> None:
    """Say which replaced files are still open elsewhere, and what could not be carried over."""
    held = keeper.follower.held()
    said = f"{len(held)} pruned transcripts are still held open; what comes is carried over"
    keeper.desk.note("held", said if held else None)
    fault = next(iter(looked.faults), None)
    late = f"not carried over yet: {fault.message}" if fault is not None else None
    keeper.desk.note("late lines", late)


def of_vanished(keeper: Keeper, paths: list[str]) -> None:
    """Journal that the client, or somebody, deleted live transcripts."""
    view = keeper.shelf.view()
    news: list[News] = []
    for path in paths:
        lineage = view.by_path.get(path)
        if "/subagents/" in path:
            continue
        head = lineage[-1] if lineage else None
        name = path.rpartition("/")[2].removesuffix(".jsonl")
        detail = {"sealed": head is not None, "sealed_bytes": 0 if head is None else head.end}
        project = path.rpartition("/")[0].rpartition("/")[2]
        session = name if head is None else head.card.session
        news.append(News(events.VANISHED, session, project, path, detail))
    if len(news) >= MASS:
        sealed = sum(one.detail["sealed"] for one in news)
        detail = {"count": len(news), "sealed": sealed}
        news.append(News(events.MASS_DELETION, None, None, None, detail))
        log.warning("many transcripts were deleted at once", **detail)
    keeper.journal.write(news)

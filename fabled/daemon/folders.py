"""A folder that appeared or moved: its files may have come before anybody watched it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from fabled.errors import AccessDenied, NotFound
from fabled.transcript.layout import SUFFIX

if TYPE_CHECKING:
    from fabled.system import Files

log = structlog.get_logger("folders")


def inside(files: Files, path: str) -> list[str] | None:
    """What to look at in its place, folders among it; None when the path is no folder."""
    stat = files.stat(path)
    if stat is None or stat.kind != "dir":
        return None
    try:
        entries = files.scan(path)
    except (NotFound, AccessDenied) as refusal:
        # Gone again, or closed to us: the next survey reports what stays so.
        log.info("a new folder cannot be listed", path=path, error=refusal.message)
        return []
    return [e.path for e in entries if e.kind == "dir" or e.name.endswith(SUFFIX)]

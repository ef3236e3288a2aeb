"""What the client will delete soon: it removes transcripts not changed for 30 days.

Source: the client's `cleanupPeriodDays` setting, measured to go by the file's
modification time, at its start.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

import msgspec

from fabled.errors import AccessDenied
from fabled.map.sessions import unchanged_since
from fabled.recall.dates import iso

if TYPE_CHECKING:
    from fabled.daemon.shelf import View
    from fabled.map.db import Snapshot
    from fabled.system import Files

DEFAULT_DAYS = 30
WARN_DAYS = 7
DAY_MS = 86_400_000
_SETTINGS_LIMIT = 1 << 20


class _Settings(msgspec.Struct, rename="camel"):
    cleanup_period_days: int | float | None = None


def cleanup_days(files: Files, root: str) -> float:
    """The client's retention for one projects folder, from the settings beside it."""
    try:
        data = files.read_small(posixpath.dirname(root) + "/settings.json", _SETTINGS_LIMIT)
        settings = msgspec.json.decode(data or b"{}", type=_Settings)
    except (AccessDenied, msgspec.DecodeError):
        return DEFAULT_DAYS  # the client falls back to its default as well
    days = settings.cleanup_period_days
    return days if days is not None and 0 <= days < 100_000 else DEFAULT_DAYS


def at_risk(
    snapshot: Snapshot, files: Files, roots: tuple[str, ...], now_ms: int, view: View
) -> list[Any]:
    """Sessions whose main transcript the client deletes within `WARN_DAYS`, the first one first."""
    found: list[tuple[int, Any]] = []
    for root in roots:
        keep_ms = int(cleanup_days(files, root) * DAY_MS)
        newest_ns = (now_ms - keep_ms + WARN_DAYS * DAY_MS) * 1_000_000
        for file in unchanged_since(snapshot, root, newest_ns):
            due = file.mtime_ns // 1_000_000 + keep_ms
            row = {
                "session": file.session,
                "project": file.project,
                "title": file.title,
                "path": file.path,
                "bytes": file.bytes,
                "deleted_from": iso(max(0, due)),
                "sealed": view.is_sealed(file.path, file.bytes, file.mtime_ns),
            }
            found.append((due, row))
    return [row for _, row in sorted(found, key=lambda item: (item[0], item[1]["session"]))]

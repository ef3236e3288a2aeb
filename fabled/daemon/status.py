"""`status`: alive, done, pending, at risk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fabled import __version__
from fabled.protocol import PROTOCOL
from fabled.recall.dates import iso

if TYPE_CHECKING:
    from fabled.daemon.answers import Answers
    from fabled.daemon.desk import Desk, Work
    from fabled.daemon.jobs import JobRow, Jobs
    from fabled.daemon.keeper import Keeper
    from fabled.daemon.watch import Watcher
    from fabled.model import Totals
    from fabled.system import System


class Parts(NamedTuple):
    """What a status is made of."""

    system: System
    keeper: Keeper
    jobs: Jobs
    watcher: Watcher
    began_s: float

    @property
    def desk(self) -> Desk:
        """Where work waits."""
        return self.keeper.desk

    @property
    def answers(self) -> Answers:
        """What the socket answers."""
        return self.keeper.answers


def status(parts: Parts, *, draining: bool) -> dict[str, Any]:
    """`GET /v1/status`, as the interface names its keys."""
    work = parts.desk.work()
    now = parts.system.clock.monotonic_s()
    totals = parts.answers.totals()
    roots = parts.watcher.state()
    progress = work.progress
    processes = parts.system.processes
    return {
        "version": __version__,
        "protocol": PROTOCOL,
        "pid": processes.pid(),
        "uptime_s": round(now - parts.began_s, 3),
        "state": _state(work, draining=draining),
        "map": _map(totals),
        "pending": {
            "files": work.pending.files,
            "bytes": work.pending.bytes,
            "lag_s": round(work.pending.lag_s, 3),
        },
        "progress": None if progress is None else progress._asdict(),
        "vault": {
            **parts.keeper.shelf.view().totals._asdict(),
            "unsealed_bytes": parts.answers.unsealed_bytes(),
        },
        "prune": parts.keeper.shelf.prunes(),
        "jobs": [_job(row) for row in parts.jobs.rows()],
        "at_risk": parts.answers.at_risk(),
        "roots": [
            {"path": root.path, "present": root.present, "watched": root.mode} for root in roots
        ],
        "warnings": [*work.warnings, *_root_warnings(parts)],
        "rss_bytes": processes.rss_bytes(),
        "cpu_s": round(processes.cpu_s(), 3),
        "backfill_pid": work.child,
    }


def _state(work: Work, *, draining: bool) -> str:
    if draining:
        return "draining"
    if not work.surveyed:
        return "starting"
    return "indexing" if work.pending.files else "idle"


def _map(totals: Totals) -> dict[str, int]:
    return {
        "files": totals.files,
        "records": totals.records,
        "copies": totals.copies,
        "threads": totals.threads,
        "sessions": totals.sessions,
        "bytes": totals.bytes,
    }


def _job(row: JobRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "last_run": iso(row.last_run),
        "last_result": row.last_result,
        "next_run": iso(row.next_run),
        "running_s": row.running_s,
        "failures": row.failures,
    }


def _root_warnings(parts: Parts) -> list[str]:
    warnings: list[str] = []
    for root in parts.watcher.state():
        if not root.present:
            warnings.append(f"{root.path} is not there; waiting for it")
        elif root.mode == "polling":
            warnings.append(
                f"{root.path} is polled: the system's limit of watched folders is reached"
            )
    return warnings

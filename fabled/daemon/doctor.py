"""What the daemon finds when it looks at itself and its surroundings. Each finding has its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.daemon.retention import cleanup_days
from fabled.errors import FabledError
from fabled.map import queries
from fabled.map.db import Deadline, features
from fabled.vault.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.daemon.status import Parts

GOOD, WARNING, WRONG = "ok", "warning", "error"
ROOM = 1 << 30
SPOT_CHECKS = 3
EARLIEST_MS = 1_735_689_600_000  # 2025: before that this program was not there
ASKED_S = 20.0


class Finding(NamedTuple):
    """One check: what was found, and what to do about it."""

    check: str
    level: str
    message: str
    fix: str | None = None


def examine(parts: Parts) -> list[dict[str, Any]]:
    """Every check, in a fixed order; one that cannot be made says so and ends no other."""
    found: list[Finding] = []
    for name, check in _CHECKS.items():
        try:
            found += check(parts)
        except FabledError as fault:
            found.append(Finding(name, WRONG, fault.message, fault.hint))
    return [one._asdict() for one in found]


def _map(parts: Parts) -> Iterator[Finding]:
    deadline = Deadline(parts.system.clock.monotonic_s, ASKED_S)
    with parts.keeper.snapshots.snapshot(deadline) as snapshot:
        totals = queries.totals(snapshot)
        known = features(snapshot)
    yield Finding("map", GOOD, f"{totals.records} records in {totals.files} files")
    missing = {"ENABLE_FTS5"} - known.options
    if missing:
        fix = "Install apsw again."
        yield Finding("sqlite", WRONG, f"SQLite {known.version} lacks {missing}", fix)
    else:
        yield Finding("sqlite", GOOD, f"SQLite {known.version}")


def _vault(parts: Parts) -> Iterator[Finding]:
    vault = parts.keeper.vault
    folders = vault.catalogue.everything()
    troubles = [trouble for folder in folders for trouble in folder.troubles]
    for trouble in troubles[:5]:
        fix = "See: fablectl vault verify; restore that file from a backup of the Vault."
        yield Finding("vault", WRONG, f"{trouble.path} {trouble.what}", fix)
    generations = [one for folder in folders for one in folder.generations]
    step = max(1, len(generations) // SPOT_CHECKS)
    for one in generations[::step][:SPOT_CHECKS]:
        for trouble in verify(parts.system.files, vault, one):
            fix = "Run: fablectl vault verify; it seals anew what is still there live."
            yield Finding("vault", WRONG, f"{trouble.path} {trouble.what}", fix)
    if not troubles:
        checked = min(SPOT_CHECKS, len(generations))
        yield Finding("vault", GOOD, f"{len(generations)} generations, {checked} read again")


def _disk(parts: Parts) -> Iterator[Finding]:
    home = parts.keeper.home
    free = parts.system.files.free_bytes(home)
    if free < ROOM:
        fix = "Free some room: nothing is sealed and nothing is pruned without it."
        yield Finding("disk", WARNING, f"{free >> 20} MiB free below {home}", fix)
    else:
        yield Finding("disk", GOOD, f"{free >> 30} GiB free below {home}")
    if parts.system.processes.remote(home):
        fix = "Set FABLED_HOME to a local folder: SQLite and file locks need one."
        yield Finding("home", WRONG, f"{home} lies on a network file system", fix)
    synced = next((mark for mark in _SYNCED if f"/{mark}" in home), None)
    if synced:
        fix = "Set FABLED_HOME to a folder that nothing synchronises."
        yield Finding("home", WARNING, f"{home} seems to be synchronised ({synced})", fix)
    for folder in (home, f"{home}/vault"):
        stat = parts.system.files.stat(folder)
        if stat is not None and stat.mode & 0o077:
            fix = f"Run: chmod 700 {folder}"
            yield Finding("permissions", WARNING, f"others can look into {folder}", fix)


_SYNCED = ("Dropbox", "OneDrive", "Google Drive", "iCloud", "Mobile Documents", "Nextcloud")


def _roots(parts: Parts) -> Iterator[Finding]:
    for root in parts.watcher.state():
        if not root.present:
            fix = "Nothing to do if Claude Code was never run here; else check `projects`."
            yield Finding("projects", WARNING, f"{root.path} is not there", fix)
        elif root.mode == "polling":
            fix = "Raise fs.inotify.max_user_watches, or leave it: polling only costs some CPU."
            yield Finding("projects", WARNING, f"{root.path} is polled, not watched", fix)
        else:
            yield Finding("projects", GOOD, f"{root.path} is watched")
        if parts.system.processes.remote(root.path):
            fix = "It is indexed and sealed; prunes leave it alone."
            yield Finding("projects", WARNING, f"{root.path} is on a network file system", fix)


def _retention(parts: Parts) -> Iterator[Finding]:
    for root in parts.keeper.desk.roots:
        days = cleanup_days(parts.system.files, root)
        if days == 0:
            fix = "Remove cleanupPeriodDays from the client's settings.json."
            message = f"cleanupPeriodDays is 0 for {root}: the client may write no transcripts"
            yield Finding("retention", WRONG, message, fix)
        else:
            yield Finding("retention", GOOD, f"the client deletes after {days} days ({root})")
    risky = [row for row in parts.answers.at_risk() if not row["sealed"]]
    if risky:
        first = risky[0]["session"]
        message = f"{len(risky)} sessions are deleted soon and not sealed, {first} first"
        yield Finding("retention", WARNING, message, "Run: fablectl vault seal --all")
    if not parts.keeper.settings.flag("archive.enabled"):
        fix = "Set archive.enabled = true, or what the client deletes is gone."
        yield Finding("archive", WARNING, "the archive is turned off", fix)


def _jobs(parts: Parts) -> Iterator[Finding]:
    bad = [row for row in parts.jobs.rows() if row.failures]
    for row in bad:
        said = f"job {row.name} failed {row.failures} times: {row.last_result}"
        yield Finding("jobs", WARNING, said, "See the log: fablectl service logs")
    if not bad:
        yield Finding("jobs", GOOD, f"{len(parts.jobs.rows())} jobs, none failing")


def _clock(parts: Parts) -> Iterator[Finding]:
    now = parts.system.clock.now_ms()
    newest = max((e.ms for e in parts.keeper.journal.events()[-1:]), default=0)
    if now < EARLIEST_MS or newest > now + 86_400_000:
        fix = "Set the clock: deadlines of the client are reckoned by it."
        yield Finding("clock", WARNING, "the system's clock seems to be wrong", fix)
    else:
        yield Finding("clock", GOOD, "the clock is plausible")


def _warnings(parts: Parts) -> Iterator[Finding]:
    for warning in parts.desk.work().warnings:
        yield Finding("status", WARNING, warning, "See: fablectl status")


_CHECKS: dict[str, Callable[[Parts], Iterator[Finding]]] = {
    "map": _map,
    "vault": _vault,
    "disk": _disk,
    "projects": _roots,
    "retention": _retention,
    "jobs": _jobs,
    "clock": _clock,
    "status": _warnings,
}

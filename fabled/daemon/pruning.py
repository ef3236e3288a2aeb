"""Prune and undo as the daemon does them: when, which, and what is written down.

The job and a person's order go through the same functions and the same gate; the job
only chooses for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from fabled.errors import (
    FabledError,
    FileBusy,
    InternalError,
    NotFound,
    NothingToGain,
    NotQuiet,
    PruneDeclined,
    SessionLive,
)
from fabled.map import fidelity, sessions
from fabled.prune import apply
from fabled.prune.live import live_process
from fabled.prune.recovery import recover, sealed, verdict
from fabled.prune.values import Options
from fabled.vault import journal as events
from fabled.vault.journal import News
from fabled.vault.values import Generation, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fabled.config import PruneSettings
    from fabled.daemon.errands import Say
    from fabled.daemon.keeper import Keeper
    from fabled.map.fidelity import Spot
    from fabled.map.sessions import MainRow

log = structlog.get_logger("pruning")

PORTABLE_QUIET_S = 60.0
"""Without leases a transcript has to be quiet for at least this long."""

GROWN = 1.1
"""A transcript that could not be shrunk is tried again when it is so much larger."""


class Wanted(NamedTuple):
    """A prune asked for by hand; None: as configured."""

    sessions: tuple[str, ...]
    level: str | None
    mode: str
    keep_prompts: int | None
    dry_run: bool
    output: str | None


class Pruner:
    """Belongs to the keeper, and works under its lock."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._system = keeper.system
        self._given_up: dict[str, float] = {}

    # --- by itself ---

    def job(self) -> str:
        """Prune what is quiet, large, and worth it; one at a time."""
        counts = {"pruned": 0, "declined": 0, "bytes": 0}
        undone = self._undone_last()
        for row in self._rows():
            if self._keeper.stopping:
                return "broken off"
            settings = self._settings(row)
            if not settings.enabled or row.path in undone or not self._due(row, settings):
                continue
            try:
                with self._keeper.alone():
                    self._may(row, settings)
                    wish = apply.Wish(self._options(settings), settings.min_gain)
                    saved = self._prune(row, wish)
                counts["pruned"] += 1
                counts["bytes"] += saved.preview.before_bytes - saved.preview.after_bytes
            except FabledError as fault:
                counts["declined"] += 1
                self._note_refusal(row, fault)
        if counts["pruned"]:
            self._system.processes.release_memory()
        return f"{counts['pruned']} pruned, {counts['bytes']} bytes saved"

    def _rows(self) -> list[MainRow]:
        with self._keeper.snapshots.snapshot() as snapshot:
            return sessions.mains(snapshot)

    def _settings(self, row: MainRow) -> PruneSettings:
        project = row.project or ""
        last = project.rstrip("/").rpartition("/")[2]
        return self._keeper.settings.prune(row.folder, last, project)

    def _options(self, settings: PruneSettings) -> Options:
        key = self._keeper.key
        return Options(settings.level, "resume", settings.keep_prompts, key)

    def _due(self, row: MainRow, settings: PruneSettings) -> bool:
        """By what the Map last saw; nothing is opened for the many that are not due."""
        if row.size < max(1, settings.min_bytes) or row.size < self._given_up.get(row.path, 0):
            return False
        return self._age_s(row.mtime_ns) >= settings.quiet

    def _age_s(self, mtime_ns: int) -> float:
        return (self._system.clock.now_ms() * 1_000_000 - mtime_ns) / 1e9

    def _note_refusal(self, row: MainRow, fault: FabledError) -> None:
        log.info("not pruned", path=row.path, code=fault.code, error=fault.message)
        if not isinstance(fault, NothingToGain | PruneDeclined):
            return  # it is tried again
        known = row.path in self._given_up
        self._given_up[row.path] = row.size * GROWN
        if isinstance(fault, PruneDeclined) and not known:
            detail = {"why": fault.code}
            news = News(events.DECLINED, row.session, row.folder, row.path, detail)
            self._keeper.journal.write([news])

    def _undone_last(self) -> set[str | None]:
        """Transcripts whose last prune was taken back by hand: they are left alone."""
        last: dict[str | None, str] = {}
        for event in self._keeper.journal.events():
            if event.news.event in {events.PRUNED, events.UNDONE}:
                last[event.news.path] = event.news.event
        return {path for path, event in last.items() if event == events.UNDONE}

    # --- whether now is the time ---

    def _may(self, row: MainRow, settings: PruneSettings) -> None:
        """Quiet, and no client at work on it; the door itself proves that nobody writes.

        Raises:
            NotQuiet: It was changed too recently.
            SessionLive: A client process works on it.
        """
        stat = self._system.files.stat(row.path)
        if stat is None:
            raise NotFound(f"{row.path} is not there")
        least = settings.quiet
        if not self._keeper.leases(row.path):
            least = max(least, PORTABLE_QUIET_S)
            if self._client_near(row):
                raise SessionLive(f"a client works in {row.project}; there are no leases here")
        age = self._age_s(stat.mtime_ns)
        if age < least:
            raise NotQuiet(f"{row.path} was changed {age:.0f} s ago; quiet is {least:.0f} s")
        pid = live_process(self._system, row.root, row.session)
        if pid is not None:
            raise SessionLive(f"process {pid} works on session {row.session}")
        if not self._keeper.follower.settled(row.path):
            raise FileBusy(
                f"something may still be written to the file that {row.path} took the place of"
            )

    def _client_near(self, row: MainRow) -> bool:
        """Whether a client runs in the session's folder, or nobody knows where it runs."""
        return any(cwd is None or cwd == row.project for cwd in self._system.processes.clients())

    # --- by hand ---

    def by_hand(self, wanted: Wanted, say: Say) -> None:
        """Prune, or show what a prune would do; a step a session, then all of them."""
        rows = list(self._chosen(wanted.sessions))
        found: list[dict[str, Any]] = []
        for row in rows:
            if self._keeper.stopping:
                break
            found.append(self._one(row, wanted))
            say({"step": "session", **found[-1]})
        self._system.processes.release_memory()
        say({"step": "done", "sessions": found})

    def _chosen(self, names: Sequence[str]) -> Iterator[MainRow]:
        rows = self._rows()
        if not names:
            yield from rows
            return
        for name in names:
            fits = [row for row in rows if name in {row.path, row.session}]
            if not fits:
                with self._keeper.snapshots.snapshot() as snapshot:
                    session = sessions.one(snapshot, name)
                fits = [row for row in rows if session and row.session == session.session]
            if not fits:
                raise NotFound(f"no live transcript is called {name}")
            yield from fits

    def _one(self, row: MainRow, wanted: Wanted) -> dict[str, Any]:
        settings = self._settings(row)
        level = wanted.level or settings.level
        keep = settings.keep_prompts if wanted.keep_prompts is None else wanted.keep_prompts
        options = Options(level, wanted.mode, keep, self._keeper.key)
        reply: dict[str, Any] = {
            "session": row.session,
            "level": level,
            "mode": wanted.mode,
            "before_bytes": row.size,
            "after_bytes": row.size,
            "rules": [],
            "applied": False,
            "refused": None,
            "path": row.path,
        }
        try:
            if wanted.dry_run or wanted.output is not None:
                found = apply.preview(self.bench(), origin_of(row), options, wanted.output)
            else:
                with self._keeper.alone():
                    self._may(row, settings)
                    found = self._prune(row, apply.Wish(options)).preview
                reply["applied"] = True
        except FabledError as fault:
            log.info("not pruned", path=row.path, code=fault.code, error=fault.message)
            return {**reply, "refused": apply.refusal(fault)}
        rules = [
            {"rule": saving.rule, "records": saving.records, "bytes": saving.bytes}
            for saving in found.savings
        ]
        sizes = {"before_bytes": found.before_bytes, "after_bytes": found.after_bytes}
        return {**reply, **sizes, "rules": rules}

    def undo(self, name: str) -> dict[str, Any]:
        """Take back the last prune of a session.

        Raises:
            FabledError: What `apply.undo` raises, or that it is not the time.
        """
        (row, *_) = self._chosen([name])
        with self._keeper.alone():
            self._may(row, self._settings(row))
            origin = origin_of(row)
            lineage = self._keeper.vault.catalogue.lineage(origin)
            done = apply.undo(self.bench(), origin, lineage, self._undone(row.path))
            detail = {
                "generation": done.generation.card.number,
                "before_bytes": done.before_bytes,
                "after_bytes": done.after_bytes,
            }
            news = News(events.UNDONE, row.session, row.folder, row.path, detail)
            self._keeper.journal.write([news])
            self._given_up.pop(row.path, None)
            self._keeper.seal_again(origin, "after an undo")
        self._afterwards(row.path)
        return {
            "session": row.session,
            "path": row.path,
            "before_bytes": done.before_bytes,
            "after_bytes": done.after_bytes,
            "kept_bytes": done.kept_bytes,
            "generation": done.generation.card.number,
        }

    def remove(self, path: str, doomed: apply.Doomed) -> int:
        """Take records out of a live transcript; the caller works alone. Returns bytes saved.

        Raises:
            FabledError: It is not the time, or what `apply.remove` raises.
        """
        rows = [row for row in self._rows() if row.path == path]
        if rows:
            self._may(rows[0], self._settings(rows[0]))
        origin = self._keeper.origin(path)
        saved = apply.remove(self.bench(), origin, self._keeper.key, doomed)
        self._afterwards(path)
        return saved

    def _undone(self, path: str) -> set[int]:
        return {number for where, number in self._keeper.shelf.undone() if where == path}

    # --- the work ---

    def bench(self) -> apply.Bench:
        """What prune and undo work with."""
        keeper = self._keeper
        names = keeper.answers.session_names()
        return apply.Bench(keeper.system, keeper.vault, keeper.door, self._indexed, names.get)

    def _indexed(self, generation: Generation) -> set[Spot]:
        self._keeper.index_now(generation)
        strand = self._keeper.vault.catalogue.strand_of(generation)
        if strand is None:
            raise InternalError(f"{generation.data_path} is in no strand")
        with self._keeper.snapshots.snapshot() as snapshot:
            return fidelity.spots(snapshot, strand.path)

    def _prune(self, row: MainRow, wish: apply.Wish) -> apply.Pruned:
        now = self._system.clock.now_ms()
        done = apply.prune(self.bench(), origin_of(row), wish, now)
        self._keeper.journal.write([pruned_news(done.generation)])
        if done.replaced.fault is not None:
            log.error("after the prune", path=row.path, error=done.replaced.fault.message)
        log.info(
            "pruned",
            path=row.path,
            before=done.preview.before_bytes,
            after=done.preview.after_bytes,
            closed_ms=round(done.replaced.closed_s * 1000, 1),
            held=done.replaced.held,
        )
        self._afterwards(row.path)
        return done

    def _afterwards(self, path: str) -> None:
        """Have the Map look again, and the old file followed until nothing can come."""
        lineage = self._keeper.vault.catalogue.lineage(self._keeper.origin(path))
        strands = [self._keeper.vault.catalogue.strand_of(one) for one in lineage[-2:]]
        paths = [strand.path for strand in strands if strand is not None]
        self._keeper.desk.queue([path, *paths], live=True)
        self._keeper.follow()


def origin_of(row: MainRow) -> Origin:
    """The live file behind a row."""
    return Origin(row.root, row.path.removeprefix(row.root).lstrip("/"))


def pruned_news(generation: Generation) -> News:
    """The event of a prune that was put in place."""
    card = generation.card
    receipt = card.receipt
    detail: dict[str, Any] = {"generation": card.number}
    if receipt is not None:
        sizes = {"before_bytes": receipt.before_bytes, "after_bytes": receipt.after_bytes}
        detail.update(level=receipt.level, mode=receipt.mode, **sizes)
    project = card.path.partition("/")[0]
    return News(events.PRUNED, card.session, project, generation.origin.live, detail)


def put_right(keeper: Keeper) -> None:
    """At start: finish or take back the prune that the last end interrupted."""
    written = {
        (event.news.path, event.news.detail.get("generation"))
        for event in keeper.journal.events()
        if event.news.event == events.PRUNED
    }
    for found in recover(keeper.system, keeper.pending, keeper.follower, sealed(keeper.vault)):
        if found.fault is not None:
            log.error("not put right", path=found.path, error=found.fault.message)
            keeper.desk.note("unfinished", f"{found.fault.message}. {found.fault.hint}")
        if found.carried:
            log.warning("late lines were carried over", path=found.path, bytes=found.carried)
        lineage = keeper.vault.catalogue.lineage(keeper.origin(found.path))
        seen = verdict(keeper.system.files, found, lineage)
        keeper.desk.queue([found.path], live=True)
        if seen is None or (found.path, seen.generation.card.number) in written:
            continue  # what is journalled was put in place, whatever came after
        if seen.happened:
            keeper.journal.write([pruned_news(seen.generation)])
        else:
            keeper.vault.discard(seen.generation)
    keeper.follow()

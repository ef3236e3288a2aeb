"""The one who writes generations: the archive job, and what is asked for by hand.

One thing at a time, under one lock. What is sealed is left on the desk, so that the
Map knows it a moment later; what happened is in the journal.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog

from fabled.cards.shelf import CardShelf
from fabled.daemon import notices
from fabled.daemon.carding import Carding
from fabled.daemon.errands import Errand, Say, Work
from fabled.daemon.forgetting import finish
from fabled.daemon.home import PENDING
from fabled.daemon.pruning import Pruner, put_right
from fabled.daemon.retention import DAY_MS, WARN_DAYS, cleanup_days
from fabled.errors import DaemonBusy, NotFound, UsageError
from fabled.map import sessions
from fabled.prune.apply import about
from fabled.prune.door import Door
from fabled.prune.following import Follower
from fabled.prune.orders import Order, snapshot
from fabled.vault import journal as events
from fabled.vault.archive import (
    Dues,
    LiveFile,
    Outcome,
    Unit,
    expiring,
    is_sealed,
    seal_file,
    sweep_strays,
    units,
    why_due,
)
from fabled.vault.journal import News
from fabled.vault.restore import Restored
from fabled.vault.restore import pieces as restored_pieces
from fabled.vault.retention import sweep
from fabled.vault.values import Origin

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable

    from fabled.config import Settings
    from fabled.daemon.answers import Answers
    from fabled.daemon.desk import Desk
    from fabled.daemon.home import Home
    from fabled.daemon.shelf import Shelf
    from fabled.system import System
    from fabled.vault.tombstones import Tombstones
    from fabled.vault.values import Generation

log = structlog.get_logger("keeper")

BUSY_S = 30.0
FOLLOW, FOLLOW_S = "follow", 0.5
INDEX_S = 120.0


class Keeper:
    """Safe to share between threads.

    Args:
        system: The ports.
        desk: Where sealed strands are left to be indexed.
        shelf: The Vault and its journal.
        answers: Knows what the Map says.
        settings: What the configuration says; replaced on reload.
        home: The daemon's folder.
        tombstones: What was forgotten.
    """

    def __init__(
        self,
        system: System,
        desk: Desk,
        shelf: Shelf,
        answers: Answers,
        settings: Settings,
        home: Home,
        tombstones: Tombstones,
    ) -> None:
        self.system = system
        self.desk = desk
        self.shelf = shelf
        self.vault = shelf.vault
        self.journal = shelf.journal
        self.snapshots = answers.snapshots
        self.answers = answers
        self.settings = settings
        self.home = home.path
        self.key = home.key
        self.pending = f"{home.path}/{PENDING}"
        self.follower = Follower(system)
        self.door = Door(system, self.pending, self.follower)
        self.pruner = Pruner(self)
        self.cards = CardShelf(system.files, home.cards)
        self.carding = Carding(self)
        self._leases: dict[int, bool] = {}
        self._refused = ""
        self._checked: set[str] = set()
        self.tombstones = tombstones
        self._lock = threading.Lock()
        self._errands_lock = threading.Lock()
        self._errands: list[Errand] = []
        self.stopping = False

    def errand(self, name: str, work: Work) -> Errand:
        """Begin long work that a client follows."""
        errand = Errand(name, work)
        with self._errands_lock:
            self._errands = [one for one in self._errands if not one.over] + [errand]
        return errand

    def stop(self) -> None:
        """Let what runs come to its end; it looks at `stopping` between two files."""
        self.stopping = True
        with self._errands_lock:
            running = list(self._errands)
        for errand in running:
            errand.join()
        self.follower.close()

    def begin(self) -> None:
        """Put right what the last end left: nothing else writes before that is done."""
        self._lock.acquire()
        self.errand("begin", self._begin)

    def _begin(self, _say: Say) -> None:
        try:
            aside = sweep(self.vault, self.system.files, self.system.clock)
            put_right(self)
            for root in self.desk.roots:
                sweep_strays(self.system.files, root)
            finish(self)
        finally:
            self._lock.release()
        for path in aside:
            self.journal.write([News(events.TRASHED, None, None, path, {"why": "no sidecar"})])
            log.warning("data without sidecar was put aside", path=path)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Nobody else writes the Vault or a live file inside the block.

        What was to be forgotten before, and could not, comes first.

        Raises:
            DaemonBusy: Somebody else still does after `BUSY_S`.
            DiskFull: There is no room to forget what was to be forgotten before.
        """
        return _Alone(self._lock, lambda: finish(self))

    # --- sealing ---

    def archive(self) -> str:
        """The archive job: seal what is quiet, and what the client is about to delete."""
        if not self.settings.flag("archive.enabled"):
            return "off"
        counts = {"sealed": 0, "refused": 0}
        names = self.answers.session_names()
        with self.alone():
            for root in self.desk.roots:
                for unit in units(self.system.files, root):
                    if self.stopping:
                        return "broken off"
                    dues = self._dues(root)
                    reason = why_due(unit, dues)
                    if reason is not None:
                        closely = expiring(unit, dues)
                        for outcome in self._seal_unit(unit, reason, names, closely=closely):
                            counts["sealed"] += outcome.fresh
                            counts["refused"] += outcome.refusal is not None
        notices.after_archive(self, counts["refused"], self._refused)
        if counts["sealed"]:
            self.system.processes.release_memory()
        refused = f", {counts['refused']} refused" if counts["refused"] else ""
        return f"{counts['sealed']} sealed{refused}"

    def _dues(self, root: str) -> Dues:
        now = self.system.clock.now_ms()
        quiet = now - int(self.settings.seconds("archive.quiet") * 1000)
        days = cleanup_days(self.system.files, root)
        expires = now - int((days - WARN_DAYS) * DAY_MS)
        return Dues(quiet * 1_000_000, expires * 1_000_000)

    def seal_unit(self, unit: Unit, reason: str) -> None:
        """Seal what of one session is not sealed yet; the caller works alone."""
        self._seal_unit(unit, reason, self.answers.session_names(), closely=False)

    def _seal_unit(
        self, unit: Unit, reason: str, names: dict[str, str], *, closely: bool
    ) -> list[Outcome]:
        found: list[Outcome] = []
        for file in unit.files:
            if self.tombstones.file(file.origin.path):
                continue
            if is_sealed(self.vault, file) and (not closely or self._sound(file.origin)):
                continue
            found.append(self._seal_file(file, reason, names))
        self.sealed(found)
        return found

    def _sound(self, origin: Origin) -> bool:
        """Whether the last chance to seal a file anew is not needed; each image is read once."""
        head = self.vault.catalogue.lineage(origin)[-1]
        if head.data_path not in self._checked and self.vault.intact(head):
            self._checked.add(head.data_path)
        return head.data_path in self._checked

    def mend(self, origins: Iterable[Origin]) -> None:
        """Seal live files again whose generations turned out to be damaged.

        Raises:
            DaemonBusy: Something else writes the Vault.
            DiskFull: There is no room.
        """
        for origin in dict.fromkeys(origins):
            if self.system.files.stat(origin.live) is None:
                continue
            with self.alone():
                self.seal_again(origin, "after damage")

    def _seal_file(self, file: LiveFile, reason: str, names: dict[str, str]) -> Outcome:
        files = self.system.files
        return seal_file(self.vault, files, file.origin, reason, names.get, self.tombstones)

    def seal_again(self, origin: Origin, reason: str) -> None:
        """Let the newest generation be what the live file is now; costs what is new in it."""
        names = self.answers.session_names()
        files = self.system.files
        found = seal_file(self.vault, files, origin, reason, names.get, self.tombstones)
        self.sealed([found])

    def sealed(self, outcomes: Iterable[Outcome]) -> None:
        """Journal what was sealed and have it indexed."""
        news: list[News] = []
        strands: list[str] = []
        for outcome in outcomes:
            if outcome.refusal is not None:
                self._refused = outcome.refusal.message
                log.warning("not sealed", path=outcome.origin.live, error=outcome.refusal.message)
            if outcome.generation is None or not outcome.fresh:
                continue
            news.append(_news(events.SEALED, outcome.generation))
            strand = self.vault.catalogue.strand_of(outcome.generation)
            strands += [strand.path] if strand is not None else []
        self.journal.write(news)
        self.desk.queue(strands, live=True)

    def seal(self, wanted: list[str], say: Say) -> None:
        """Seal sessions to their last byte now, quiet or not; all of them when none is named."""
        names = self.answers.session_names()
        done = {"sealed": 0, "bytes": 0, "skipped": 0, "unchanged": 0}
        chosen = self._chosen(wanted, names)
        with self.alone():
            for unit in self._units(chosen, names):
                outcomes = [
                    self._seal_file(file, "by hand", names)
                    for file in unit.files
                    if not self.tombstones.file(file.origin.path)
                ]
                self.sealed(outcomes)
                for outcome in outcomes:
                    say(_seal_step(unit, outcome, done))
        say({"step": "done", **done})

    def _chosen(self, wanted: list[str], names: dict[str, str]) -> set[str] | None:
        if not wanted:
            return None
        chosen: set[str] = set()
        with self.snapshots.snapshot() as snapshot:
            for name in wanted:
                if name in names:
                    chosen.add(names[name])
                    continue
                row = sessions.one(snapshot, name)
                if row is None:
                    raise NotFound(f"no session is called {name}")
                chosen.add(row.session)
        return chosen

    def _units(self, chosen: set[str] | None, names: dict[str, str]) -> Iterable[Unit]:
        for root in self.desk.roots:
            for unit in units(self.system.files, root):
                session = names.get(unit.files[0].origin.live, unit.session)
                if chosen is None or session in chosen or unit.session in chosen:
                    yield unit

    def leases(self, path: str) -> bool:
        """Whether the disk of a live file knows leases; tried once a disk."""
        stat = self.system.files.stat(path)
        if stat is None:
            return False
        if stat.dev not in self._leases:
            self._leases[stat.dev] = self.system.files.leases(path.rpartition("/")[0])
        return self._leases[stat.dev]

    def origin(self, path: str) -> Origin:
        """A live path as root and rest."""
        root = self.desk.root_of(path) or ""
        return Origin(root, path.removeprefix(root).lstrip("/"))

    def follow(self) -> None:
        """Look after old files that may still be written to, until none can be."""
        with self._errands_lock:
            if any(one.name == FOLLOW and not one.over for one in self._errands):
                return
        self.errand(FOLLOW, self._follow)

    def _follow(self, _say: Say) -> None:
        never = threading.Event()
        while not self.stopping and self.follower.busy:
            self.system.clock.wait(never, FOLLOW_S)
            notices.of_followed(self, self.follower.look())

    def replace_live(self, generation: Generation, *, keep_mtime: bool) -> Restored:
        """Put an image in the place of a live file that is there and differs.

        What is there is sealed first, and the name changes hands as in a prune.

        Raises:
            FileBusy: Somebody has it open for writing.
            FileChanged: It changed meanwhile.
            GenerationDamaged: The Vault no longer has the image; nothing was touched.
        """
        origin = generation.origin
        live = self.system.files.open_live(origin.live)
        try:
            shot = snapshot(live, origin.live)
            names = self.answers.session_names()
            kept = self.vault.seal(
                origin, live, live.stat().size, "before a restore", names.get(origin.live)
            )
            self.sealed([Outcome(origin, kept, fresh=True)])
            image = self.vault.image(generation)
        except BaseException:
            live.close()
            raise
        with image:
            order = Order(
                pieces=restored_pieces(image, generation),
                length=generation.end,
                examine=lambda _new: None,
                tail_fits=lambda _tail: False,
                before=lambda _new: None,
                original=lambda: self.vault.image(kept),
                note={"restore": generation.card.number, **about(origin, kept)},
            )
            self.door.replace(live, shot, order)
        stamp = generation.card.mtime_ns if keep_mtime else None
        self.system.files.touch(origin.live, stamp)
        self.follow()
        return Restored(origin.live, generation.end, generation.card.number, written=True)

    # --- what happened outside ---

    def index_now(self, generation: Generation) -> None:
        """Have the Map know a generation before going on.

        Raises:
            DaemonBusy: That took longer than `INDEX_S`.
        """
        strand = self.vault.catalogue.strand_of(generation)
        if strand is None:
            raise NotFound(f"{generation.data_path} is in no strand")
        if not self.desk.refresh([strand.path], INDEX_S):
            raise DaemonBusy("the Map is busy with other transcripts")


class _Alone:
    def __init__(self, lock: threading.Lock, first: Callable[[], object]) -> None:
        self._lock = lock
        self._first = first

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=BUSY_S):
            raise DaemonBusy("another archive, prune or restore is running")
        try:
            self._first()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _news(event: str, generation: Generation, **detail: Any) -> News:
    card = generation.card
    facts = {"generation": card.number, "kind": card.kind, "bytes": card.size, **detail}
    project = card.path.partition("/")[0]
    return News(event, card.session, project, generation.origin.live, facts)


def _seal_step(unit: Unit, outcome: Outcome, done: dict[str, int]) -> dict[str, Any]:
    head = {"session": unit.session, "path": outcome.origin.live}
    if outcome.generation is None or outcome.refusal is not None:
        done["skipped"] += 1
        refusal = outcome.refusal or UsageError("nothing to seal")
        return {"step": "skipped", **head, "code": refusal.code, "message": refusal.message}
    card = outcome.generation.card
    if not outcome.fresh:
        done["unchanged"] += 1
        return {"step": "unchanged", **head, "kind": card.kind, "number": card.number, "bytes": 0}
    done["sealed"] += 1
    done["bytes"] += card.size
    facts = {"kind": card.kind, "number": card.number, "bytes": card.size}
    return {"step": "sealed", **head, **facts}

"""From the first lock to the last: what is started in which order, and ended in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import structlog

from fabled import __version__
from fabled.config import environment
from fabled.daemon import home
from fabled.daemon.answers import Answers
from fabled.daemon.carding import EVERY_S as CARDS_S
from fabled.daemon.carding import FIRST_S as CARDS_FIRST_S
from fabled.daemon.desk import Desk
from fabled.daemon.endpoint import bind, unbind
from fabled.daemon.httpd import serve
from fabled.daemon.jobs import Jobs
from fabled.daemon.keeper import Keeper
from fabled.daemon.log import set_level
from fabled.daemon.notices import of_vanished
from fabled.daemon.notify import Manager
from fabled.daemon.replies import application
from fabled.daemon.routes import Routes
from fabled.daemon.shelf import Shelf
from fabled.daemon.status import Parts
from fabled.daemon.upkeep import verify_slice
from fabled.daemon.vitality import Vitality
from fabled.daemon.watch import Watcher
from fabled.daemon.worker import Calls, Under, Worker
from fabled.errors import DaemonBusy, FabledError
from fabled.map.db import Snapshots
from fabled.map.opening import clear_away, open_map
from fabled.transcript.veil import Veil
from fabled.vault.journal import Journal
from fabled.vault.sources import Sources
from fabled.vault.store import Vault
from fabled.vault.tombstones import Tombstones

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabled.config import Settings
    from fabled.daemon.endpoint import Endpoint
    from fabled.system import System

log = structlog.get_logger("daemon")

JOBS_END_S = 10.0
ARCHIVE_LEAST_S, ARCHIVE_MOST_S = 2.0, 300.0
"""The archive and the prune look twice in each quiet time, within these bounds."""

ARCHIVE_FIRST_S, PRUNE_FIRST_S = 5.0, 90.0
"""Soon after the start: the machine may have been off while the client's deadline came near."""

FIRST_PASS_POLL_S = 0.2
PULSE_S = 20.0
"""Between two signs of life, if the service manager does not want more."""

DAY_S, VERIFY_FIRST_S = 86400.0, 3600.0


def run(settings: Settings, system: System, reload: Callable[[], Settings]) -> None:
    """Run the daemon until it is told to stop; everything it took is given back then.

    Args:
        settings: What the configuration says.
        system: The ports.
        reload: Reads the configuration again, at SIGHUP.

    Raises:
        AlreadyRunning: Another daemon has this home or this socket.
        MapTooNew: A newer fabled wrote the Map.
        AccessDenied: The home, the Map or the socket cannot be used.
        DiskFull: There is no room for them.
    """
    with contextlib.ExitStack() as ends:
        place = home.enter(system, str(settings.places.home))
        ends.callback(place.lock.release)
        clear_away(system.files, place.map_path + ".new")
        veil = Veil(place.key, settings.flag("index.redact"))
        now = system.clock.now_ms()
        opened = open_map(system.files, place.map_path, __version__, veil, now_ms=now)
        ends.callback(opened.writer.close)
        endpoint = bind(str(settings.places.socket), system.files)
        ends.callback(unbind, endpoint, system.files)
        snapshots = Snapshots(place.map_path)
        ends.callback(snapshots.close)
        vault_path = place.vault
        desk = Desk(_roots(settings), system.clock.monotonic_s, vault_path)
        vault = Vault(system.files, system.clock, vault_path, settings.text("vault.compression"))
        journal = Journal(system.files, system.clock, f"{place.path}/{home.EVENTS}")
        tombstones = Tombstones(system.files, place.tombstones)
        shelf = Shelf(Sources(system.files, vault.catalogue, tombstones), vault, journal)
        if opened.aside is not None:
            desk.note("aside", f"the Map was damaged and is rebuilt; the old one is {opened.aside}")
            log.error("the Map was damaged and is rebuilt", aside=opened.aside)
        answers = Answers(system, desk, snapshots, shelf, veil)
        keeper = Keeper(system, desk, shelf, answers, settings, place, tombstones)
        daemon = _Daemon(settings, system, reload, keeper, endpoint)
        calls = Calls(daemon.end, partial(of_vanished, keeper))
        worker = Worker(
            system, desk, opened.writer, snapshots, shelf.sources, Under(place, veil), calls
        )
        daemon.run(worker)
        if worker.failure is not None:
            raise worker.failure


def _roots(settings: Settings) -> list[str]:
    return list(dict.fromkeys(str(root).rstrip("/") or "/" for root in settings.projects))


class _Daemon:
    """The running parts, from the first survey to the drained socket."""

    def __init__(
        self,
        settings: Settings,
        system: System,
        reload: Callable[[], Settings],
        keeper: Keeper,
        endpoint: Endpoint,
    ) -> None:
        self._settings = settings
        self._system = system
        self._reload = reload
        self._desk = keeper.desk
        self._keeper = keeper
        self._endpoint = endpoint
        self._jobs = Jobs(system.clock)
        self._watcher = self._watch()
        self._parts = Parts(system, keeper, self._jobs, self._watcher, system.clock.monotonic_s())
        self._manager = Manager(environment(), system.processes.pid())
        self._config_seen = self._config_state()
        self._draining = False
        self._passed = False
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _watch(self) -> Watcher:
        return Watcher(
            self._desk.roots,
            self._desk.mark,
            lambda: self._jobs.run_now("reconcile"),
            files=self._system.files,
        )

    def end(self) -> None:
        """Stop serving; from any thread, and harmless when it has stopped."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)

    def run(self, worker: Worker) -> None:
        """Serve until told to stop."""
        with contextlib.ExitStack() as ends:
            seconds = self._settings.seconds("index.reconcile")
            self._jobs.add("reconcile", seconds, self._reconcile)
            every = self._archive_every()
            self._jobs.add("archive", every, self._archive, first_s=min(every, ARCHIVE_FIRST_S))
            every = self._prune_every()
            self._jobs.add("prune", every, self._prune, first_s=min(every, PRUNE_FIRST_S))
            self._jobs.add(
                "verify", DAY_S, lambda: verify_slice(self._keeper), first_s=VERIFY_FIRST_S
            )
            self._jobs.add("cards", CARDS_S, self._keeper.carding.job, first_s=CARDS_FIRST_S)
            # Watch before the first survey: what changes after it comes as an event.
            self._watcher.refresh()
            ends.callback(self._watcher.stop)
            worker.start()
            ends.callback(worker.stop)
            ends.callback(self._keeper.stop)
            self._vitality = Vitality(self._system.clock, self._keeper.snapshots, worker)
            self._keeper.begin()
            self._jobs.start()
            ends.callback(self._jobs.stop, JOBS_END_S)
            asyncio.run(self._serve())

    def _reconcile(self) -> str:
        self._watcher.refresh()
        if self._config_state() != self._config_seen:
            log.info("the configuration file changed")
            self._take_up()
        ticket = self._desk.ask_survey()
        while not ticket.wait(1.0):
            if self._draining:
                return "broken off"
        if ticket.error is not None:
            raise ticket.error
        return f"{ticket.files} files, {ticket.bytes} bytes read"

    def _archive_every(self) -> float:
        quiet = self._settings.seconds("archive.quiet")
        return max(ARCHIVE_LEAST_S, min(ARCHIVE_MOST_S, quiet / 2))

    def _prune_every(self) -> float:
        quiet = self._settings.prune().quiet
        return max(ARCHIVE_LEAST_S, min(ARCHIVE_MOST_S, quiet / 2))

    def _archive(self) -> str:
        """Seal what is due, once the first pass is over: it has better things to do before."""
        self._first_pass()
        try:
            return self._keeper.archive()
        except DaemonBusy as fault:
            return f"not now: {fault.message}"

    def _prune(self) -> str:
        """Prune what is due; archiving goes first."""
        self._first_pass()
        return self._keeper.pruner.job()

    def _first_pass(self) -> None:
        never = threading.Event()
        while not self._draining and not self._idle():
            self._system.clock.wait(never, FIRST_PASS_POLL_S)

    def _idle(self) -> bool:
        work = self._desk.work()
        self._passed = self._passed or (work.surveyed and not work.pending.files)
        return self._passed

    async def _serve(self) -> None:
        stop, abort = self._stop, asyncio.Event()
        loop = self._loop = asyncio.get_running_loop()

        def end() -> None:
            if stop.is_set():
                abort.set()
                return
            log.info("stopping")
            self._manager.stopping()
            self._draining = True
            self._keeper.stopping = True
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, self._take_up))
        app = application(Routes(self._parts, lambda: self._draining).table())
        pulse = asyncio.create_task(self._pulse(stop))
        try:
            await serve(app, self._endpoint.socket, stop=stop, abort=abort, started=self._ready)
        finally:
            pulse.cancel()

    async def _pulse(self, stop: asyncio.Event) -> None:
        """Tell the service manager how it goes, and that all is well as long as it is."""
        loop = asyncio.get_running_loop()
        every = min(PULSE_S, self._manager.watchdog_s / 3 or PULSE_S)
        while not stop.is_set():
            # In the pool that answers requests: when it is stuck, this is stuck.
            trouble = await loop.run_in_executor(None, self._vitality.trouble)
            if trouble is None:
                self._manager.alive()
            else:
                log.error("not well", trouble=trouble)
            self._manager.status(trouble or self._summary())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), every)

    def _summary(self) -> str:
        work = self._desk.work()
        if work.progress is not None and work.pending.files:
            done, total = work.progress.done_bytes, work.progress.total_bytes
            return f"indexing: {done >> 20} of {total >> 20} MiB, {work.pending.files} files left"
        return "; ".join(work.warnings[:1]) or "idle"

    def _ready(self) -> None:
        log.info(
            "ready",
            version=__version__,
            socket=self._endpoint.path,
            projects=list(self._desk.roots),
            home=str(self._settings.places.home),
        )
        self._manager.ready()

    def _take_up(self) -> None:
        """Reload the configuration; a wrong one changes nothing."""
        self._manager.reloading(self._system.clock.monotonic_s())
        self._config_seen = self._config_state()
        try:
            self._take_up_settings()
        finally:
            self._manager.ready()

    def _config_state(self) -> tuple[int, int] | None:
        """What tells one state of the configuration file from the next."""
        stat = self._system.files.stat(str(self._settings.places.config))
        return None if stat is None else (stat.ino, stat.mtime_ns)

    def _take_up_settings(self) -> None:
        try:
            settings = self._reload()
        except FabledError as fault:
            log.warning("configuration not reloaded", error=fault.message)
            self._desk.note("configuration", f"not reloaded: {fault.message}")
            return
        self._desk.note("configuration", None)
        self._keeper.settings = settings
        self._keeper.vault.compression = settings.text("vault.compression")
        set_level(settings.text("log.level"))
        fixed = settings.places != self._settings.places
        if fixed or settings.projects != self._settings.projects:
            self._desk.note("restart", "places or projects changed; restart the daemon to use them")
        elif settings.flag("index.redact") != self._settings.flag("index.redact"):
            self._desk.note(
                "restart", "index.redact changed; restart the daemon: all is read again"
            )
        log.info("configuration reloaded")

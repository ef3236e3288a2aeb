"""File events: hints about which path to look at, from roots that come and go.

Nothing here is trusted to be complete. Every path is a hint to stat and read; a
reconcile that scans the folders runs anyway, and sooner when this module asks for it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import structlog
from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.polling import PollingObserver

from fabled.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog.observers.api import BaseObserver, ObservedWatch

    from fabled.system import Files

POLL_S = 15.0
"""Seconds between two looks at a root whose folders could not all be watched."""

Mode = Literal["events", "polling", "absent"]

# Never without a filter: opens and closes of our own scans would fill the kernel's queue.
# Always the same one: a folder has one mask in the kernel, and the last watch on it decides.
_CHANGES: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
_EXHAUSTED = frozenset({errno.ENOSPC, errno.EMFILE})
_ATTEMPTS = 8
_log = structlog.get_logger(__name__)


class RootState(NamedTuple):
    """How one root is watched. "absent": it is not there, and is waited for."""

    path: str
    present: bool
    mode: Mode


@dataclass(slots=True)
class _Root:
    path: str
    identity: tuple[int, int] | None = None
    observer: BaseObserver | None = None
    watch: ObservedWatch | None = None


class Watcher:
    """Watches folders for changed files until stopped.

    Nothing is watched before the first `refresh`. A caller that scans the roots after
    each `refresh` misses nothing: what changes after the scan comes as a hint.

    Args:
        roots: Absolute paths; a missing one is waited for.
        on_dirty: Told the path of each file or folder that was made, changed, moved (both
            names) or removed. Called from watching threads; must return at once.
        on_overflow: Told that hints were lost, or that a root may have come or gone: refresh
            and scan soon, in this order. Called from watching threads; must return at once.
        files: Where roots are looked at.
        poll_s: Interval of the fallback.
    """

    def __init__(
        self,
        roots: Sequence[str],
        on_dirty: Callable[[str], None],
        on_overflow: Callable[[], None],
        *,
        files: Files,
        poll_s: float = POLL_S,
    ) -> None:
        self._roots = [_Root(path) for path in roots]
        self._files = files
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._stopped = False
        self._exhausted = False
        self._events: BaseObserver | None = None
        self._polling: BaseObserver | None = None
        self._parents: dict[str, ObservedWatch] = {}
        self._changes = {path: _Changes(path, on_dirty, on_overflow) for path in roots}
        self._arrivals = _Arrivals(tuple(roots), on_overflow)
        self._overflow = _OverflowListener(on_overflow)
        logging.getLogger("watchdog").addHandler(self._overflow)
        # A fast `mkdir -p` makes watchdog register a folder twice; no event is lost by it.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)

    def refresh(self) -> None:
        """Watch what is there now: roots that appeared or were replaced, dead threads restarted.

        Cheap when nothing changed: a stat for each root. A root that cannot be watched is
        polled or waited for; this raises nothing.
        """
        with self._lock:
            if self._stopped:
                return
            self._revive()
            for root in self._roots:
                self._refresh_root(root)
            if not self._exhausted:
                self._check_limit()
            self._refresh_parents()

    def state(self) -> list[RootState]:
        """One row for each root, in the order given."""
        with self._lock:
            return [_state(root, self._polling) for root in self._roots]

    def stop(self) -> None:
        """End all watching; no callback runs after this returns."""
        logging.getLogger("watchdog").removeHandler(self._overflow)
        with self._lock:
            self._stopped = True
            observers = [o for o in (self._events, self._polling) if o is not None]
            self._events = self._polling = None
            for root in self._roots:
                root.watch = None
        for observer in observers:
            _end(observer)

    def _revive(self) -> None:
        """Start the observer threads; forget everything that hung on a dead one."""
        overflowed = self._overflow.heard.is_set()
        self._overflow.heard.clear()
        if self._events is not None and (overflowed or not _lives(self._events)):
            # After an overflow, too: watchdog then renews its watches at a time of its own, and
            # with very many folders that fills the queue again, for ever.
            _log.warning("file watching is begun anew", overflowed=overflowed)
            _end(self._events)
            self._forget(self._events)
            self._parents.clear()
            self._events = None
        if self._polling is not None and not _lives(self._polling):
            _end(self._polling)
            self._forget(self._polling)
            self._polling = None
        if self._events is None and not self._exhausted:
            try:
                self._events = Observer()
                self._events.start()
            except OSError as fault:
                self._events = None
                self._warn_exhausted(fault)

    def _forget(self, observer: BaseObserver) -> None:
        for root in self._roots:
            if root.observer is observer:
                root.watch = root.observer = root.identity = None

    def _refresh_root(self, root: _Root) -> None:
        identity = self._look(root.path)
        if root.watch is not None and (identity != root.identity or not _is_watched(root)):
            self._drop(root)
        if root.watch is None and identity is not None:
            self._schedule(root, identity)

    def _look(self, path: str) -> tuple[int, int] | None:
        try:
            found = self._files.stat(path, follow=True)
        except AccessDenied as fault:
            _log.warning("a projects folder cannot be looked at", path=path, error=fault.message)
            return None
        return (found.dev, found.ino) if found is not None and found.kind == "dir" else None

    def _drop(self, root: _Root) -> None:
        if root.observer is not None and root.watch is not None:
            with contextlib.suppress(KeyError):  # its thread took it off already
                root.observer.unschedule(root.watch)
        root.watch = root.observer = root.identity = None

    def _schedule(self, root: _Root, identity: tuple[int, int]) -> None:
        observer = self._poller() if self._exhausted else self._events
        if observer is None:
            return
        try:
            # The slash makes a root that is a link be watched as the folder it leads to.
            folder = os.path.join(root.path, "")  # noqa: PTH118 - Path drops the slash
            root.watch = observer.schedule(
                self._changes[root.path], folder, recursive=True, event_filter=_CHANGES
            )
            root.observer, root.identity = observer, identity
        except OSError as fault:
            if fault.errno in _EXHAUSTED and not self._exhausted:
                self._warn_exhausted(fault)
                self._schedule(root, identity)
            else:  # gone again, or not readable: it stays absent and is tried at the next refresh
                _log.info("a projects folder cannot be watched", path=root.path, error=str(fault))

    def _poller(self) -> BaseObserver:
        if self._polling is None:
            self._polling = PollingObserver(timeout=self._poll_s)
            self._polling.start()
        return self._polling

    def _check_limit(self) -> None:
        """Go over to polling if one more watch is refused.

        watchdog says nothing when a folder below a root could not be watched, so ask for one
        on a folder that is in no root.
        """
        if self._events is None or sys.platform != "linux":
            return
        try:
            probe = self._events.schedule(FileSystemEventHandler(), "/", event_filter=_CHANGES)
            self._events.unschedule(probe)
        except OSError as fault:
            if fault.errno not in _EXHAUSTED:
                return
            self._warn_exhausted(fault)
            for root in self._roots:
                self._drop(root)
                self._refresh_root(root)

    def _warn_exhausted(self, fault: OSError) -> None:
        """Poll from now on."""
        self._exhausted = True
        _log.warning(
            "no inotify watches left: projects folders are polled instead",
            error=fault.strerror,
            raise_one_of="fs.inotify.max_user_watches, fs.inotify.max_user_instances",
            poll_s=self._poll_s,
        )

    def _refresh_parents(self) -> None:
        """Watch, not recursively, the folders in which missing roots will show up."""
        for _attempt in range(0 if self._exhausted else _ATTEMPTS):
            missing = [root.path for root in self._roots if root.watch is None]
            wanted = {self._nearest_folder(path) for path in missing}
            if wanted == self._parents.keys():
                return
            for folder in self._parents.keys() - wanted:
                self._drop_parent(folder)
            for folder in wanted - self._parents.keys():
                self._add_parent(folder)
            # A folder made between the look and the watch: look again.

    def _nearest_folder(self, path: str) -> str:
        folder = os.path.dirname(path)  # noqa: PTH120 - str paths
        while folder not in ("", "/") and self._look(folder) is None:
            folder = os.path.dirname(folder)  # noqa: PTH120 - str paths
        return folder or "/"

    def _add_parent(self, folder: str) -> None:
        if self._events is None:
            return
        # Without this watch the next refresh still finds the root.
        with contextlib.suppress(OSError):
            self._parents[folder] = self._events.schedule(
                self._arrivals, folder, event_filter=_CHANGES
            )

    def _drop_parent(self, folder: str) -> None:
        watch = self._parents.pop(folder)
        if self._events is not None:
            with contextlib.suppress(KeyError):
                self._events.unschedule(watch)


def _state(root: _Root, polling: BaseObserver | None) -> RootState:
    if root.watch is None:
        return RootState(root.path, present=False, mode="absent")
    mode: Mode = "polling" if root.observer is polling else "events"
    return RootState(root.path, present=True, mode=mode)


def _lives(observer: BaseObserver) -> bool:
    # On Linux a thread of its own reads the kernel's queue, and may end without a word.
    reader: threading.Thread | None = getattr(observer, "_inotify_fd", None)
    return observer.is_alive() and (reader is None or reader.is_alive())


def _is_watched(root: _Root) -> bool:
    """Whether the thread that watches this root still runs."""
    emitters = root.observer.emitters if root.observer is not None else ()
    return any(e.is_alive() for e in list(emitters) if e.watch == root.watch)


def _end(observer: BaseObserver) -> None:
    observer.stop()
    with contextlib.suppress(RuntimeError):  # it never started
        observer.join()


def _paths(event: FileSystemEvent) -> list[str]:
    return [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]


class _Changes(FileSystemEventHandler):
    """Passes each event's paths on, for one root."""

    def __init__(
        self, root: str, on_dirty: Callable[[str], None], on_overflow: Callable[[], None]
    ) -> None:
        self._inside = os.path.join(root, "")  # noqa: PTH118 - Path drops the slash
        self._on_dirty = on_dirty
        self._on_overflow = on_overflow

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            for path in _paths(event):
                if len(path) > len(self._inside) and path.startswith(self._inside):
                    self._on_dirty(path)
                else:  # the root itself went, or the system names it by another way
                    self._on_overflow()
        except Exception:  # noqa: BLE001 - a fault here would end the watching thread
            _log.exception("a file event was lost")


class _Arrivals(FileSystemEventHandler):
    """Asks for a refresh when a folder on the way to a root was made."""

    def __init__(self, roots: tuple[str, ...], on_arrival: Callable[[], None]) -> None:
        self._roots = tuple(root + "/" for root in roots)
        self._on_arrival = on_arrival

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            if isinstance(event, DirCreatedEvent | DirMovedEvent):
                made = _paths(event)[-1] + "/"
                if any(root.startswith(made) for root in self._roots):
                    self._on_arrival()
        except Exception:  # noqa: BLE001 - a fault here would end the watching thread
            _log.exception("a file event was lost")


class _OverflowListener(logging.Handler):
    """Hears from watchdog's log, the only place that tells, that events were lost."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self.heard = threading.Event()
        self._on_overflow = on_overflow

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if "overflow" in record.getMessage().lower():
                self.heard.set()
                self._on_overflow()
        except Exception:  # noqa: BLE001 - a fault here would end the watching thread
            self.handleError(record)

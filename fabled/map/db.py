"""Connections: one that writes, and snapshots that only read. SQLite's faults by our names.

SQLite comes from apsw, not from the standard library: contentless FTS5 tables with
deletes need 3.43, and many systems ship an older one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from fabled.errors import AccessDenied, DaemonBusy, DiskFull, MapCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Row = tuple[Any, ...]

BUSY_MS = 5000
FULL_TEXT = ("fts", "card_fts")
"""The full-text indexes, by name."""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
)
READ_CACHE = "PRAGMA cache_size = -2048"
WRITE_CACHE = "PRAGMA cache_size = -8192"
BULK_CACHE = "PRAGMA cache_size = -65536"


class Interrupted(Exception):
    """A `Deadline` stopped a question; the asker answers with less, and says so."""


@contextlib.contextmanager
def named_faults(path: str) -> Iterator[None]:
    """Turn SQLite's exceptions into errors the user can act on.

    Raises:
        MapCorrupt: SQLite found damage, or the file is no database.
        DiskFull: No room for the database, its log or a temporary file.
        AccessDenied: It cannot be opened, read or written.
        DaemonBusy: Another process holds the write lock for longer than `BUSY_MS`.
        Interrupted: A `Deadline` ran out.
    """
    try:
        yield
    except apsw.InterruptError as fault:
        raise Interrupted from fault
    except (apsw.CorruptError, apsw.NotADBError) as fault:
        raise MapCorrupt(f"the Map {path} is damaged: {fault}") from fault
    except apsw.FullError as fault:
        raise DiskFull(f"no room to write the Map {path}") from fault
    except (apsw.BusyError, apsw.LockedError) as fault:
        raise DaemonBusy(f"the Map {path} is locked by another process") from fault
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.IOError) as fault:
        raise AccessDenied(f"cannot use the Map {path}: {fault}") from fault


class Snapshot:
    """One consistent, read-only view of the Map, for as long as its `with` block lasts."""

    def __init__(
        self, connection: apsw.Connection, path: str, deadline: Deadline | None = None
    ) -> None:
        self._connection = connection
        self.path = path
        self._deadline = deadline

    def grant(self, seconds: float) -> None:
        """After `Interrupted`: time for one cheaper question."""
        if self._deadline is not None:
            self._deadline.grant(seconds)

    def rows(self, sql: str, values: Iterable[Any] = ()) -> list[Row]:
        """Every row of one question."""
        with named_faults(self.path):
            return list(self._connection.execute(sql, tuple(values)))

    def row(self, sql: str, values: Iterable[Any] = ()) -> Row | None:
        """The first row, or None."""
        with named_faults(self.path):
            return next(iter(self._connection.execute(sql, tuple(values))), None)

    def value(self, sql: str, values: Iterable[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.row(sql, values)
        return None if row is None else row[0]


class WriteTxn(Snapshot):
    """One transaction of the only writer: all of it happens, or none."""

    def run(self, sql: str, values: Iterable[Any] = ()) -> int:
        """Execute one statement; returns how many rows it changed."""
        with named_faults(self.path):
            self._connection.execute(sql, tuple(values))
            return self._connection.changes()

    def many(self, sql: str, rows: Iterable[Row]) -> None:
        """Execute one statement for every row."""
        with named_faults(self.path):
            self._connection.executemany(sql, rows)

    def insert(self, sql: str, values: Iterable[Any] = ()) -> int:
        """Execute one insert; returns the new row's id."""
        with named_faults(self.path):
            self._connection.execute(sql, tuple(values))
            return self._connection.last_insert_rowid()


class Writer:
    """The only connection that writes. Not shared between threads.

    Args:
        path: The database file; made when missing.
        bulk: A large page cache, for the process that reads everything.
    """

    def __init__(self, path: str, *, bulk: bool = False) -> None:
        self.path = path
        with named_faults(path):
            self._connection = apsw.Connection(path)
            self._connection.set_busy_timeout(BUSY_MS)
            self._connection.execute("PRAGMA page_size = 16384")
            for pragma in (*_PRAGMAS, BULK_CACHE if bulk else WRITE_CACHE):
                self._connection.execute(pragma)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[WriteTxn]:
        """Begin at once; commit at the end of the block, roll back on any exception."""
        with named_faults(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield WriteTxn(self._connection, self.path)
            with named_faults(self.path):
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def checkpoint(self, *, truncate: bool = False) -> None:
        """Move the log into the database as far as readers allow."""
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
        with named_faults(self.path), contextlib.suppress(apsw.BusyError, apsw.LockedError):
            self._connection.wal_checkpoint(mode=mode)

    def scrub(self) -> None:
        """Leave nothing of deleted rows in the database or its log. Cost: rewrites all of it."""
        with named_faults(self.path):
            for index in FULL_TEXT:
                self._connection.execute(f"INSERT INTO {index}({index}) VALUES('optimize')")
            self._connection.execute("VACUUM")
        self.checkpoint(truncate=True)

    def copy(self, path: str) -> None:
        """Write a copy of the whole database; the file must not be there."""
        with named_faults(self.path):
            self._connection.execute("VACUUM INTO ?", (path,))

    def check(self) -> None:
        """Look through the whole database for damage.

        Raises:
            MapCorrupt: There is some.
        """
        with named_faults(self.path):
            said = [str(row[0]) for row in self._connection.execute("PRAGMA quick_check(3)")]
            for index in FULL_TEXT:
                self._connection.execute(f"INSERT INTO {index}({index}) VALUES('integrity-check')")
        if said != ["ok"]:
            raise MapCorrupt(f"the Map {self.path} is damaged: {'; '.join(said)}")

    def release_memory(self) -> None:
        """Give cached pages back to the operating system."""
        with named_faults(self.path):
            self._connection.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Close the connection; the last one to close takes the log file with it."""
        self._connection.close()


class Features(NamedTuple):
    """The SQLite in use: its version, and the options it was built with."""

    version: str
    options: frozenset[str]


def features(snapshot: Snapshot) -> Features:
    """What SQLite says of itself."""
    options = frozenset(str(row[0]) for row in snapshot.rows("PRAGMA compile_options"))
    return Features(str(snapshot.value("SELECT sqlite_version()")), options)


class Deadline:
    """Stops a question that takes too long.

    Args:
        monotonic_s: The clock.
        seconds: How long the question may take.
    """

    def __init__(self, monotonic_s: Callable[[], float], seconds: float) -> None:
        self._now = monotonic_s
        self._end = monotonic_s() + seconds

    def grant(self, seconds: float) -> None:
        """Give a cheaper question time of its own."""
        self._end = self._now() + seconds

    def __call__(self) -> bool:
        """Asked by SQLite every few thousand steps; True interrupts."""
        return self._now() > self._end


class Snapshots:
    """Read-only connections, kept for reuse. Safe to share between threads."""

    def __init__(self, path: str, keep: int = 4) -> None:
        self.path = path
        self._keep = keep
        self._idle: deque[apsw.Connection] = deque()
        self._state = Condition()
        self._used = 0
        self._open = True

    @contextlib.contextmanager
    def snapshot(self, deadline: Deadline | None = None) -> Iterator[Snapshot]:
        """A view of the last commit, which later commits do not change.

        Waits while the database is being swapped.
        """
        with self._state:
            self._state.wait_for(lambda: self._open)
            self._used += 1
            connection = self._idle.popleft() if self._idle else None
        try:
            connection = connection or self._connect()
            yield from self._lend(connection, deadline)
        except BaseException:
            if connection is not None:
                connection.close()
                connection = None
            raise
        finally:
            self._put_back(connection)

    def _lend(self, connection: apsw.Connection, deadline: Deadline | None) -> Iterator[Snapshot]:
        if deadline is not None:
            connection.set_progress_handler(deadline, 4000)
        with named_faults(self.path):
            connection.execute("BEGIN")
        yield Snapshot(connection, self.path, deadline)
        connection.set_progress_handler(None)
        connection.execute("ROLLBACK")

    def _connect(self) -> apsw.Connection:
        with named_faults(self.path):
            connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
            connection.set_busy_timeout(BUSY_MS)
            connection.execute(READ_CACHE)
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _put_back(self, connection: apsw.Connection | None) -> None:
        with self._state:
            self._used -= 1
            keep = connection is not None and self._open and len(self._idle) < self._keep
            if keep and connection is not None:
                self._idle.append(connection)
                connection = None
            self._state.notify_all()
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """No connection is open inside the block: the database may be replaced there."""
        with self._state:
            self._open = False
            self._state.wait_for(lambda: self._used == 0)
            self._close_idle()
        try:
            yield
        finally:
            with self._state:
                self._open = True
                self._state.notify_all()

    def close(self) -> None:
        """Close the idle connections."""
        with self._state:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.popleft().close()

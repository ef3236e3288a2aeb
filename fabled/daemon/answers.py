"""What the socket answers: every question over one snapshot, with how fresh it is.

A pointer whose file changed is not an answer: the file is read again, the question is
asked once more, and only then does the error reach the client.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fabled.daemon.retention import at_risk
from fabled.errors import GenerationDamaged, MapCorrupt, NotFound, StaleIndex
from fabled.map import queries, sessions
from fabled.map.db import Deadline
from fabled.map.search import scope
from fabled.recall import threads
from fabled.recall.dates import iso
from fabled.recall.handoff import handoff
from fabled.recall.pack import pack
from fabled.recall.search import Request, scope_json, search
from fabled.recall.verbatim import stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.daemon.asked import Asked
    from fabled.daemon.desk import Desk
    from fabled.daemon.shelf import Shelf, View
    from fabled.map.db import Snapshot, Snapshots
    from fabled.model import Filter, Scope, Totals
    from fabled.system import System
    from fabled.transcript.veil import Veil

T = TypeVar("T")

SEARCH_S = 2.0
"""A search that takes longer is answered with less, and says `approximate`."""

REFRESH_S = 20.0
RAW_HOLD = 64 << 20


class Bytes(NamedTuple):
    """A reply of exact bytes; the first piece is read, so that errors come before it."""

    length: int | None
    pieces: Iterator[bytes]


class Answers:
    """Safe to share between threads.

    Args:
        system: The ports.
        desk: Knows what is pending, and takes paths to read again.
        snapshots: The Map, for reading.
        shelf: The Vault, for looking things up.
        veil: What is not shown.
    """

    def __init__(
        self, system: System, desk: Desk, snapshots: Snapshots, shelf: Shelf, veil: Veil
    ) -> None:
        self._system = system
        self._shelf = shelf
        self._sources = shelf.sources
        self._desk = desk
        self.snapshots = snapshots
        self.veil = veil

    def ask(self, question: Callable[[Snapshot], T]) -> T:
        """Ask anything over a snapshot; raises as `_ask`."""
        return self._ask(question)

    def _ask(self, question: Callable[[Snapshot], T]) -> T:
        """Ask over a snapshot; once more after a stale file, or a damaged strand, was read again.

        Raises:
            StaleIndex: The file is stale still.
            GenerationDamaged: There is no other copy.
            MapCorrupt: SQLite found damage; the worker was told.
        """
        try:
            try:
                return self._once(question)
            except (StaleIndex, GenerationDamaged) as fault:
                if not fault.path:
                    raise
                self._desk.refresh([fault.path], REFRESH_S)
            return self._once(question)
        except MapCorrupt:
            self._desk.suspect()
            raise

    def _once(self, question: Callable[[Snapshot], T]) -> T:
        deadline = Deadline(self._system.clock.monotonic_s, SEARCH_S * 10)
        with self.snapshots.snapshot(deadline) as snapshot:
            return question(snapshot)

    def freshness(self) -> dict[str, Any]:
        """What the Map may not know yet."""
        pending = self._desk.work().pending
        return {
            "pending_files": pending.files,
            "pending_bytes": pending.bytes,
            "lag_s": round(pending.lag_s, 3),
        }

    def search(self, asked: Asked) -> dict[str, Any]:
        """`GET /v1/search`."""
        clock = self._system.clock
        began = clock.monotonic_s()

        def question(snapshot: Snapshot) -> tuple[Any, Scope]:
            snapshot.grant(SEARCH_S)
            wanted = self._filter(snapshot, asked)
            request = Request(asked.query, wanted, asked.level, asked.sort, asked.limit)
            found = search(snapshot, self._sources, request, self.veil)
            snapshot.grant(SEARCH_S * 5)
            return found, scope(snapshot, wanted)

        found, searched = self._ask(question)
        if found.stale and self._desk.refresh(found.stale, REFRESH_S):
            found, searched = self._ask(question)
        return {
            "query": asked.query,
            "took_ms": round((clock.monotonic_s() - began) * 1000, 3),
            "approximate": found.approximate or asked.cut,
            "searched": scope_json(searched),
            "freshness": self.freshness(),
            "results": found.results,
        }

    def recall(self, asked: Asked) -> dict[str, Any]:
        """`GET /v1/recall`."""

        def question(snapshot: Snapshot) -> Any:
            snapshot.grant(SEARCH_S)
            wanted = self._filter(snapshot, asked)
            budget = asked.budget
            return pack(snapshot, self._sources, asked.query, wanted, budget, self.veil)

        packed = self._ask(question)
        if packed.stale and self._desk.refresh(packed.stale, REFRESH_S):
            packed = self._ask(question)
        return {**packed.reply, "freshness": self.freshness()}

    def _filter(self, snapshot: Snapshot, asked: Asked) -> Filter:
        if asked.session is None:
            return asked.wanted
        found = sessions.one(snapshot, asked.session)
        if found is None:
            raise NotFound(f"no session is called {asked.session}")
        return asked.wanted._replace(session=found.id)

    def thread(self, name: str, budget: int, *, sentinel: bool) -> dict[str, Any]:
        """`GET /v1/threads/{id}`."""

        def question(snapshot: Snapshot) -> dict[str, Any]:
            sources = self._sources
            return threads.show(snapshot, sources, name, budget, self.veil, sentinel=sentinel)

        return {**self._ask(question), "freshness": self.freshness()}

    def thread_raw(self, name: str) -> Bytes:
        """The thread's records as JSONL, each byte-identical."""

        def question(snapshot: Snapshot) -> Bytes:
            pointers = threads.find(snapshot, name)
            length = sum(pointer.length + 1 for pointer in pointers)
            pieces = threads.raw(self._sources, pointers)
            if length <= RAW_HOLD:
                return Bytes(length, iter([b"".join(pieces)]))
            return Bytes(length, chain([next(pieces, b"")], pieces))

        return self._ask(question)

    def block(self, name: str) -> Bytes:
        """One record's exact bytes."""

        def question(snapshot: Snapshot) -> Bytes:
            pointer = queries.record(snapshot, name)
            if pointer is None:
                raise NotFound(f"no record is called {name}")
            pieces = stream(self._sources, pointer)
            return Bytes(pointer.length, chain([next(pieces)], pieces))

        return self._ask(question)

    def sessions(self, project: str | None, *, vanished: bool) -> dict[str, Any]:
        """`GET /v1/sessions`."""

        def question(snapshot: Snapshot) -> list[sessions.SessionRow]:
            return sessions.listing(snapshot, project)

        view = self._shelf.view()
        rows = [_session_json(row, view) for row in self._ask(question)]
        return {"sessions": [row for row in rows if row["vanished"] or not vanished]}

    def session(self, name: str) -> dict[str, Any]:
        """`GET /v1/sessions/{id}`."""

        def question(snapshot: Snapshot) -> dict[str, Any]:
            row = sessions.one(snapshot, name)
            if row is None:
                raise NotFound(f"no session is called {name}")
            return {
                "session": _session_json(row, self._shelf.view()),
                "threads": [
                    self._thread_json(snapshot, thread)
                    for thread in sessions.threads_of(snapshot, row.id)
                ],
                "files": [file._asdict() for file in sessions.files_of(snapshot, row.id)],
                "damage": [damage._asdict() for damage in sessions.damage_of(snapshot, row.id)],
                **self._shelf.about(row.session),
            }

        return self._ask(question)

    def handoff(self, name: str) -> dict[str, Any]:
        """`GET /v1/handoff`."""

        def question(snapshot: Snapshot) -> dict[str, Any]:
            row = sessions.one(snapshot, name)
            if row is None:
                raise NotFound(f"no session is called {name}")
            return {
                "session": row.session,
                "text": handoff(snapshot, self._sources, row, self.veil),
            }

        return self._ask(question)

    def _thread_json(self, snapshot: Snapshot, thread: int) -> dict[str, Any]:
        span = queries.thread_span(snapshot, thread)
        return {
            "thread": span.key if span else queries.thread_key(snapshot, thread),
            "title": threads.opening_line(snapshot, self._sources, thread, self.veil),
            "first_ts": iso(span.first_ms if span else None),
            "last_ts": iso(span.last_ms if span else None),
            "turns": span.turns if span else 0,
            "est_tokens": span.tokens if span else 0,
        }

    def at_risk(self) -> list[Any]:
        """Sessions that the client's own cleanup takes soon."""
        now = self._system.clock.now_ms()
        files, roots = self._system.files, self._desk.roots
        view = self._shelf.view()
        return self._ask(lambda snapshot: at_risk(snapshot, files, roots, now, view))

    def unsealed_bytes(self) -> int:
        """Bytes of live transcripts that are in no generation yet."""
        view = self._shelf.view()
        live = self._ask(sessions.live_files)
        return sum(file.size - view.sealed_part(file) for file in live)

    def session_names(self) -> dict[str, str]:
        """The session of every live transcript, by path."""
        return {file.path: file.session for file in self._ask(sessions.live_files)}

    def totals(self) -> Totals:
        """What the Map holds."""
        return self._ask(queries.totals)


def _session_json(row: sessions.SessionRow, view: View) -> dict[str, Any]:
    sealed, unsealed = view.session_bytes(row)
    return {
        "session": row.session,
        "project": row.project,
        "title": row.title,
        "first_ts": iso(row.first_ms),
        "last_ts": iso(row.last_ms),
        "threads": row.threads,
        "records": row.records,
        "bytes": row.bytes if row.live_path is not None else max(row.bytes, sealed),
        "live_path": row.live_path,
        "vanished": row.live_path is None,
        "sealed_bytes": sealed,
        "unsealed_bytes": unsealed,
    }

"""The process that reads a large backlog, so that its memory goes back when it ends.

While it runs it is the only one that writes the Map. It takes a plan and then paths
as JSON lines on stdin, and answers on stdout: what it surveyed, each path it has
read, and `idle` with the number of lines it has taken in. It ends when stdin does:
also when the daemon that started it is killed.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from fabled import __version__
from fabled.cards.shelf import CardShelf
from fabled.daemon.backlog import Backlog, Item
from fabled.daemon.folders import inside
from fabled.daemon.study import Student
from fabled.errors import FabledError
from fabled.map.db import Snapshots
from fabled.map.indexer import GONE, Indexer
from fabled.map.opening import open_map
from fabled.map.reconcile import survey, survey_vault
from fabled.system import real
from fabled.transcript.veil import Veil
from fabled.vault.catalogue import Catalogue
from fabled.vault.sources import Sources
from fabled.vault.tombstones import Tombstones

if TYPE_CHECKING:
    from fabled.map.db import Writer
    from fabled.system import System

SLICE_S = 0.5
"""How long the study of threads keeps a path waiting."""


class Backfill:
    """One run: survey the roots, read what differs, then what else it is told.

    Args:
        system: The ports.
        source: JSON lines in.
        sink: JSON lines out; flushed line by line.
    """

    def __init__(self, system: System, source: IO[bytes], sink: IO[bytes]) -> None:
        self._system = system
        self._source = source
        self._sink = sink
        self._sources = Sources(system.files)
        self._backlog = Backlog()
        self._changed = threading.Condition()
        self._taken = 0
        self._ended = False

    def run(self) -> int:
        """Work until stdin ends; returns the exit status."""
        plan = json.loads(self._source.readline() or b"{}")
        if not plan:
            return 0
        # Joined by nobody: it blocks on stdin, whose end is the end of the process.
        threading.Thread(target=self._listen, name="stdin", daemon=True).start()
        try:
            self._work(plan)
        except FabledError as fault:
            self._say({"error": [fault.code, fault.message, fault.hint]})
            return fault.exit_status
        return 0

    def _work(self, plan: dict[str, Any]) -> None:
        clock = self._system.clock
        veil = Veil(bytes.fromhex(plan["key"]), plan["redact"])
        files = self._system.files
        opened = open_map(files, plan["map"], __version__, veil, now_ms=clock.now_ms(), bulk=True)
        vault = plan["vault"]
        tombstones = Tombstones(files, plan["tombstones"])
        self._sources = Sources(files, vault and Catalogue(files, vault), tombstones)
        indexer = Indexer(opened.writer, self._sources, veil)
        student = Student(self._sources, veil, CardShelf(files, plan["cards"]))
        try:
            self._survey(plan)
            while (item := self._next(student, opened.writer)) is not None:
                self._read(indexer, item)
        finally:
            opened.writer.checkpoint(truncate=True)
            opened.writer.close()

    def _survey(self, plan: dict[str, Any]) -> None:
        snapshots = Snapshots(plan["map"])
        with snapshots.snapshot() as snapshot:
            surveys = [survey(snapshot, self._system.files, root) for root in plan["roots"]]
            if self._sources.catalogue is not None:
                surveys.append(survey_vault(snapshot, self._sources.catalogue))
        snapshots.close()
        dirty = [file for found in surveys for file in found.dirty]
        with self._changed:
            for file in sorted(dirty, key=lambda d: (-d.mtime_ns, d.path)):
                item = Item(file.root, file.path, file.pending_bytes, 0.0, plan["asked"])
                self._backlog.add(item, live=False)
        found = [[file.path, file.root, file.pending_bytes] for file in dirty]
        self._say({"survey": found, "asked": plan["asked"]})

    def _next(self, student: Student, writer: Writer) -> Item | None:
        """The next path; studies, then waits for one. None when stdin has ended."""
        left = True
        while True:
            with self._changed:
                item = None if self._ended else self._backlog.take()
                if item is not None or self._ended:
                    return item
                taken = self._taken
            if left:
                studied = student.slice(writer, self._system.clock, SLICE_S)
                left = studied.left
                continue
            self._say({"idle": taken})
            with self._changed:
                self._changed.wait_for(lambda: self._ended or len(self._backlog) > 0)

    def _read(self, indexer: Indexer, item: Item) -> None:
        if self._sources.tombstones is not None:
            self._sources.tombstones.refresh()
        catalogue = self._sources.catalogue
        sealed = catalogue is not None and item.root == catalogue.root
        if catalogue is not None and sealed:
            catalogue.refresh_path(item.path)  # the daemon may have sealed more meanwhile
        below = None if sealed else inside(self._system.files, item.path)
        if below is not None:
            with self._changed:
                for path in below:
                    found = Item(item.root, path, 0, 0.0, item.asked)
                    self._backlog.add(found, live=True)
        outcome = indexer.index(item.root, item.path, afresh=item.afresh)
        self._say(
            {
                "path": item.path,
                "asked": item.asked,
                "bytes": outcome.bytes_read,
                "records": outcome.records,
                "refused": outcome.refusal.message if outcome.refusal else None,
                "stale": list(outcome.stale),
                "sealed": sealed,
                "gone": outcome.action == GONE and not sealed,
            }
        )

    def _listen(self) -> None:
        for line in self._source:
            item = Item(**json.loads(line))
            with self._changed:
                self._backlog.add(item, live=True)
                self._taken += 1
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _say(self, message: dict[str, Any]) -> None:
        self._sink.write(json.dumps(message).encode() + b"\n")
        self._sink.flush()


def main() -> int:
    """Entry point of the child process."""
    system = real()
    system.processes.settle_in()
    try:
        return Backfill(system, sys.stdin.buffer, sys.stdout.buffer).run()
    except BrokenPipeError:
        return 0  # the daemon is gone, and so is the reason to go on


if __name__ == "__main__":
    sys.exit(main())

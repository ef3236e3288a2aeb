"""A Map over a projects folder on disk, without a daemon."""

from __future__ import annotations

from fabled.map.db import Snapshots
from fabled.map.indexer import Indexer
from fabled.map.opening import open_map
from fabled.map.reconcile import survey
from fabled.system import real

KEY = b"k" * 32


class Library:
    """Opens a Map in a folder and brings it up to date with a projects root."""

    def __init__(self, folder, root):
        self.root = str(root)
        self.path = str(folder / "map.db")
        self.system = real()
        self.writer = open_map(self.system.files, self.path, "test", now_ms=0).writer
        self.indexer = Indexer(self.writer, self.system.files, KEY)
        self.snapshots = Snapshots(self.path)

    def reconcile(self):
        """One pass as the daemon makes it; returns the outcomes by path."""
        with self.snapshots.snapshot() as snapshot:
            found = survey(snapshot, self.system.files, self.root)
        waiting = [(dirty.path, False) for dirty in found.dirty] + [(p, False) for p in found.gone]
        outcomes = {}
        while waiting:
            path, afresh = waiting.pop(0)
            outcomes[path] = self.indexer.index(self.root, path, afresh=afresh)
            waiting += [(stale, True) for stale in outcomes[path].stale]
        for path in self.indexer.retry_stale():
            outcomes[path] = self.indexer.index(self.root, path, afresh=True)
        return outcomes

    def close(self):
        self.snapshots.close()
        self.writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

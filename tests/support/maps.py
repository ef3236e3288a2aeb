"""A Map over a projects folder on disk, without a daemon."""

from __future__ import annotations

from fabled.cards.shelf import CardShelf
from fabled.daemon.study import Student
from fabled.map.db import Snapshots
from fabled.map.indexer import Indexer
from fabled.map.opening import open_map
from fabled.map.reconcile import survey, survey_vault
from fabled.system import real
from fabled.transcript.veil import Veil
from fabled.vault.archive import seal_file, units
from fabled.vault.sources import Sources
from fabled.vault.store import Vault

KEY = b"k" * 32


class Library:
    """Opens a Map in a folder and brings it up to date with a projects root."""

    def __init__(self, folder, root, vault=None, *, redact=True):
        self.root = str(root)
        self.path = str(folder / "map.db")
        self.system = real()
        self.veil = Veil(KEY, redact=redact)
        opened = open_map(self.system.files, self.path, "test", self.veil, now_ms=0)
        self.writer = opened.writer
        self.vault = vault or Vault(
            self.system.files, self.system.clock, str(folder / "vault"), "zstd"
        )
        self.sources = Sources(self.system.files, self.vault.catalogue)
        self.indexer = Indexer(self.writer, self.sources, self.veil)
        self.snapshots = Snapshots(self.path)
        self.cards = CardShelf(self.system.files, str(folder / "cards"))
        self.student = Student(self.sources, self.veil, self.cards)

    def reconcile(self):
        """One pass as the daemon makes it; returns the outcomes by path."""
        with self.snapshots.snapshot() as snapshot:
            surveys = [
                survey(snapshot, self.system.files, self.root),
                survey_vault(snapshot, self.vault.catalogue),
            ]
        waiting = [(p, False) for one in surveys for p in [*(d.path for d in one.dirty), *one.gone]]
        outcomes = {}
        while waiting:
            path, afresh = waiting.pop(0)
            outcomes[path] = self.index(path, afresh=afresh)
            waiting += [(stale, True) for stale in outcomes[path].stale]
        for path in self.indexer.retry_stale():
            outcomes[path] = self.index(path, afresh=True)
        return outcomes

    def study(self):
        """Bring terms and cards of all threads up to date; returns how many that were."""
        done = 0
        while (slice_ := self.student.slice(self.writer, self.system.clock, 10.0)).threads:
            done += slice_.threads
        return done

    def index(self, path, *, afresh=False):
        """Make the Map agree with one live path or strand."""
        root = self.vault.root if path.startswith(self.vault.root + "/") else self.root
        return self.indexer.index(root, path, afresh=afresh)

    def seal(self):
        """Seal every session's every file as the archive does."""
        for unit in units(self.system.files, self.root):
            for file in unit.files:
                outcome = seal_file(
                    self.vault, self.system.files, file.origin, "test", lambda _path: None
                )
                assert outcome.generation is not None, outcome

    def close(self):
        self.snapshots.close()
        self.writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

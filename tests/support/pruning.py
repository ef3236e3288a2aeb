"""Prune and undo over scratch folders, with a real Vault, a real Map and a real door."""

from __future__ import annotations

import shutil
from pathlib import Path

from fabled.map import fidelity
from fabled.prune import apply
from fabled.prune.door import Door
from fabled.prune.following import Follower
from fabled.prune.recovery import recover, sealed, verdict
from fabled.prune.values import Options
from fabled.system import leases
from tests.support.maps import KEY, Library
from tests.support.vaults import Shelter

MAIN = "-p/s1.jsonl"


class Bytes:
    """Bytes as a source."""

    def __init__(self, data):
        self.data = data

    def pread(self, offset, length):
        return self.data[offset : offset + length]


def options(level="transparent", mode="resume", keep=3):
    """Prune options with the tests' key."""
    return Options(level, mode, keep, KEY)


class Workbench(Shelter):
    """A shelter whose transcripts can be pruned; the Map lies in a folder of its own."""

    def __init__(self, folder, system=None, maps=None):
        super().__init__(folder, system=system)
        leases.ignore_breaks()
        self.pending = str(self.folder / "pending")
        self.follower = Follower(self.system)
        self.door = Door(self.system, self.pending, self.follower)
        self.maps = Path(maps) if maps else self.folder.parent / f"{self.folder.name}-maps"
        shutil.rmtree(self.maps, ignore_errors=True)
        self.maps.mkdir(parents=True)
        self.library = Library(self.maps, self.root, self.vault)
        self.bench = apply.Bench(
            self.system, self.vault, self.door, self._indexed, lambda _path: None
        )

    def _indexed(self, generation):
        strand = self.vault.catalogue.strand_of(generation)
        assert strand is not None
        self.library.index(strand.path)
        with self.library.snapshots.snapshot() as snapshot:
            return fidelity.spots(snapshot, strand.path)

    def prune(self, name=MAIN, now_ms=1, **wanted):
        return apply.prune(self.bench, self.origin(name), apply.Wish(options(**wanted)), now_ms)

    def undo(self, name=MAIN, undone=()):
        return apply.undo(self.bench, self.origin(name), self.lineage(name), set(undone))

    def live(self, name=MAIN):
        return (self.root / name).read_bytes()

    def put_right(self):
        """What the next start does."""
        for found in recover(self.system, self.pending, self.follower, sealed(self.vault)):
            lineage = self.lineage(self.origin_path(found.path))
            seen = verdict(self.system.files, found, lineage)
            if seen is not None and not seen.happened:
                self.vault.discard(seen.generation)

    def origin_path(self, path):
        return path.removeprefix(str(self.root)).lstrip("/")

    def leftovers(self):
        """Names of ours in the projects folder, and notes."""
        found = [str(p) for p in self.root.rglob(".fabled-*")]
        pending = Path(self.pending)
        return found + ([str(p) for p in pending.iterdir()] if pending.exists() else [])

    def close(self):
        self.follower.close()
        self.library.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

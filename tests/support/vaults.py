"""A Vault over scratch folders, and files to seal in it."""

from __future__ import annotations

import os
from pathlib import Path

from fabled.system import real
from fabled.vault.store import Vault
from fabled.vault.values import Origin, Receipt

RECEIPT = Receipt(
    before=0, level="lean", mode="resume", before_bytes=9, after_bytes=5, rules={}, pruned_ms=7
)


def flip(path, at):
    """Change one bit of a file that should never change."""
    os.chmod(path, 0o600)
    with open(path, "r+b") as handle:
        handle.seek(at)
        byte = handle.read(1)
        handle.seek(at)
        handle.write(bytes([byte[0] ^ 1]))


class Shelter:
    """A projects folder and a Vault beside it."""

    def __init__(self, folder, compression="zstd", system=None):
        self.folder = Path(folder)
        self.root = self.folder / "projects"
        self.root.mkdir(parents=True, exist_ok=True)
        self.system = system or real()
        self.vault = Vault(
            self.system.files, self.system.clock, str(self.folder / "vault"), compression
        )

    def origin(self, name):
        return Origin(str(self.root), name)

    def write(self, name, data):
        """A live file with these bytes."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.chmod(path, 0o600)
        return self.origin(name)

    def append(self, name, data):
        with (self.root / name).open("ab") as handle:
            handle.write(data)

    def seal(self, name, size=None, reason="test"):
        origin = self.origin(name)
        with self.system.files.open_read(origin.live) as handle:
            size = handle.stat().size if size is None else size
            return self.vault.seal(origin, handle, size, reason)

    def keep_pruned(self, name, data, receipt=RECEIPT):
        new = self.folder / "pruned"
        new.write_bytes(data)
        with self.system.files.open_read(str(new)) as handle:
            return self.vault.keep_pruned(self.origin(name), handle, len(data), receipt)

    def bytes_of(self, generation):
        """The whole image."""
        with self.vault.image(generation) as image:
            return image.pread(0, image.size)

    def lineage(self, name):
        return self.vault.catalogue.lineage(self.origin(name))

    def again(self):
        """The same Vault, as the next process sees it."""
        return Shelter(self.folder, self.vault.compression, self.system)

    def files(self):
        """Every file of the Vault, relative to it."""
        found = Path(self.vault.root)
        return sorted(str(p.relative_to(found)) for p in found.rglob("*") if p.is_file())

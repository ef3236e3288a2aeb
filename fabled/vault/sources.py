"""One way to open whatever the Map points to: a live file, or an image in the Vault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabled.errors import NotFound
from fabled.vault.images import Image

if TYPE_CHECKING:
    from fabled.system import Files, FileStat, OpenFile
    from fabled.vault.catalogue import Catalogue, Strand
    from fabled.vault.tombstones import Tombstones


class Sources:
    """Opens by path. A strand is named by the path of its first own data file.

    Args:
        files: The file system.
        catalogue: The Vault's; None where there is no Vault.
        tombstones: What is not to be read at all; None: nothing was forgotten.
    """

    def __init__(
        self,
        files: Files,
        catalogue: Catalogue | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        self.files = files
        self.catalogue = catalogue
        self.tombstones = tombstones

    @property
    def vault_root(self) -> str | None:
        """The folder that all generations lie below, or are registered in."""
        return None if self.catalogue is None else self.catalogue.root

    def open_read(self, path: str, *, holes: bool = False) -> OpenFile:
        """A live file, or a whole image; with `holes`, zeros for what of it is damaged.

        Raises:
            NotFound: Nothing is there.
            AccessDenied: It may not be read.
        """
        strand = self.strand(path)
        if strand is not None:
            return Image(self.files, strand.chain, holes=holes)
        if self.in_vault(path):
            raise NotFound(f"{path} is no generation of the Vault")
        return self.files.open_read(path)

    def strand(self, path: str) -> Strand | None:
        """The strand of that name; None when the path is a live file's, or nothing's."""
        if self.catalogue is None:
            return None
        return self.catalogue.strand(path)

    def forgotten(self, stem: str) -> bool:
        """Whether the session whose file has this name was forgotten."""
        return self.tombstones is not None and self.tombstones.session(stem)

    def in_vault(self, path: str) -> bool:
        """Whether a path lies in the Vault's folder."""
        return self.catalogue is not None and path.startswith(self.catalogue.root + "/")

    def stat(self, path: str) -> FileStat | None:
        """What is there, links not followed."""
        return self.files.stat(path)

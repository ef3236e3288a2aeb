"""Reading everything again: is each generation still what was sealed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabled.errors import AccessDenied, GenerationDamaged, NotFound
from fabled.vault.catalogue import Trouble
from fabled.vault.hashing import sha256_of
from fabled.vault.images import open_part

if TYPE_CHECKING:
    from fabled.system import Files
    from fabled.vault.store import Vault
    from fabled.vault.values import Generation


def verify(files: Files, vault: Vault, generation: Generation) -> list[Trouble]:
    """What is wrong with one generation; nothing, if it is as it was sealed.

    Checks the file on disk, its own bytes, and the image of which it is the end. Cost: reads
    the whole image.
    """
    path, card = generation.data_path, generation.card
    try:
        if card.stored_sha256 != _hash_file(files, path, card.stored):
            return [Trouble(path, "is not the file that was sealed")]
        if card.sha256 != _hash_part(files, generation):
            return [Trouble(path, "does not hold the bytes that were sealed")]
        with vault.image(generation) as image:
            if card.image_sha256 != sha256_of(image.pread, generation.end + 1).sha256:
                return [Trouble(path, "does not continue its base any more")]
    except NotFound as fault:
        return [Trouble(path, fault.message)]
    except (AccessDenied, GenerationDamaged) as fault:
        return [Trouble(path, fault.message)]
    return []


def _hash_file(files: Files, path: str, size: int) -> str:
    with files.open_read(path) as handle:
        return sha256_of(handle.pread, size + 1).sha256


def _hash_part(files: Files, generation: Generation) -> str:
    part = open_part(files, generation)
    try:
        return sha256_of(part.pread, generation.card.size + 1).sha256
    finally:
        part.close()

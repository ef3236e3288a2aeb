"""Putting an image back: exactly those bytes, never over anything that is not sealed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import GenerationDamaged, NewerData
from fabled.vault.hashing import PIECE, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.system import Files, OpenFile
    from fabled.vault.store import Vault
    from fabled.vault.values import Generation


class Restored(NamedTuple):
    """A file that was put back, or was there already (`written` is False)."""

    path: str
    bytes: int
    number: int
    written: bool


def pieces(image: OpenFile, generation: Generation) -> Iterator[bytes]:
    """The whole image; the last piece is only given when all of it has the right hash.

    Raises:
        GenerationDamaged: It has not.
    """
    hashed, at, held = hashlib.sha256(), 0, b""
    while piece := image.pread(at, PIECE):
        hashed.update(piece)
        at += len(piece)
        if held:
            yield held
        held = piece
    if at != generation.end or hashed.hexdigest() != generation.card.image_sha256:
        raise GenerationDamaged(f"the image of {generation.data_path} is not what was sealed")
    if held:
        yield held


def restore(
    vault: Vault,
    files: Files,
    generation: Generation,
    target: str,
    *,
    keep_mtime: bool,
    overwrite: bool = False,
) -> Restored:
    """Put the image of a generation at a path that is free, or has these bytes already.

    Its mode is the original's, its time is now unless `keep_mtime`.

    Args:
        vault: The Vault.
        files: The file system.
        generation: The end of the image.
        target: Where to; missing folders are made, private.
        keep_mtime: Give it the time it had: the client's cleanup may then take it again.
        overwrite: Replace what is there. The caller has sealed it if it is a transcript.

    Raises:
        NewerData: Something else is there.
        GenerationDamaged: The Vault no longer has these bytes; nothing was written.
    """
    there = files.stat(target, follow=False)
    if there is not None:
        if there.kind == "file" and _same(files, target, generation):
            return Restored(target, generation.end, generation.card.number, written=False)
        if not overwrite or there.kind != "file":
            raise NewerData(
                f"{target} is there and differs from generation {generation.card.number}"
            )
    folder = target.rpartition("/")[0] or "/"
    files.make_dirs(folder)
    with vault.image(generation) as image, files.create(target) as new:
        for piece in pieces(image, generation):
            new.write(piece)
        new.set_mode(generation.card.mode)
        if keep_mtime:
            new.set_mtime(generation.card.mtime_ns)
        new.sync()
        if overwrite:
            new.replace(target)
        elif not new.publish(target):
            raise NewerData(f"{target} appeared while it was being restored")
    return Restored(target, generation.end, generation.card.number, written=True)


def _same(files: Files, path: str, generation: Generation) -> bool:
    with files.open_read(path) as handle:
        if handle.stat().size != generation.end:
            return False
        found = sha256_of(handle.pread, generation.end)
    return found.sha256 == generation.card.image_sha256

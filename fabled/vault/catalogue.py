"""Which generations there are: read from their sidecars, folder by folder, and kept.

The sidecars are the only truth. A sidecar that cannot be read, or whose data is
missing, is trouble to report; the others are as good as ever.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.errors import AccessDenied, NotFound
from fabled.vault import names
from fabled.vault.values import FORMAT, Generation, Origin, Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.system import Files

CARD_LIMIT = 1 << 20


class Trouble(NamedTuple):
    """Something in the Vault that is not as it should be: where, and what."""

    path: str
    what: str


class Folder(NamedTuple):
    """The generations in one folder by number, and the trouble there."""

    generations: tuple[Generation, ...]
    troubles: tuple[Trouble, ...]


class Strand(NamedTuple):
    """A whole image and the tails that continue it: what grows as one file.

    Attributes:
        path: Data file of the first generation that is its own; names it for ever.
        chain: From the whole image to the newest tail.
    """

    path: str
    chain: tuple[Generation, ...]

    @property
    def head(self) -> Generation:
        """Its newest generation."""
        return self.chain[-1]


class Catalogue:
    """Safe to share between threads.

    Args:
        files: The file system.
        root: The Vault's folder.

    Attributes:
        version: Another number whenever something may have changed.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self.root = root
        self._lock = threading.RLock()
        self._folders: dict[str, Folder] = {}
        self._imports: Folder | None = None
        self.version = 0

    def folder(self, relative: str) -> Folder:
        """What one folder holds. Cost: a listing and a small file a generation, once."""
        with self._lock:
            found = self._folders.get(relative)
            if found is None:
                found = self._folders[relative] = self._read(f"{self.root}/{relative}")
            return found

    def refresh(self, relative: str) -> None:
        """Read this folder again when it is next asked for."""
        with self._lock:
            self._folders.pop(relative, None)
            self.version += 1

    def refresh_path(self, path: str) -> None:
        """Read the folder of this data file again when it is next asked for."""
        self.refresh(path.removeprefix(self.root + "/").rpartition("/")[0])
        self.refresh_imports()

    def lineage(self, origin: Origin) -> list[Generation]:
        """Every generation of one live file, oldest first."""
        found = self.folder(names.folder_of(origin.path)).generations
        return [one for one in found if one.origin == origin]

    def everything(self) -> list[Folder]:
        """Every folder with generations, and the imported ones as one more.

        Raises:
            AccessDenied: A folder cannot be listed: then nothing is known of what is missing.
        """
        found = [self.folder(relative) for relative in self._walk("", 0)]
        return [*found, self._imported()]

    def generations(self) -> list[Generation]:
        """Every generation there is; raises as `everything`."""
        return [one for folder in self.everything() for one in folder.generations]

    def strands(self) -> list[Strand]:
        """Every strand there is; raises as `everything`."""
        return [strand for folder in self.everything() for strand in strands_of(folder.generations)]

    def strand(self, path: str) -> Strand | None:
        """The strand that a data file's path names."""
        for one in self.imports():
            if one.data_path == path:
                return Strand(path, (one,))
        relative = path.removeprefix(self.root + "/").rpartition("/")[0]
        if not path.startswith(self.root + "/") or relative.startswith("."):
            return None
        found = strands_of(self.folder(relative).generations)
        return next((strand for strand in found if strand.path == path), None)

    def strand_of(self, generation: Generation) -> Strand | None:
        """The strand that a generation is part of; the one it ends, when there are several."""
        found = strands_of(self._mates(generation))
        owning = [strand for strand in found if generation in strand.chain]
        return next((s for s in owning if s.head == generation), owning[0] if owning else None)

    def chain(self, generation: Generation) -> tuple[Generation, ...]:
        """The generations whose bytes make up an image, the whole one first.

        Raises:
            NotFound: A base is missing.
        """
        known = {one.card.number: one for one in self._mates(generation)}
        chain = [generation]
        while (base := chain[-1].card.base) is not None:
            if base not in known or base >= chain[-1].card.number:
                raise NotFound(
                    f"{chain[-1].data_path} continues generation {base}, which is missing",
                    hint="Run: fablectl vault verify",
                )
            chain.append(known[base])
        return tuple(reversed(chain))

    def _mates(self, generation: Generation) -> list[Generation]:
        if generation.folder.startswith(names.IMPORTS):
            return [generation]
        found = self.folder(generation.folder).generations
        return [one for one in found if one.origin == generation.origin]

    def imports(self) -> tuple[Generation, ...]:
        """The generations that lie elsewhere and are read in place."""
        return self._imported().generations

    def _imported(self) -> Folder:
        with self._lock:
            if self._imports is None:
                self._imports = self._read(f"{self.root}/{names.IMPORTS}", outside=True)
            return self._imports

    def card_at(self, path: str) -> Sidecar | None:
        """The sidecar in a file; None when it is none."""
        card = read_card(self._files, path) if path.endswith(names.CARD) else None
        return card if isinstance(card, Sidecar) else None

    def refresh_imports(self) -> None:
        """Read the imported ones' sidecars again when they are next asked for."""
        with self._lock:
            self._imports = None
            self.version += 1

    def _walk(self, relative: str, depth: int) -> Iterator[str]:
        try:
            entries = self._files.scan(f"{self.root}/{relative}".rstrip("/"))
        except NotFound:
            return
        if any(names.is_card(entry.name) for entry in entries):
            yield relative
        for entry in entries:
            if entry.kind == "dir" and not entry.name.startswith(".") and depth < names.VAULT_DEPTH:
                yield from self._walk(f"{relative}/{entry.name}".lstrip("/"), depth + 1)

    def _read(self, folder: str, *, outside: bool = False) -> Folder:
        try:
            entries = self._files.scan(folder)
        except NotFound:
            return Folder((), ())
        here = {entry.name for entry in entries}
        found: list[Generation] = []
        troubles: list[Trouble] = []
        for entry in entries:
            if not entry.name.endswith(names.CARD):
                continue
            card = read_card(self._files, entry.path)
            if isinstance(card, Trouble):
                troubles.append(card)
                continue
            relative = folder.removeprefix(self.root).lstrip("/")
            if outside:
                found.append(Generation(relative, card, f"{card.root}/{card.path}"))
                continue
            here_it_is = (relative, entry.name) == (
                names.folder_of(card.path),
                names.card_name(card.number, card.kind),
            )
            if not here_it_is:
                troubles.append(
                    Trouble(entry.path, "is a copy of a sidecar that belongs elsewhere")
                )
                continue
            data = names.data_name(card.number, card.kind, card.path, card.compression)
            if data not in here:
                troubles.append(Trouble(f"{folder}/{data}", "is missing; its sidecar is there"))
            found.append(Generation(relative, card, f"{folder}/{data}"))
        found.sort(key=lambda one: (one.card.number, one.data_path))
        return Folder(tuple(found), tuple(troubles))


def read_card(files: Files, path: str) -> Sidecar | Trouble:
    """One sidecar, or why it cannot be used."""
    try:
        data = files.read_small(path, CARD_LIMIT)
        card = msgspec.convert(json.loads(data or b"null"), Sidecar)
    except (AccessDenied, ValueError, RecursionError, msgspec.ValidationError) as fault:
        return Trouble(path, f"is no readable sidecar: {fault}")
    if card.format != FORMAT:
        return Trouble(path, f"has format {card.format}; this fabled knows {FORMAT}")
    parts = card.path.split("/")
    if "" in parts[:-1] or ".." in parts or "." in parts:
        return Trouble(path, "names no path below a projects folder")
    return card


def card_bytes(card: Sidecar) -> bytes:
    """A sidecar as stored; names that are no text keep their bytes as escapes."""
    return json.dumps(msgspec.to_builtins(card), indent=1).encode() + b"\n"


def strands_of(generations: tuple[Generation, ...] | list[Generation]) -> list[Strand]:
    """The strands of one folder; a tail whose base is missing has none."""
    chains: dict[tuple[Origin, int], int] = {}
    found: list[Strand] = []
    for one in generations:
        base = one.card.base
        if base is None:
            found.append(Strand(one.data_path, (one,)))
        else:
            at = chains.get((one.origin, base))
            if at is None:
                continue
            chain = found[at].chain
            if chain[-1].card.number == base:
                found[at] = found[at]._replace(chain=(*chain, one))
                chains[one.origin, one.card.number] = at
                continue
            upto = next(i for i, part in enumerate(chain) if part.card.number == base)
            found.append(Strand(one.data_path, (*chain[: upto + 1], one)))
        chains[one.origin, one.card.number] = len(found) - 1
    return found

"""Writing generations: complete, verified and durable before they have a name.

Order of one sealing: a nameless file in the target folder - write - sync - read it back
and compare - link under the final name (the kernel refuses to clobber) - sync the folder;
then the same for its sidecar, which is what makes it a generation. A crash leaves
nothing, or data without sidecar, which the sweep puts into the trash.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import (
    AccessDenied,
    FabledError,
    FileChanged,
    GenerationDamaged,
    InternalError,
    NotFound,
)
from fabled.vault import names
from fabled.vault.catalogue import Catalogue, card_bytes
from fabled.vault.frames import Frames, Plain, compress
from fabled.vault.hashing import PIECE, sha256_of
from fabled.vault.images import Image
from fabled.vault.values import FORMAT, PRUNED, RAW, TAIL, Generation, Origin, Receipt, Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.system import Clock, Files, FileStat, NewFile, OpenFile

DATA_MODE = 0o400
ATTEMPTS = 16


class Known(NamedTuple):
    """How much of some bytes the Vault has already.

    Attributes:
        best: The generation whose image the bytes begin with, the longest such; None: nothing.
        prefix: Hash state of the bytes that `best` covers.
        sha256: Of all the bytes.
    """

    best: Generation | None
    prefix: hashlib._Hash
    sha256: str


class Vault:
    """The store of generations; one lock, one writer. Reading needs no lock.

    Args:
        files: The file system.
        clock: When things were sealed.
        root: The Vault's folder; made when something is first written.
        compression: zstd or none, for what is sealed from now on.
    """

    def __init__(self, files: Files, clock: Clock, root: str, compression: str) -> None:
        self._files = files
        self._clock = clock
        self.root = root
        self.compression = compression
        self.catalogue = Catalogue(files, root)
        self._lock = threading.RLock()

    # --- reading ---

    def image(self, generation: Generation) -> Image:
        """The whole image of a generation; the caller closes it.

        Raises:
            NotFound: A generation that it continues is missing.
        """
        return Image(self._files, self.catalogue.chain(generation))

    def present(self, generation: Generation) -> bool:
        """Whether every file behind an image is there in its full length. Cost: a stat each."""
        try:
            chain = self.catalogue.chain(generation)
        except NotFound:
            return False
        stats = [(one, self._files.stat(one.data_path)) for one in chain]
        return all(stat is not None and stat.size == one.card.stored for one, stat in stats)

    def intact(self, generation: Generation) -> bool:
        """Whether an image reads as it was sealed. Cost: reads it."""
        if not self.present(generation):
            return False
        try:
            with self.image(generation) as image:
                found = sha256_of(image.pread, generation.end + 1)
        except (NotFound, AccessDenied, GenerationDamaged):
            return False
        return found.sha256 == generation.card.image_sha256

    def known(self, origin: Origin, handle: OpenFile, size: int) -> Known:
        """How much of the first `size` bytes of a file is sealed, and can be read.

        Cost: one read of them, and one of the image they begin with.
        """
        ends: dict[int, list[Generation]] = {}
        for one in self.catalogue.lineage(origin):
            ends.setdefault(one.end, []).append(one)
        hashed, at = hashlib.sha256(), 0
        found: list[tuple[Generation, hashlib._Hash]] = []
        for end in sorted(end for end in ends if end <= size):
            at = _feed(hashed, handle, at, end)
            same = [g for g in ends[end] if g.card.image_sha256 == hashed.hexdigest()]
            found += [(one, hashed.copy()) for one in same if at == end]
        _feed(hashed, handle, at, size)
        for one, prefix in reversed(found):
            # A generation that cannot be read is no backup, and nothing to build upon.
            if self.intact(one):
                return Known(one, prefix, hashed.hexdigest())
        return Known(None, hashlib.sha256(), hashed.hexdigest())

    # --- writing ---

    def seal(
        self,
        origin: Origin,
        handle: OpenFile,
        size: int,
        reason: str,
        session: str | None = None,
    ) -> Generation:
        """Make the first `size` bytes of an open file an image in the Vault.

        Bytes that continue a sealed image cost only their tail. Nothing new is written when
        the newest generation is this very image.

        Args:
            origin: The live file.
            handle: Open; owned by the caller.
            size: Bytes from its start.
            reason: Goes into the sidecar.
            session: The session it belongs to, when its place does not say.

        Raises:
            DiskFull: Nothing is left of the attempt.
            AccessDenied: The file cannot be read, or the Vault not be written.
            FileChanged: It was written anew meanwhile.
            GenerationDamaged: What was read back is not what was written.
        """
        with self._lock:
            self.catalogue.refresh(names.folder_of(origin.path))
            stat = handle.stat()
            known = self.known(origin, handle, size)
            if handle.stat().mtime_ns != stat.mtime_ns:
                _same(sha256_of(handle.pread, size).sha256, known)
            newest = next(reversed(self.catalogue.lineage(origin)), None)
            best = known.best
            if best is not None and best.end == size and best == newest:
                return best
            if best is None or best.end == 0:
                own = _Own(handle, 0, size, RAW, None)
                return self._write(_Label(origin, reason, session), own, known=known, stat=stat)
            own = _Own(handle, best.end, size, TAIL, best.card.number)
            return self._write(_Label(origin, reason, session), own, known=known, stat=stat)

    def keep_pruned(self, origin: Origin, new: OpenFile, size: int, receipt: Receipt) -> Generation:
        """Make the image that a prune is about to put in place a generation; raises as `seal`."""
        with self._lock:
            self.catalogue.refresh(names.folder_of(origin.path))
            label = _Label(origin, "pruned", None, receipt)
            return self._write(label, _Own(new, 0, size, PRUNED, None))

    def discard(self, generation: Generation) -> None:
        """Take back a pruned image that was not put in place: its bytes are nobody's only copy.

        Raises:
            InternalError: It is no pruned image, or not the newest of its lineage.
        """
        with self._lock:
            self.catalogue.refresh(generation.folder)
            lineage = self.catalogue.lineage(generation.origin)
            if generation.card.kind != PRUNED or lineage[-1:] != [generation]:
                raise InternalError(f"{generation.data_path} is not to be discarded")
            folder = f"{self.root}/{generation.folder}"
            card = names.card_name(generation.card.number, generation.card.kind)
            self._files.remove(f"{folder}/{card}")
            self._files.sync_folder(folder)  # the sidecar goes first, whatever survives
            self._files.remove(generation.data_path)
            self._files.sync_folder(folder)
            self.catalogue.refresh(generation.folder)

    def write_anew(self, old: Generation, new: OpenFile, size: int, reason: str) -> Generation:
        """Make changed bytes a generation that takes the place of an older one; raises as `seal`.

        It is a whole image; the receipt of a prune is not kept: its undo would bring back what
        was taken out.
        """
        with self._lock:
            label = _Label(old.origin, reason, old.card.session)
            return self._write(label, _Own(new, 0, size, RAW, None))

    def _write(
        self,
        label: _Label,
        own: _Own,
        *,
        known: Known | None = None,
        stat: FileStat | None = None,
    ) -> Generation:
        origin = label.origin
        relative = names.folder_of(origin.path)
        folder = f"{self.root}/{relative}"
        self._files.make_private_dir(folder)
        stat = stat or own.handle.stat()
        summing = _Summing(known.prefix if known is not None else None)
        with self._files.create(f"{folder}/generation", mode=DATA_MODE) as new:
            stored = hashlib.sha256()
            for piece in self._packed(summing.through(own.pieces())):
                new.write(piece)
                stored.update(piece)
            new.sync()
            if known is not None:
                _same(summing.image.hexdigest(), known)
            self._read_back(new, summing, own.end - own.start)
            card = Sidecar(
                format=FORMAT,
                root=origin.root,
                path=origin.path,
                session=label.session or session_of(origin.path),
                kind=own.kind,
                number=-1,
                base=own.base,
                offset=own.start,
                size=own.end - own.start,
                sha256=summing.own.hexdigest(),
                image_sha256=summing.image.hexdigest(),
                compression=self.compression,
                stored=new.stat().size,
                stored_sha256=stored.hexdigest(),
                mtime_ns=stat.mtime_ns,
                mode=stat.mode & 0o7777,
                sealed_ms=self._clock.now_ms(),
                reason=label.reason,
                receipt=label.receipt,
            )
            return self._publish(relative, new, card)

    def _packed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        return compress(pieces) if self.compression == "zstd" else pieces

    def _read_back(self, new: NewFile, written: _Summing, size: int) -> None:
        part = Frames(new, new.path) if self.compression == "zstd" else Plain(new)
        found = sha256_of(part.pread, size + 1)
        if found != (written.own.hexdigest(), size):
            raise GenerationDamaged(
                f"{new.path} did not read back as it was written; nothing was sealed",
                hint="Check the disk.",
            )

    def _publish(self, relative: str, new: NewFile, card: Sidecar) -> Generation:
        folder = f"{self.root}/{relative}"
        for _ in range(ATTEMPTS):
            card.number = self._next_number(folder)
            name = names.data_name(card.number, card.kind, card.path, card.compression)
            if self._named(new, f"{folder}/{name}"):
                break
        else:
            raise InternalError(f"no free number in {folder}")
        try:
            self._attach(folder, card)
        except FabledError:
            # Or each attempt would leave a copy. Data without sidecar is no generation; a
            # sidecar without data is damage: it goes first.
            self._files.remove(f"{folder}/{names.card_name(card.number, card.kind)}")
            self._files.remove(f"{folder}/{name}")
            raise
        self.catalogue.refresh(relative)
        return Generation(relative, card, f"{folder}/{name}")

    def _named(self, new: NewFile, path: str) -> bool:
        try:
            return new.publish(path)
        except FabledError:
            there = self._files.stat(path)
            if there is not None and there.ino == new.stat().ino:
                self._files.remove(path)  # it had its name, but not durably
            raise

    def _attach(self, folder: str, card: Sidecar) -> None:
        with self._files.create(f"{folder}/sidecar", mode=DATA_MODE) as side:
            side.write(card_bytes(card))
            side.sync()
            if not side.publish(f"{folder}/{names.card_name(card.number, card.kind)}"):
                raise InternalError(f"generation {card.number} in {folder} has a sidecar already")

    def _next_number(self, folder: str) -> int:
        # A folder may bear any name: a spilled tool result has one of its own.
        found = [e.name for e in self._files.scan(folder) if e.kind == "file"]
        numbers = [names.number_of(name) for name in found]
        return 1 + max((number for number in numbers if number is not None), default=-1)


def _same(sha256: str, known: Known) -> None:
    """See that a file read twice is one file, and not the halves of two."""
    if sha256 != known.sha256:
        raise FileChanged("the file was written anew while it was being sealed; nothing was sealed")


def session_of(path: str) -> str:
    """The session that a file below a project folder belongs to, as far as its place says."""
    parts = path.split("/")
    return parts[1].removesuffix(names.SUFFIX) if len(parts) > 1 else parts[0]


class _Label(NamedTuple):
    """What a sidecar says of the why and whence."""

    origin: Origin
    reason: str
    session: str | None = None
    receipt: Receipt | None = None


class _Own(NamedTuple):
    """The bytes that become a generation: a range of an open file."""

    handle: OpenFile
    start: int
    end: int
    kind: str
    base: int | None

    def pieces(self) -> Iterator[bytes]:
        """Those bytes; all of them, or an error."""
        at = self.start
        while at < self.end:
            piece = self.handle.pread(at, min(PIECE, self.end - at))
            if not piece:
                raise FileChanged("the file shrank while it was being sealed; nothing was sealed")
            at += len(piece)
            yield piece


class _Summing:
    """Hashes what passes through: a generation's own bytes, and its whole image."""

    def __init__(self, prefix: hashlib._Hash | None) -> None:
        self.own = hashlib.sha256()
        self.image = hashlib.sha256() if prefix is None else prefix.copy()

    def through(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.own.update(piece)
            self.image.update(piece)
            yield piece


def _feed(hashed: hashlib._Hash, handle: OpenFile, at: int, end: int) -> int:
    """Hash the bytes from `at` to `end`; returns where the file ended."""
    while at < end:
        piece = handle.pread(at, min(PIECE, end - at))
        if not piece:
            break
        hashed.update(piece)
        at += len(piece)
    return at

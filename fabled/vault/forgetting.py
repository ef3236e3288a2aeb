"""Taking what was forgotten out of images: whole lines, everything else byte for byte."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from fabled.errors import AccessDenied, GenerationDamaged, NotFound
from fabled.transcript.identity import pack
from fabled.transcript.reader import Found, Reader
from fabled.vault import names, retention
from fabled.vault.catalogue import strands_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fabled.system import Files, FileStat, OpenFile
    from fabled.vault.catalogue import Strand
    from fabled.vault.store import Vault
    from fabled.vault.tombstones import Tombstones
    from fabled.vault.values import Generation, Origin, Sidecar

DIGEST_BYTES = 8


class Span(NamedTuple):
    """Bytes to leave out."""

    start: int
    end: int


def hidden_spans(handle: OpenFile, tombstones: Tombstones) -> list[Span]:
    """Where a transcript holds forgotten records: their lines, newline included.

    Where a line holds more than one record, only the forgotten one's bytes go. Cost: reads
    and parses the file.
    """
    if not tombstones:
        return []
    handle.seek(0)
    spans: list[Span] = []
    per_line: dict[int, int] = {}
    found: list[tuple[int, Span]] = []
    for item in Reader(handle):
        per_line[item.line] = per_line.get(item.line, 0) + 1
        if isinstance(item, Found) and _buried(handle, item, tombstones):
            found.append((item.line, Span(item.offset, item.offset + item.length)))
    for line, span in found:
        spans.append(_whole_line(handle, span) if per_line[line] == 1 else span)
    handle.seek(0)
    return spans


def _buried(handle: OpenFile, item: Found, tombstones: Tombstones) -> bool:
    uuid = item.envelope.uuid
    if uuid is not None:
        return tombstones.record(pack(uuid), None)
    raw = item.raw if item.raw is not None else handle.pread(item.offset, item.length)
    return tombstones.record(b"", hashlib.sha256(raw).digest()[:DIGEST_BYTES])


def _whole_line(handle: OpenFile, span: Span) -> Span:
    """The span with the newline, carriage return or blanks that end its line."""
    end = span.end
    while True:
        piece = handle.pread(end, 64)
        blank = len(piece) - len(piece.lstrip(b" \t\r"))
        end += blank
        if blank < len(piece):
            return Span(span.start, end + 1 if piece[blank : blank + 1] == b"\n" else end)
        if not piece:
            return Span(span.start, end)


class Without:
    """An `OpenFile` that leaves spans out; the file it wraps stays the caller's.

    Args:
        file: The whole file.
        size: How much of it counts.
        spans: What to leave out, in order.
        stat: What it says of itself; its size is replaced.
    """

    def __init__(self, file: OpenFile, size: int, spans: list[Span], stat: FileStat) -> None:
        edges = [0, *(edge for span in spans for edge in span), size]
        kept = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
        self._file = file
        self._starts = [start for start, _ in kept]
        self._offsets = [0, *accumulate(end - start for start, end in kept)]
        self._stat = stat._replace(size=self._offsets[-1])
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes that are left."""
        return self._offsets[-1]

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes of a range of what is left."""
        found: list[bytes] = []
        end = min(offset + length, self.size)
        while offset < end:
            at = bisect_right(self._offsets, offset) - 1
            most = min(end, self._offsets[at + 1]) - offset
            piece = self._file.pread(self._starts[at] + offset - self._offsets[at], most)
            if not piece:
                break
            found.append(piece)
            offset += len(piece)
        return b"".join(found)

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        data = self.pread(self._at, size)
        self._at += len(data)
        return data

    def seek(self, offset: int, /) -> int:
        """Make the next `read` begin there."""
        self._at = offset
        return offset

    def stat(self) -> FileStat:
        """As given, with the size of what is left."""
        return self._stat

    def close(self) -> None:
        """The wrapped file is not ours to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Unsure(NamedTuple):
    """Files of a live file's lineage that nobody can look into, and why."""

    path: str
    why: str


def unsure(vault: Vault, files: Files, origin: Origin) -> list[Unsure]:
    """What keeps a thread from being taken out of a lineage with certainty.

    Damaged generations, tails that continue nothing, and data without a readable sidecar:
    each may hold the words that are to be forgotten. Cost: reads every image.
    """
    lineage = vault.catalogue.lineage(origin)
    reached = {one.data_path for strand in strands_of(lineage) for one in strand.chain}
    found = [Unsure(g.data_path, "is damaged") for g in lineage if not vault.intact(g)]
    found += [
        Unsure(g.data_path, "continues a generation that is missing")
        for g in lineage
        if g.data_path not in reached
    ]
    ours = {one.data_path for one in vault.catalogue.folder(names.folder_of(origin.path))[0]}
    folder = f"{vault.root}/{names.folder_of(origin.path)}"
    for entry in files.scan(folder) if files.stat(folder) is not None else ():
        if names.read_data_name(entry.name) is not None and entry.path not in ours:
            found.append(Unsure(entry.path, "has no readable sidecar"))
    return found


class Progress(Protocol):
    """What a rewriting has to remember over a death.

    Attributes:
        label: The reason given to what is written anew; no other rewriting has the same.
    """

    label: str

    @property
    def doomed(self) -> Collection[int] | None:
        """Numbers to destroy; None until all that takes their place is written."""

    def mark(self, doomed: Collection[int]) -> None:
        """Everything is written: these are to go. Durable when it returns."""


class Rewritten(NamedTuple):
    """How many generations were replaced, and which of the others could not be looked into."""

    replaced: int
    unsure: tuple[Unsure, ...]


def rewrite(
    vault: Vault, files: Files, origin: Origin, tombstones: Tombstones, progress: Progress
) -> Rewritten:
    """Replace a live file's generations by ones without what was forgotten.

    First every strand from the oldest spoilt one on is written anew and verified, in the
    old order, so that the newest stays the newest; then the old ones are destroyed. Doing
    it again after a crash ends in the same state.

    Raises:
        DiskFull: The old generations are all still there.
    """
    doubts: list[Unsure] = []
    if progress.doomed is None:
        progress.mark(_write_anew(vault, files, origin, tombstones, progress.label, doubts))
    doomed = set(progress.doomed or ())
    gone = [one for one in vault.catalogue.lineage(origin) if one.card.number in doomed]
    destroy(vault, files, gone)
    return Rewritten(len(gone), tuple(doubts))


def _write_anew(
    vault: Vault,
    files: Files,
    origin: Origin,
    tombstones: Tombstones,
    label: str,
    doubts: list[Unsure],
) -> list[int]:
    """Write what takes the place of the spoilt strands; returns the numbers that may go then."""
    lineage = vault.catalogue.lineage(origin)
    destroy(vault, files, [one for one in lineage if one.card.reason == label])  # a crash's
    strands = sorted(strands_of(vault.catalogue.lineage(origin)), key=lambda s: s.head.card.number)
    held = {s.path: _spans_of(vault, s, tombstones, doubts) for s in strands}
    again = _from_the_oldest(
        [s for s in strands if held[s.path] is not None], [s for s in strands if held[s.path]]
    )
    for strand in again:
        head = strand.head
        with vault.image(head) as image:
            stat = image.stat()._replace(mtime_ns=head.card.mtime_ns, mode=head.card.mode)
            rest = Without(image, head.end, held[strand.path] or [], stat)
            vault.write_anew(head, rest, rest.size, label)
    return [one.card.number for s in again for one in retention.own(s)]


def _spans_of(
    vault: Vault, strand: Strand, tombstones: Tombstones, doubts: list[Unsure]
) -> list[Span] | None:
    """What is to go from a strand's image; None when it cannot be read."""
    try:
        with vault.image(strand.head) as image:
            return hidden_spans(image, tombstones)
    except (NotFound, AccessDenied, GenerationDamaged) as fault:
        doubts.append(Unsure(strand.head.data_path, fault.message))
        return None


def _from_the_oldest(strands: list[Strand], spoilt: list[Strand]) -> list[Strand]:
    if not spoilt:
        return []
    oldest = spoilt[0].head.card.number
    doomed = {one.card.number for strand in spoilt for one in strand.chain}
    return [
        s
        for s in strands
        if s.head.card.number >= oldest or any(one.card.number in doomed for one in s.chain)
    ]


def destroy(vault: Vault, files: Files, generations: list[Generation]) -> None:
    """Remove generations for good, newest first; of imported ones only what we know of them."""
    for one in sorted(generations, key=lambda g: -g.card.number):
        folder = f"{vault.root}/{one.folder}"
        if one.card.imported:
            _drop_import(vault, files, one)
            continue
        files.remove(f"{folder}/{names.card_name(one.card.number, one.card.kind)}")
        files.sync_folder(folder)  # data without sidecar is no generation; the reverse is damage
        files.remove(one.data_path)
        files.sync_folder(folder)
        vault.catalogue.refresh(one.folder)
        _remove_empty(vault, files, folder)


def _remove_empty(vault: Vault, files: Files, folder: str) -> None:
    while folder != vault.root and files.remove_folder(folder):
        folder = folder.rpartition("/")[0]


def destroy_rest(vault: Vault, files: Files, relative: str) -> list[str]:
    """After all generations of a folder's files: what damage left of them, there and below.

    Files whose owner cannot be told go too, unless another live file keeps its generations
    in the same folder.

    Returns:
        Paths that were left alone for that reason.
    """
    folder = f"{vault.root}/{relative}"
    if files.stat(folder) is None:
        return []
    left: list[str] = []
    alone = not vault.catalogue.folder(relative).generations
    for entry in files.scan(folder):
        if entry.kind == "dir":
            left += destroy_rest(vault, files, f"{relative}/{entry.name}")
        elif names.number_of(entry.name) is None:
            continue
        elif alone:
            files.remove(entry.path)
            files.sync_folder(folder)
        elif not _accounted(vault, relative, entry.path):
            left.append(entry.path)
    vault.catalogue.refresh(relative)
    _remove_empty(vault, files, folder)
    return left


def _accounted(vault: Vault, relative: str, path: str) -> bool:
    """Whether a file is the data or the sidecar of a generation that is known."""
    return any(
        path in (one.data_path, f"{vault.root}/{one.folder}/{_card_of(one)}")
        for one in vault.catalogue.folder(relative).generations
    )


def _card_of(one: Generation) -> str:
    return names.card_name(one.card.number, one.card.kind)


def _drop_import(vault: Vault, files: Files, one: Generation) -> None:
    folder = f"{vault.root}/{names.IMPORTS}"
    for entry in files.scan(folder):
        known = vault.catalogue.card_at(entry.path)
        if known is not None and f"{known.root}/{known.path}" == one.data_path:
            files.remove(entry.path)
            files.sync_folder(folder)
    vault.catalogue.refresh_imports()


def purge_trash(vault: Vault, files: Files, relative: str, mine: Callable[[Sidecar], bool]) -> None:
    """Remove for good what was moved out of one folder of the Vault into the trash before.

    Args:
        vault: The Vault.
        files: The file system.
        relative: The folder, relative to the Vault.
        mine: Whether a sidecar is of what is being forgotten. Data without one goes unless
            another live file has generations in that folder.
    """
    trash = f"{vault.root}/{names.TRASH}"
    kept = vault.catalogue.folder(relative).generations
    alone = all(mine(one.card) for one in kept)
    for entry in files.scan(trash) if files.stat(trash) is not None else ():
        inner = f"{entry.path}/{relative}"
        if files.stat(inner) is None:
            continue
        found = {old.name: old.path for old in files.scan(inner) if old.kind == "file"}
        cards = [card for path in found.values() if (card := vault.catalogue.card_at(path))]
        ours = {name for card in cards if mine(card) for name in _names_of(card)}
        others = {name for card in cards if not mine(card) for name in _names_of(card)}
        for name, path in found.items():
            if name not in others and (alone or name in ours):
                files.remove(path)
        files.remove_folder(inner)


def _names_of(card: Sidecar) -> tuple[str, str]:
    data = names.data_name(card.number, card.kind, card.path, card.compression)
    return data, names.card_name(card.number, card.kind)

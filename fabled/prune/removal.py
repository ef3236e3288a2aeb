"""Taking whole records out of a live transcript: what `forget --live` asks for.

Not a prune: nothing is judged, everything named goes, and the rest keeps its bytes but
for a link. It passes the same gate and the same door.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fabled.errors import PruneDeclined
from fabled.prune import chain, splice
from fabled.prune.facts import PIECE, Fact, facts
from fabled.prune.values import Edit, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.prune.values import Source

_PARENT = re.compile(rb'"(parentUuid|leafUuid)"\s*:\s*(?:"[^"]*"|null)')


def removal(
    source: Source, size: int, key: bytes, doomed: Callable[[str | None, bytes], bool]
) -> Plan:
    """The edits that take records out; whoever hung below one hangs below what is left.

    Args:
        source: The transcript.
        size: Bytes of it that count: whole lines only.
        key: The home's sentinel key.
        doomed: Given a record's uuid and its bytes, whether it goes.

    Raises:
        PruneDeclined: It cannot be done without touching what stays.
    """
    found = facts(source, size, key)
    records = found.records
    if chain.cyclic(records):
        raise PruneDeclined("its records hang below each other in a circle; it is left alone")
    places = chain.by_uuid(records)
    gone = {
        at
        for at, fact in enumerate(records)
        if doomed(fact.uuid, source.pread(fact.offset, fact.length))
    }
    edits: list[Edit] = []
    for at, fact in enumerate(records):
        if at in gone:
            edits.append(_line(source, size, fact))
            continue
        for member, target in (("parentUuid", fact.parent), ("leafUuid", fact.link)):
            if places.get(target or "") in gone:
                new = _above(records, places, gone, places[target or ""])
                edits.append(_linked(source, fact, member, new))
    left = {fact.uuid for at, fact in enumerate(records) if at not in gone}
    evicted = {records[at].uuid for at in gone} - left - {None}
    saved = sum(edit.length - len(edit.data) for edit in edits)
    return Plan(size, tuple(edits), (), frozenset(map(str, evicted)), size - saved)


def _line(source: Source, size: int, fact: Fact) -> Edit:
    before = source.pread(fact.offset - 1, 1) if fact.offset else b"\n"
    end = fact.offset + fact.length
    after = source.pread(end, min(64, size - end))
    blank = len(after) - len(after.lstrip(b" \t\r"))
    if not fact.alone or before != b"\n" or after[blank : blank + 1] != b"\n":
        raise PruneDeclined("a record to be removed shares its line with another; it is left alone")
    return Edit(fact.offset, fact.length + blank + 1, b"")


def _linked(source: Source, fact: Fact, member: str, new: str | None) -> Edit:
    raw = source.pread(fact.offset, fact.length)
    cut = splice.value(raw, member, new, "links") if fact.alone else None
    if cut is None:
        raise PruneDeclined("a link to a record to be removed cannot be made anew; left alone")
    return Edit(fact.offset + cut.start, cut.end - cut.start, cut.data)


def _above(records: list[Fact], places: dict[str, int], gone: set[int], at: int) -> str | None:
    while at in gone:
        up = records[at].parent
        above = places.get(up or "")
        if above is None:
            return up
        at = above
    return records[at].uuid


def faults(
    before: Source, size: int, after: Source, after_size: int, doomed: Callable[[bytes], bool]
) -> list[str]:
    """Compare both images line by line, without the plan: the rest is there, links apart."""
    old = (line for line in _lines(before, size) if not doomed(line))
    new = list(_lines(after, after_size))
    for at, line in enumerate(old):
        if at >= len(new) or _PARENT.sub(b"", line) != _PARENT.sub(b"", new[at]):
            return [f"line {at} of the new image is not the one that was there"]
    return []


def _lines(source: Source, size: int) -> Iterator[bytes]:
    rest, at = b"", 0
    while at < size:
        piece = source.pread(at, min(PIECE, size - at))
        if not piece:
            break
        at += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest

"""The last compact boundary: what before it is still alive, and whether the rest may go.

Source: the client's behaviour, measured: several boundaries, only the last one counts; its
compactMetadata names records before it (preservedMessages, preservedSegment) that the
client hangs below the summary again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.prune import chain
from fabled.prune.rules import API_REQUESTS, BOUNDARY_CLEARED
from fabled.transcript.tolerant import decode_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabled.prune.facts import Fact
    from fabled.prune.values import Source

TRANSCRIPT = frozenset({"user", "assistant", "system", "attachment", "progress"})
SNAPSHOT = "attachment:prompt_snapshot"


class _Messages(msgspec.Struct, gc=False, rename="camel"):
    anchor_uuid: str | None = None
    uuids: msgspec.Raw = msgspec.Raw()
    all_uuids: msgspec.Raw = msgspec.Raw()


class _Segment(msgspec.Struct, gc=False, rename="camel"):
    head_uuid: str | None = None
    anchor_uuid: str | None = None
    tail_uuid: str | None = None


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    preserved_messages: msgspec.Raw = msgspec.Raw()
    preserved_segment: msgspec.Raw = msgspec.Raw()


class _Boundary(msgspec.Struct, gc=False, rename="camel"):
    compact_metadata: msgspec.Raw = msgspec.Raw()


class Wall(NamedTuple):
    """The last boundary: its place, and the uuids before it that are live context."""

    at: int
    preserved: frozenset[str]


def last(records: Sequence[Fact], places: dict[str, int], source: Source) -> Wall | None:
    """The last boundary of an image; None when there is none, or it cannot be read."""
    for at in range(len(records) - 1, -1, -1):
        fact = records[at]
        if fact.boundary and not fact.side:
            if not fact.alone:
                return None
            raw = source.pread(fact.offset, fact.length)
            return Wall(at, frozenset(_preserved(raw, records, places)))
    return None


def _preserved(raw: bytes, records: Sequence[Fact], places: dict[str, int]) -> set[str]:
    boundary = decode_as(raw, _Boundary)
    metadata = decode_as(boundary.compact_metadata, _Metadata) if boundary else None
    if metadata is None:
        return set()
    named: set[str] = set()
    messages = decode_as(metadata.preserved_messages, _Messages)
    if messages is not None:
        named |= {messages.anchor_uuid or "", *_strings(messages.uuids)}
        named |= set(_strings(messages.all_uuids))
    segment = decode_as(metadata.preserved_segment, _Segment)
    if segment is not None:
        named |= {segment.head_uuid or "", segment.anchor_uuid or "", segment.tail_uuid or ""}
        tail = places.get(segment.tail_uuid or "")
        for at in chain.walk(records, places, tail) if tail is not None else ():
            named.add(records[at].uuid or "")
            if records[at].uuid == segment.head_uuid:
                break
    return named - {""}


def _strings(raw: msgspec.Raw) -> list[str]:
    try:
        value = msgspec.json.decode(raw) if bytes(raw) else []
    except msgspec.DecodeError:
        return []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def may_clear(records: Sequence[Fact], places: dict[str, int], wall: Wall) -> bool:
    """Whether nothing alive is reached through what stands before the wall.

    The resumed chain passes the wall, and no record behind it hangs below one before it,
    other than a preserved one.
    """
    start = chain.leaf(records, places)
    if start is None or start < wall.at:
        return False
    if wall.at not in chain.walk(records, places, start):
        return False
    for fact in records[wall.at + 1 :]:
        above = places.get(fact.parent or "")
        if above is not None and above < wall.at and fact.parent not in wall.preserved:
            return False
    return True


def cleared(records: Sequence[Fact], wall: Wall) -> list[int]:
    """The records before the wall that may go, whatever else they are."""
    snapshots = [at for at, fact in enumerate(records) if fact.kind == SNAPSHOT]
    newest = snapshots[-1] if snapshots else None
    found: list[int] = []
    for at, fact in enumerate(records[: wall.at]):
        if fact.uuid is not None:
            goes = fact.type in TRANSCRIPT and fact.uuid not in wall.preserved and at != newest
        else:
            goes = fact.type in BOUNDARY_CLEARED or fact.type in API_REQUESTS
        if goes:
            found.append(at)
    return found

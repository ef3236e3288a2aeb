"""What a plan and a check need to know of each record: ids, links, kind; no words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.model import Damage
from fabled.transcript.envelope import Message
from fabled.transcript.reader import Found, Reader
from fabled.transcript.records import understand
from fabled.transcript.tolerant import decode_as
from fabled.transcript.veil import Veil

if TYPE_CHECKING:
    from fabled.prune.values import Source
    from fabled.transcript.envelope import Envelope

PIECE = 1 << 20
CHAIN = frozenset({"user", "assistant", "system", "attachment", "progress"})
TALK = frozenset({"user", "assistant"})


class Fact(NamedTuple):
    """One record.

    Attributes:
        alone: The only thing on its line, and held in memory: it may be edited or dropped.
        kind: Its type; attachments and system records with their sub-type after a colon.
        link: leafUuid, where it has one.
        prompt: A person typed it, by the rule of thread placement.
    """

    offset: int
    length: int
    alone: bool
    kind: str
    uuid: str | None
    parent: str | None
    logical: str | None
    link: str | None
    message: str | None
    session: str | None
    timestamp: str | None
    side: bool
    summary: bool
    prompt: bool
    explicit: bool

    @property
    def type(self) -> str:
        """The record's type alone."""
        return self.kind.partition(":")[0]

    @property
    def boundary(self) -> bool:
        """It is a wall that a compaction put up."""
        return self.kind == "system:compact_boundary"


class Facts(NamedTuple):
    """An image: its records and damage in file order, and whether damage ends it."""

    records: list[Fact]
    damage: list[Damage]
    damaged_tail: bool


class Window:
    """The first `size` bytes of a source, for the reader."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._size = size
        self._at = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes."""
        data = self._source.pread(self._at, min(size, self._size - self._at))
        self._at += len(data)
        return data


class _Attachment(msgspec.Struct, gc=False):
    type: str | None = None


def facts(source: Source, size: int, key: bytes) -> Facts:
    """Read an image. Cost: decodes every record's outer members once."""
    records: list[Fact] = []
    damage: list[Damage] = []
    lines: dict[int, int] = {}
    tail = False
    for item in Reader(Window(source, size)):
        lines[item.line] = lines.get(item.line, 0) + 1
        tail = isinstance(item, Damage)
        if isinstance(item, Damage):
            damage.append(item)
        else:
            records.append(_fact(item, key))
            if lines[item.line] > 1:
                records[-1] = records[-1]._replace(alone=False)
        if lines[item.line] == 2:
            _together(records, item)
    return Facts(records, damage, tail)


def _together(records: list[Fact], item: Found | Damage) -> None:
    """The record before it stands on the same line."""
    at = len(records) - (2 if isinstance(item, Found) else 1)
    if at >= 0 and records[at].offset < item.offset:
        records[at] = records[at]._replace(alone=False)


def _fact(found: Found, key: bytes) -> Fact:
    envelope = found.envelope
    message = decode_as(envelope.message, Message) if envelope.type in TALK else None
    return Fact(
        offset=found.offset,
        length=found.length,
        alone=found.raw is not None and not found.tail,
        kind=_kind(envelope),
        uuid=envelope.uuid,
        parent=envelope.parent_uuid,
        logical=envelope.logical_parent_uuid,
        link=envelope.leaf_uuid,
        message=None if message is None else message.id,
        session=envelope.session_id,
        timestamp=envelope.timestamp,
        side=envelope.is_sidechain is True,
        summary=envelope.is_compact_summary is True,
        prompt=_prompt(found, key),
        explicit=envelope.type == "last-prompt" and b'"explicit"' in (found.raw or b""),
    )


def _kind(envelope: Envelope) -> str:
    kind = envelope.type or "unknown"
    if kind == "attachment":
        attachment = decode_as(envelope.attachment, _Attachment)
        return f"{kind}:{attachment.type if attachment else None}"
    return f"{kind}:{envelope.subtype}" if kind == "system" else kind


def _prompt(found: Found, key: bytes) -> bool:
    envelope = found.envelope
    if envelope.type != "user" or envelope.is_sidechain is True:
        return False
    if b'"tool_result"' in (found.raw or b""):  # most user records: spares decoding them
        return False
    return understand(envelope, found.offset, Veil(key, redact=False)).node.is_prompt

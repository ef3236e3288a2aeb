"""A thread's records as a conversation: which are on the canonical chain, which beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.recall.verbatim import envelope, read
from fabled.transcript.envelope import Message
from fabled.transcript.text import RESULT, TOOL, Part, spoken
from fabled.transcript.tolerant import decode_as

if TYPE_CHECKING:
    from fabled.model import Pointer
    from fabled.system import Opener

HOLD = 32 << 20
"""Longer records are shown by their marker only; `block` gives them whole."""

MAIN, BRANCH, SIDECHAIN = "main", "branch", "sidechain"
_TALK = frozenset({"user", "assistant", "summary", "queue-operation"})


class Turn(NamedTuple):
    """One record of a conversation.

    Attributes:
        lane: main, branch (an edit that the conversation did not go on from) or sidechain.
        agent: The subagent's id on a sidechain.
        parts: What it says; None for a record too long to be held.
    """

    pointer: Pointer
    lane: str
    agent: str
    parts: list[Part] | None


class _Seen(NamedTuple):
    pointer: Pointer
    uuid: str | None
    parent: str | None
    message: str | None
    agent: str
    parts: list[Part] | None

    @property
    def talk(self) -> bool:
        return self.pointer.kind in {"user", "assistant"}


def turns(disk: Opener, pointers: list[Pointer]) -> list[Turn]:
    """The turns of one thread, in the order given, hidden machinery left out.

    Raises:
        StaleIndex: A file changed under a pointer.
        AccessDenied: A file cannot be read.
    """
    seen = [_look(disk, pointer) for pointer in pointers]
    chain = _chain([item for item in seen if not item.pointer.side])
    shown: list[Turn] = []
    for item in seen:
        if not _worth_showing(item):
            continue
        lane = SIDECHAIN if item.pointer.side else MAIN
        if lane == MAIN and item.talk and item.uuid not in chain:
            lane = BRANCH
        shown.append(Turn(item.pointer, lane, item.agent, item.parts))
    return shown


def _look(disk: Opener, pointer: Pointer) -> _Seen:
    if pointer.length > HOLD:
        return _Seen(pointer, pointer.name, None, None, "", None)
    outer = envelope(read(disk, pointer))
    message = decode_as(outer.message, Message) if pointer.kind == "assistant" else None
    parent = outer.parent_uuid or outer.logical_parent_uuid
    said = spoken(outer)
    identity = message.id if message is not None else None
    return _Seen(pointer, outer.uuid, parent, identity, outer.agent_id or "", said.parts)


def _worth_showing(item: _Seen) -> bool:
    if item.parts is None:
        return True
    kind = item.pointer.kind.partition(":")[0]
    return bool(item.parts) and (kind in _TALK or kind in {"attachment", "system"})


def _chain(items: list[_Seen]) -> set[str]:
    """The uuids on the way from the leaf to the thread's first record, with what belongs to them.

    The leaf is the last user or assistant record in file order. Parallel tool calls are
    records of one API message on sibling branches: they and their results belong to it.
    """
    by_uuid = {item.uuid: item for item in items if item.uuid is not None}
    leaf = next((item for item in reversed(items) if item.talk and item.uuid), None)
    chain: set[str] = set()
    here = leaf
    while here is not None and here.uuid is not None and here.uuid not in chain:
        chain.add(here.uuid)
        here = by_uuid.get(here.parent) if here.parent is not None else None
    messages = {by_uuid[uuid].message for uuid in chain} - {None}
    calls: set[str] = set()
    for item in items:
        if item.uuid is not None and (item.uuid in chain or item.message in messages):
            chain.add(item.uuid)
            calls.update(p.tool for p in item.parts or [] if p.kind == TOOL and p.tool)
    for item in items:
        answers = {p.tool for p in item.parts or [] if p.kind == RESULT}
        if item.uuid is not None and answers & calls:
            chain.add(item.uuid)
    return chain

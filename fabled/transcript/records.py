"""One record as the Map keeps it: ids, place in the chain, time, role, text, titles, spawns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from fabled.transcript.identity import clean
from fabled.transcript.text import PROMPT, RESULT, TOOL, Part, Spoken, heading, searchable, spoken
from fabled.transcript.threads import Node
from fabled.transcript.tolerant import decode_as

if TYPE_CHECKING:
    from fabled.transcript.envelope import Envelope
    from fabled.transcript.veil import Veil

TITLE_ORDER = ("custom", "ai", "last_prompt", "summary", "first_prompt")
"""The client's own order of preference for the title of a session."""
TITLE_LOOK = 4096
"""Characters of a prompt that a title is made from."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT_MS = 253_402_300_800_000  # the year 10000: later is damage, not a date
_NOT_PROMPTS = (
    "[Request interrupted by user",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
    "Caveat: The messages below",
)


class Record(msgspec.Struct, gc=False):
    """What the index needs of one record.

    Attributes:
        node: Ids and links, as thread placement sees them.
        kind: The record's `type`, with its sub-type after a colon for system records.
        role: user, assistant, tool (a tool's result), else the record's type.
        ts_ms: UTC epoch milliseconds, None without a readable time stamp.
        side: It is part of a subagent's conversation.
        text: Searchable text; lone surrogates replaced, recalls and secrets left out.
        arcs: Threads whose recalled text it holds.
        tokens: Estimate of what the whole record costs a model: four characters a token.
        title: (kind, text) when the record names its session.
        spawns: Agents this record started: `agent` ids, and `tool:` ids of agent calls.
    """

    node: Node
    kind: str
    role: str
    ts_ms: int | None
    side: bool
    session: str | None
    agent: str | None
    cwd: str | None
    text: str
    arcs: tuple[str, ...]
    tokens: int
    title: tuple[str, str] | None
    spawns: tuple[str, ...]


class _Result(msgspec.Struct, gc=False, rename="camel"):
    agent_id: str | None = None


def understand(envelope: Envelope, offset: int, veil: Veil) -> Record:
    """The record behind an envelope.

    Args:
        envelope: As the reader decoded it.
        offset: Where the record starts in its file.
        veil: What is not indexed.
    """
    said = spoken(envelope)
    prompt = _is_prompt(envelope, said)
    node = Node(
        offset=offset,
        uuid=_id(envelope.uuid),
        parent=_parent(envelope),
        link=_id(envelope.message_id or envelope.leaf_uuid or envelope.snapshot_message_id),
        prompt_id=_id(envelope.prompt_id),
        is_prompt=prompt,
        lane=f"{envelope.is_sidechain is True}:{envelope.agent_id or ''}",
    )
    seen = searchable(said.parts, veil)
    return Record(
        node=node,
        kind=_kind(envelope),
        role=_role(envelope, said),
        ts_ms=_milliseconds(envelope.timestamp),
        side=envelope.is_sidechain is True,
        session=envelope.session_id and clean(envelope.session_id),
        agent=envelope.agent_id,
        cwd=envelope.cwd and clean(envelope.cwd),
        text=clean(seen.text),
        arcs=tuple(clean(arc) for arc in seen.arcs),
        tokens=(said.chars + 3) // 4,
        title=_title(envelope, said, veil, prompt=prompt),
        spawns=tuple(_spawns(envelope, said)),
    )


def _id(text: str | None) -> str | None:
    return clean(text) if text else None


def _kind(envelope: Envelope) -> str:
    kind = clean(envelope.type or "unknown")
    return f"{kind}:{clean(envelope.subtype)}" if envelope.subtype else kind


def _parent(envelope: Envelope) -> str | None:
    if envelope.parent_uuid:
        return clean(envelope.parent_uuid)
    if envelope.subtype == "compact_boundary" and envelope.logical_parent_uuid:
        return clean(envelope.logical_parent_uuid)
    return None


def _role(envelope: Envelope, said: Spoken) -> str:
    if envelope.type == "user" and any(part.kind == RESULT for part in said.parts):
        return "tool"
    return clean(envelope.type or "unknown")


def _is_prompt(envelope: Envelope, said: Spoken) -> bool:
    if envelope.type != "user" or envelope.uuid is None:
        return False
    if envelope.is_meta or envelope.is_compact_summary or envelope.source_tool_use_id:
        return False
    if bytes(envelope.tool_use_result) not in (b"", b"null"):
        return False
    if any(part.kind == RESULT for part in said.parts):
        return False
    return not _first_text(said).startswith(_NOT_PROMPTS)


def _first_text(said: Spoken) -> str:
    return next((part.text for part in said.parts if part.kind == PROMPT), "")


def title_of(envelope: Envelope, said: Spoken, veil: Veil) -> tuple[str, str] | None:
    """(kind, text) when a record gives its session a title; see `TITLE_ORDER`."""
    return _title(envelope, said, veil, prompt=_is_prompt(envelope, said))


def _title(envelope: Envelope, said: Spoken, veil: Veil, *, prompt: bool) -> tuple[str, str] | None:
    named = {
        "custom-title": ("custom", envelope.custom_title),
        "ai-title": ("ai", envelope.ai_title),
        "last-prompt": ("last_prompt", envelope.last_prompt),
        "summary": ("summary", envelope.summary),
    }.get(envelope.type or "")
    if named is None and prompt and envelope.is_sidechain is not True:
        named = ("first_prompt", _first_text(said))
    if named is None or not named[1]:
        return None
    line = heading(clean(veil.look(named[1], TITLE_LOOK).text))
    return (named[0], line) if line else None


def _spawns(envelope: Envelope, said: Spoken) -> list[str]:
    found = [
        f"tool:{part.tool}"
        for part in said.parts
        if part.kind == TOOL and part.tool and _starts_agent(part)
    ]
    for raw in (envelope.tool_use_result, envelope.data):
        # The test by bytes spares decoding the bulk of a transcript: nearly no result has one.
        if b'"agentId"' in bytes(raw):
            result = decode_as(raw, _Result)
            if result is not None and result.agent_id:
                found.append(clean(result.agent_id))
    return found


def _starts_agent(part: Part) -> bool:
    return part.text.split("\n", 1)[0] in {"Task", "Agent"}


def _milliseconds(text: str | None) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ms = int((moment - _EPOCH) / timedelta(milliseconds=1))
    return ms if 0 <= ms < _LIMIT_MS else None

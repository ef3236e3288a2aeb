"""What a card is to whoever writes one: the members, their kinds and limits, and the check."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

import msgspec

from fabled.errors import BadCard
from fabled.model import Card
from fabled.transcript.identity import clean

DECISION, WORKFLOW, INSIGHT, CONCEPT = "decision", "workflow", "insight", "concept"
TYPES = (DECISION, WORKFLOW, INSIGHT, CONCEPT)
SOURCE, MANUAL = "extractive", "manual"
"""Who made a card without a provider."""

_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
_Short = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class Written(msgspec.Struct, forbid_unknown_fields=False):
    """A card as it comes in."""

    title: _Short
    type: Literal["decision", "workflow", "insight", "concept"]
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    topics: Annotated[list[_Short], msgspec.Meta(max_length=12)] = msgspec.field(
        default_factory=list
    )
    decisions: Annotated[list[_Line], msgspec.Meta(max_length=12)] = msgspec.field(
        default_factory=list
    )
    files: Annotated[list[_Line], msgspec.Meta(max_length=40)] = msgspec.field(default_factory=list)
    outcome: Annotated[str, msgspec.Meta(max_length=1000)] = ""


SCHEMA = json.dumps(
    {
        "title": "one line, at most 200 characters",
        "type": "one of: " + ", ".join(TYPES),
        "topics": ["at most 12 short phrases"],
        "decisions": ["at most 12 sentences: what was decided and why; empty when nothing was"],
        "files": ["at most 40 paths that mattered"],
        "outcome": "one or two sentences: how it ended",
        "summary": "two to five sentences, at most 2000 characters",
    },
    indent=1,
)


def read(text: str, source: str, model: str | None) -> Card:
    """A card out of what somebody wrote: one JSON object, with or without words round it.

    Raises:
        BadCard: It is none; the message says which member is wrong.
    """
    found = _OBJECT.search(text)
    if found is None:
        raise BadCard("there is no JSON object in it")
    try:
        written = msgspec.json.decode(found[0].encode("utf-8", "replace"), type=Written)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise BadCard(str(fault)) from fault
    return Card(
        title=_line(written.title),
        type=written.type,
        topics=tuple(map(_line, written.topics)),
        decisions=tuple(map(_line, written.decisions)),
        files=tuple(map(_line, written.files)),
        outcome=_line(written.outcome),
        summary=_line(written.summary),
        source=source,
        model=model,
    )


def _line(text: str) -> str:
    return " ".join(clean(text).split())

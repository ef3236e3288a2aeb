"""A hand-over of a session as Markdown: what somebody needs to go on, and how to ask more.

Words are verbatim, cut where they are long, with the command that shows the rest;
decisions and open ends are picked out by plain rules and labelled so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from fabled.map import queries
from fabled.recall.dates import iso
from fabled.recall.verbatim import envelope, read
from fabled.transcript.sentences import decisions
from fabled.transcript.sentinel import neutral
from fabled.transcript.text import PROMPT, REPLY, heading, spoken
from fabled.transcript.touched import blocks, calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.map.db import Snapshot
    from fabled.map.sessions import SessionRow
    from fabled.model import Pointer
    from fabled.system import Opener
    from fabled.transcript.envelope import Block
    from fabled.transcript.touched import Todo
    from fabled.transcript.veil import Veil

LAST_EACH_WAY = 3
LONG = 1500
MOST_FILES, MOST_DECISIONS, MOST_PROMPTS = 40, 12, 12
LONG_RECORD = 4 << 20
_MORE = """## To recall more

    fablectl session {session}
    fablectl search --session {session} WORDS
    fablectl block UUID"""
_STRUCTURE = re.compile(r"^(\s*)([#>`~|=+*-]|\d+[.)])", re.MULTILINE)


class _Said(NamedTuple):
    pointer: Pointer
    kind: str
    text: str


class _Seen(NamedTuple):
    said: list[_Said]
    files: dict[str, bool]
    todos: list[Todo]
    calls: dict[str, str]


def handoff(snapshot: Snapshot, disk: Opener, row: SessionRow, veil: Veil) -> str:
    """The hand-over. Cost: reads the session's main records once.

    Raises:
        StaleIndex: A file changed under a pointer.
        AccessDenied: A file cannot be read.
    """
    seen = _look(disk, queries.session_records(snapshot, row.id), veil)
    parts = [
        f"# Hand-over: {_inline(row.title or 'Untitled session')}",
        _facts(row),
        *_messages(seen),
        *_files(seen),
        *_decisions(seen),
        *_ends(seen),
        _MORE.format(session=_inline(row.session)),
    ]
    return neutral("\n\n".join(parts)) + "\n"


def _facts(row: SessionRow) -> str:
    first, last = iso(row.first_ms) or "unknown", iso(row.last_ms) or "unknown"
    return (
        f"Session `{_inline(row.session)}` in `{_inline(row.project or '?')}`, {first} to {last},"
        f" {row.records} records, {row.threads} threads."
    )


def _look(disk: Opener, pointers: Iterable[Pointer], veil: Veil) -> _Seen:
    seen = _Seen([], {}, [], {})
    for pointer in pointers:
        if pointer.side or pointer.length > LONG_RECORD or pointer.role not in _ROLES:
            continue
        record = envelope(read(disk, pointer))
        for part in spoken(record).parts:
            if part.kind in {PROMPT, REPLY} and part.text.strip():
                seen.said.append(_Said(pointer, part.kind, veil.text(part.text)))
        _take(seen, blocks(record))
    return seen


_ROLES = frozenset({"user", "assistant", "tool"})


def _take(seen: _Seen, found: list[Block]) -> None:
    for block in found:
        if block.type == "tool_result":
            seen.calls.pop(block.tool_use_id or "", None)
    for call in calls(found):
        seen.calls[call.id] = call.name
        for path, wrote in call.touched:
            seen.files[path] = seen.files.get(path, False) or wrote
        if call.todos is not None:
            seen.todos[:] = call.todos


def _messages(seen: _Seen) -> list[str]:
    prompts = [one for one in seen.said if one.kind == PROMPT]
    replies = [one for one in seen.said if one.kind == REPLY]
    parts: list[str] = []
    if len(prompts) > LAST_EACH_WAY:
        asked = prompts[:-LAST_EACH_WAY][-MOST_PROMPTS:]
        lines = [f"- {_inline(heading(one.text))}" for one in asked]
        parts.append("## Asked before\n\n" + "\n".join(lines))
    shown = {id(one) for one in [*prompts[-LAST_EACH_WAY:], *replies[-LAST_EACH_WAY:]]}
    latest = [one for one in seen.said if id(one) in shown]
    if latest:
        parts.append("## Last messages\n\n" + "\n\n".join(map(_quoted, latest)))
    return parts


def _quoted(one: _Said) -> str:
    """A message as a quotation: no line of it can be anything else."""
    text = one.text.strip()
    cut = "" if len(text) <= LONG else f"\n> [truncated - fablectl block {one.pointer.name}]"
    lines = "\n".join(f"> {line}".rstrip() for line in text[:LONG].splitlines())
    who = "User" if one.kind == PROMPT else "Assistant"
    return f"{who} ({iso(one.pointer.ts_ms) or 'no time'}):\n\n{lines}{cut}"


def _files(seen: _Seen) -> list[str]:
    if not seen.files:
        return []
    changed = [path for path, wrote in seen.files.items() if wrote]
    looked = [path for path, wrote in seen.files.items() if not wrote]
    lines = [f"- changed `{_inline(path)}`" for path in changed[-MOST_FILES:]]
    lines += [f"- read `{_inline(path)}`" for path in looked[-MOST_FILES:]]
    return ["## Files touched\n\n" + "\n".join(lines)]


def _decisions(seen: _Seen) -> list[str]:
    found: list[str] = []
    for one in seen.said:
        if one.kind != REPLY:
            continue
        found += [
            f"- {_inline(sentence)} (`{one.pointer.name}`)" for sentence in decisions(one.text)
        ]
    if not found:
        return []
    note = "Picked out by their words; the records say more."
    return [f"## Decisions\n\n{note}\n\n" + "\n".join(found[-MOST_DECISIONS:])]


def _ends(seen: _Seen) -> list[str]:
    lines = [
        f"- to do ({_inline(todo.status or 'pending')}): {_inline(todo.content or '')}"
        for todo in seen.todos
        if todo.status != "completed"
    ]
    lines += [f"- call of {_inline(name)} without an answer" for name in seen.calls.values()]
    if seen.said and seen.said[-1].kind == PROMPT:
        lines.append("- the last prompt has no answer")
    return ["## Open ends\n\n" + "\n".join(lines)] if lines else []


def _inline(text: str) -> str:
    """One line that is text and no Markdown structure."""
    flat = " ".join(text.split()).replace("`", "'")
    return _STRUCTURE.sub(r"\1\\\2", flat)[:600]

"""Exact cuts inside a record's bytes: nothing outside a cut changes, nothing gets longer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from fabled.transcript.sentinel import consulted, strip
from fabled.transcript.shallow import Member, scan_array, scan_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULT_OVER = 1000
"""A tool result of at most so many bytes stays."""

INPUT_OVER = 1000
INPUT_HEAD = 300
_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_SPAN = re.compile(
    rb'<historical_context session=\\"[^"\\<>]*\\" arcs=\\"[^"\\<>]*\\" sig=\\"[0-9a-f]{32}\\"'
    rb'(?: marks=\\"[0-9a-f.]*\\")?>'
)
_CLOSE = b"</historical_context>"
_THINKING = frozenset({"thinking", "redacted_thinking"})
_PICTURES = frozenset({"image", "document"})
_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


class Splice(NamedTuple):
    """Bytes `start` to `end` of a record become `data`, on account of a rule."""

    start: int
    end: int
    data: bytes
    rule: str


class Block(NamedTuple):
    """One content block: its span and its members by key."""

    start: int
    end: int
    members: dict[str, Member]

    def text(self, raw: bytes, key: str) -> str | None:
        """A member that is a string."""
        member = self.members.get(key)
        if member is None or raw[member.start : member.start + 1] != b'"':
            return None
        return decoded(raw[member.start : member.end])


def decoded(token: bytes) -> str:
    """What a JSON string token says."""
    return str(json.loads(token.decode("utf-8", "surrogateescape")))


def members(raw: bytes, start: int = 0) -> dict[str, Member]:
    """The members of an object by key, the last of each; empty when it is no object."""
    scanned = scan_object(raw, start)
    return {} if scanned is None else {member.key: member for member in scanned.members}


def without(raw: bytes, keys: Sequence[str], rule: str) -> list[Splice]:
    """Take these members out of the record, with the comma that goes with each."""
    scanned = scan_object(raw)
    if scanned is None:
        return []
    found = scanned.members
    gone = {at for at, member in enumerate(found) if member.key in keys}
    if len(gone) == len(found):
        return []
    cuts: list[Splice] = []
    for at in sorted(gone):
        first = all(earlier in gone for earlier in range(at))
        if first:  # what is cut reaches to the next member's key
            comma = _COMMA.match(raw, found[at].end)
            begin = cuts[-1].end if cuts else raw.index(b'"')
            cuts.append(Splice(begin, comma.end() if comma else found[at].end, b"", rule))
        else:
            cuts.append(Splice(found[at - 1].end, found[at].end, b"", rule))
    return cuts


def value(raw: bytes, key: str, new: str | None, rule: str) -> Splice | None:
    """Give a member of the record another string, or null; None when that would be longer."""
    member = members(raw).get(key)
    data = b"null" if new is None else json.dumps(new).encode()
    if member is None or len(data) > member.end - member.start:
        return None
    return Splice(member.start, member.end, data, rule)


def content(raw: bytes) -> Member | None:
    """Where the message's content is."""
    message = members(raw).get("message")
    return None if message is None else members(raw, message.start).get("content")


def blocks(raw: bytes, where: Member) -> list[Block]:
    """The content blocks of a message or a tool result; none when its content is a string."""
    items = scan_array(raw, where.start)
    if items is None:
        return []
    return [Block(start, end, members(raw, start)) for start, end in items.spans]


def thinking(raw: bytes) -> tuple[int, int]:
    """How many of the message's blocks are thinking, and how many there are."""
    where = content(raw)
    found = blocks(raw, where) if where is not None else []
    return sum(block.text(raw, "type") in _THINKING for block in found), len(found)


def without_thinking(raw: bytes) -> list[Splice]:
    """Take thinking blocks out of a message that has others as well."""
    where = content(raw)
    found = blocks(raw, where) if where is not None else []
    gone = [block.text(raw, "type") in _THINKING for block in found]
    cuts: list[Splice] = []
    for at, block in enumerate(found):
        if not gone[at]:
            continue
        if all(gone[:at]):
            end = found[at + 1].start if at + 1 < len(found) else block.end
            cuts.append(Splice(block.start, end, b"", "thinking"))
        else:
            cuts.append(Splice(found[at - 1].end, block.end, b"", "thinking"))
    return cuts


def lean(raw: bytes, name: str, key: bytes) -> Iterator[Splice]:
    """Shorten results, inputs, images and recalled text of one record.

    Args:
        raw: The record.
        name: What `fablectl block` is to be asked for.
        key: The home's sentinel key.
    """
    where = content(raw)
    if where is None:
        return
    found = blocks(raw, where)
    if not found:
        yield from _recalled(raw, where.start, where.end, key)
        return
    for block in found:
        kind = block.text(raw, "type")
        if kind == "tool_result":
            yield from _result(raw, block, name, key)
        elif kind == "tool_use" and "input" in block.members:
            yield from _inputs(raw, block.members["input"], name)
        elif kind in _PICTURES:
            yield from _picture(raw, block, str(kind), name)
        elif kind == "text" and "text" in block.members:
            text = block.members["text"]
            yield from _recalled(raw, text.start, text.end, key)


def _shorter(start: int, end: int, text: str, rule: str) -> Iterator[Splice]:
    data = json.dumps(text).encode()
    if len(data) < end - start:
        yield Splice(start, end, data, rule)


def _result(raw: bytes, block: Block, name: str, key: bytes) -> Iterator[Splice]:
    body = block.members.get("content")
    if body is None:
        return
    inner = blocks(raw, body)
    if any(one.text(raw, "type") == "tool_reference" for one in inner):
        return
    text = block.text(raw, "content")
    if (text or "").startswith("<persisted-output>"):
        return  # it names the file that has the whole
    if body.end - body.start > RESULT_OVER:
        size = len(text) if text is not None else body.end - body.start
        note = f"[tool result pruned, {size} characters: fablectl block {name}]"
        arcs = [tag for _, _, tag in _spans(raw, body.start, body.end, key)]
        rule = "recalled" if arcs else "tool-result"
        yield from _shorter(body.start, body.end, " ".join([note, *arcs]), rule)
        return
    for one in inner:
        if one.text(raw, "type") in _PICTURES:
            yield from _picture(raw, one, str(one.text(raw, "type")), name)


def _picture(raw: bytes, block: Block, kind: str, name: str) -> Iterator[Splice]:
    source = block.members.get("source")
    inner = members(raw, source.start) if source is not None else {}
    held = Block(0, 0, inner)
    data = inner.get("data")
    size = 0 if data is None else (data.end - data.start - 2) * 3 // 4
    about = held.text(raw, "media_type") or kind
    note = f"[{kind} pruned, {about}, {size} bytes: fablectl block {name}]"
    new = json.dumps({"type": "text", "text": note}, separators=(",", ":")).encode()
    if len(new) < block.end - block.start:
        yield Splice(block.start, block.end, new, "image")


def _inputs(raw: bytes, where: Member, name: str) -> Iterator[Splice]:
    """Every long string inside a tool's input, any depth."""
    waiting = [(where.start, where.end)]
    while waiting:
        start, end = waiting.pop()
        opening = raw[start : start + 1]
        if opening == b'"':
            if end - start > INPUT_OVER:
                yield from _cut(raw, start, end, name)
        elif opening == b"{":
            scanned = scan_object(raw, start)
            waiting += [(m.start, m.end) for m in scanned.members] if scanned else []
        elif opening == b"[":
            items = scan_array(raw, start)
            waiting += items.spans if items else []


def _cut(raw: bytes, start: int, end: int, name: str) -> Iterator[Splice]:
    at = start + 1
    while at - start < INPUT_HEAD:
        at += _unit(raw, at)
    rest = json.dumps(f" [{end - at - 1} bytes pruned: fablectl block {name}]").encode()[1:]
    if len(rest) < end - at:
        yield Splice(at, end, rest, "tool-input")


def _unit(raw: bytes, at: int) -> int:
    """Bytes of the character that begins there: an escape, a pair of them, or UTF-8."""
    if raw[at] == ord("\\"):
        if _SURROGATE.match(raw, at):
            return 12
        return 6 if raw[at + 1] == ord("u") else 2
    size = 1
    while raw[at + size] & 0xC0 == 0x80:
        size += 1
    return size


def _spans(raw: bytes, start: int, end: int, key: bytes) -> Iterator[tuple[int, int, str]]:
    """Signed spans inside string tokens, and the tag that keeps what they cited."""
    done = start
    for opening in _SPAN.finditer(raw, start, end):
        if opening.start() < done:
            continue
        close = raw.find(_CLOSE, opening.end(), end)
        if close < 0:
            return
        stop = close + len(_CLOSE)
        piece = raw[opening.start() : stop]
        if b'"' in piece.replace(b'\\"', b""):
            continue  # it reaches into another string
        stripped = strip(decoded(b'"' + piece + b'"'), key)
        if stripped.text == "":
            done = stop
            yield opening.start(), stop, consulted(stripped.arcs)


def _recalled(raw: bytes, start: int, end: int, key: bytes) -> Iterator[Splice]:
    for begin, stop, tag in _spans(raw, start, end, key):
        data = json.dumps(tag).encode()[1:-1]
        if len(data) < stop - begin:
            yield Splice(begin, stop, data, "recalled")

"""What a record says, as text: what a person or a model wrote or ran.

Prompts, replies, thinking, tool inputs and the head of tool results; never images,
never what is a copy of something indexed elsewhere (progress, `toolUseResult`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.transcript.envelope import Block, Envelope, Message
from fabled.transcript.tolerant import decode_as, decode_list, decode_text
from fabled.transcript.veil import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.transcript.veil import Veil

RESULT_HEAD = 4096
"""Characters of one tool result that are searchable; `block` shows them all."""

INPUT_HEAD = 65536
"""Characters of one tool input's value that are searchable."""

# Base64 of anything: no words to find, and one such run would outweigh a whole thread.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{200,}={0,2}")

HEADING_CHARS = 200
_COMMAND_NAME = re.compile(r"<command-name>([^<]*)</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>([^<]*)</command-args>")

PROMPT, REPLY, THINKING, TOOL, RESULT, NOTE = (
    "prompt",
    "reply",
    "thinking",
    "tool",
    "result",
    "note",
)


_LIMITS = {RESULT: RESULT_HEAD, TOOL: INPUT_HEAD}


class Part(NamedTuple):
    """One piece of a record: its kind, its text, and a tool's id or name where it has one."""

    kind: str
    text: str
    tool: str = ""


class Spoken(NamedTuple):
    """A record's parts and the characters it holds in all, tool results in full length."""

    parts: list[Part]
    chars: int


def spoken(envelope: Envelope) -> Spoken:
    """The parts of one record in order. Cost: decodes the message's text, never its images."""
    kind = envelope.type
    if kind in {"user", "assistant"}:
        message = decode_as(envelope.message, Message)
        return _message(message, REPLY if kind == "assistant" else PROMPT) if message else _NOTHING
    parts = [part for part in _other(envelope) if part.text]
    return Spoken(parts, sum(len(part.text) for part in parts))


_NOTHING = Spoken([], 0)


def _other(envelope: Envelope) -> Iterator[Part]:
    kind = envelope.type
    if kind == "system":
        yield Part(NOTE, decode_text(envelope.content) or "")
    elif kind == "queue-operation":
        yield Part(PROMPT, decode_text(envelope.content) or "")
    elif kind == "attachment":
        yield from _queued(envelope)
    elif kind == "summary":
        yield Part(NOTE, envelope.summary or "")
    elif kind == "custom-title":
        yield Part(NOTE, envelope.custom_title or "")
    elif kind == "ai-title":
        yield Part(NOTE, envelope.ai_title or "")


class _Attachment(msgspec.Struct, gc=False):
    type: str | None = None
    prompt: msgspec.Raw = msgspec.Raw()


def _queued(envelope: Envelope) -> Iterator[Part]:
    attachment = decode_as(envelope.attachment, _Attachment)
    if attachment is None or attachment.type != "queued_command":
        return  # the other attachments are the client's own words, or files
    text = decode_text(attachment.prompt)
    if text is not None:
        yield Part(PROMPT, text)
        return
    for block in decode_list(attachment.prompt, Block) or []:
        yield Part(PROMPT, block.text or "")


def _message(message: Message, kind: str) -> Spoken:
    text = decode_text(message.content)
    if text is not None:
        return Spoken([Part(kind, text)] if text else [], len(text))
    parts: list[Part] = []
    chars = 0
    for block in decode_list(message.content, Block) or []:
        part, size = _block(block, kind)
        if part is not None:
            parts.append(part)
        chars += size
    return Spoken(parts, chars)


def _block(block: Block, kind: str) -> tuple[Part | None, int]:
    if block.type == "tool_result":
        text, size = _result(block)
        return Part(RESULT, text, block.tool_use_id or ""), size
    if block.type in {"tool_use", "server_tool_use"}:
        text = "\n".join(filter(None, [block.name or "", *_inputs(block.input)]))
        return Part(TOOL, text, block.id or ""), len(bytes(block.input))
    if block.thinking:
        return Part(THINKING, block.thinking), len(block.thinking)
    if block.text:
        return Part(kind, block.text), len(block.text)
    return None, 0


def _result(block: Block) -> tuple[str, int]:
    text = decode_text(block.content)
    if text is not None:
        return text, len(text)
    inner = [item.text for item in decode_list(block.content, Block) or [] if item.text]
    joined = "\n".join(inner)
    return joined, len(joined)


def _inputs(raw: msgspec.Raw) -> Iterator[str]:
    """Every string inside a tool's input, keys apart, in order; iterative, any depth."""
    try:
        value = msgspec.json.decode(raw) if bytes(raw) else None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = bytes(raw).decode("utf-8", "replace")
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))


def heading(text: str) -> str:
    """The first words of a prompt on one line, `HEADING_CHARS` at most.

    A slash command, which the client writes as tags, is shown as it was typed.
    """
    name = _COMMAND_NAME.search(text, 0, HEADING_CHARS * 10)
    if name is not None:
        arguments = _COMMAND_ARGUMENTS.search(text)
        text = f"{name[1]} {arguments[1] if arguments else ''}"
    return " ".join(text[: HEADING_CHARS * 10].split())[:HEADING_CHARS]


def searchable(parts: list[Part], veil: Veil) -> Seen:
    """The parts as one text for the index: results by their head, base64 left out.

    Returns:
        The text, and the arcs that recalls in the parts cited.
    """
    pieces = [veil.look(part.text, _LIMITS.get(part.kind)) for part in parts]
    text = "\n".join(piece.text for piece in pieces)
    arcs = tuple(dict.fromkeys(arc for piece in pieces for arc in piece.arcs))
    return Seen(_BASE64.sub(" ", text) if len(text) > 200 else text, arcs)

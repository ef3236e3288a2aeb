"""Which files a message's tool calls looked at or changed, and what they are to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.transcript.envelope import Block, Message
from fabled.transcript.tolerant import decode_as, decode_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.transcript.envelope import Envelope

_PATH_KEYS = ("file_path", "notebook_path", "path")
_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_LOOKS_AROUND = frozenset({"Glob", "Grep", "LS"})


class Todo(msgspec.Struct, gc=False):
    """One item of the client's own list."""

    content: str | None = None
    status: str | None = None


class _Input(msgspec.Struct, gc=False):
    file_path: str | None = None
    notebook_path: str | None = None
    path: str | None = None
    todos: msgspec.Raw = msgspec.Raw()


class Touched(NamedTuple):
    """A path a tool call named, and whether it was to change it."""

    path: str
    wrote: bool


class Call(NamedTuple):
    """One tool call of a message."""

    id: str
    name: str
    touched: tuple[Touched, ...]
    todos: list[Todo] | None


def blocks(envelope: Envelope) -> list[Block]:
    """The content blocks of a record's message."""
    message = decode_as(envelope.message, Message)
    return (decode_list(message.content, Block) or []) if message is not None else []


def calls(found: list[Block]) -> Iterator[Call]:
    """The tool calls among some blocks."""
    for block in found:
        if block.type != "tool_use":
            continue
        name = block.name or "?"
        given = decode_as(block.input, _Input)
        paths = [getattr(given, key) for key in _PATH_KEYS] if given is not None else []
        wanted = [path for path in paths if path and name not in _LOOKS_AROUND]
        todos = None
        if name == "TodoWrite" and given is not None:
            todos = decode_list(given.todos, Todo) or []
        touched = tuple(Touched(path, name in _WRITES) for path in wanted)
        yield Call(block.id or "", name, touched, todos)

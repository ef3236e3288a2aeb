"""The fields of one record that fabled looks at; everything bulky stays raw bytes.

Field names are the client's own (measured in its versions 1.0.0 to 2.1.237). Every
field may be absent or null, and none may be trusted to have the expected type:
`fabled.transcript.tolerant` fills the same structs from values of any shape.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw


class Envelope(msgspec.Struct, gc=False, rename="camel"):
    """One record's outer members. `Raw` members hold JSON text, not yet validated as to type."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    prompt_id: str | None = None
    message_id: str | None = None
    leaf_uuid: str | None = None
    snapshot_message_id: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    agent_id: str | None = None
    source_tool_use_id: str | None = msgspec.field(default=None, name="sourceToolUseID")
    cwd: str | None = None
    version: str | None = None
    operation: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    last_prompt: str | None = None
    summary: str | None = None
    message: Raw = Raw()
    content: Raw = Raw()
    data: Raw = Raw()
    attachment: Raw = Raw()
    tool_use_result: Raw = Raw()


class Message(msgspec.Struct, gc=False):
    """The API message inside a user or assistant record."""

    id: str | None = None
    role: str | None = None
    model: str | None = None
    content: Raw = Raw()


class Block(msgspec.Struct, gc=False):
    """One content block of a message; `source` (images) is never even named."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None
    input: Raw = Raw()
    content: Raw = Raw()

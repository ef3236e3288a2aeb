"""Small transcripts made of real-looking records."""

from __future__ import annotations

import json
import uuid

NAMESPACE = uuid.UUID("6f9f3c1e-0000-4000-8000-000000000000")


def uid(name):
    """A canonical uuid for a short name, the same every time."""
    return str(uuid.uuid5(NAMESPACE, name))


def line(value):
    """One record as the client writes it: compact JSON and a newline."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def record(kind, name, parent=None, *, text="", at=0, session="s1", **more):
    """A user or assistant record with a canonical uuid."""
    content = text if kind == "user" else [{"type": "text", "text": text}]
    return {
        "parentUuid": uid(parent) if parent else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/me/project",
        "sessionId": session,
        "version": "2.1.30",
        "type": kind,
        "message": {"role": kind, "content": content, **more.pop("message", {})},
        "uuid": uid(name),
        "timestamp": f"2026-11-01T10:{at // 60:02d}:{at % 60:02d}.000Z",
        **more,
    }


def prompt(name, parent=None, text="", **more):
    """What a person typed, as a line."""
    return line(record("user", name, parent, text=text, **more))


def reply(name, parent, text="", **more):
    """What the model answered, as a line."""
    return line(record("assistant", name, parent, text=text, **more))


def tool_call(name, parent, tool_id, command, tool="Bash", **more):
    """A tool call, as a line."""
    value = record("assistant", name, parent, **more)
    value["message"]["content"] = [
        {"type": "tool_use", "id": tool_id, "name": tool, "input": {"command": command}}
    ]
    return line(value)


def tool_result(name, parent, tool_id, output, **more):
    """A tool's result, as a line."""
    value = record("user", name, parent, **more)
    value["message"]["content"] = [
        {"type": "tool_result", "tool_use_id": tool_id, "content": output}
    ]
    value["toolUseResult"] = more.get("result", {"stdout": output})
    return line(value)

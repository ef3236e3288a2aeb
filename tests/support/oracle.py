"""What a transcript holds, by the slow and obvious way: the counting rules, literally.

Shares no code with the reader it judges.
"""

from __future__ import annotations

import json

DECODER = json.JSONDecoder()


def objects(data):
    """Every JSON object of a file: (offset, bytes, value), in file order."""
    at = 0
    if data.startswith(b"\xef\xbb\xbf"):
        at = 3
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield from _line(data[at:end], at)
        at = end + 1


def _line(line, offset):
    text = line.decode("utf-8", "surrogateescape")
    at = 0
    while at < len(text):
        if text[at] in " \t\r\0":
            at += 1
            continue
        try:
            value, end = DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            at = _next_record(text, at)
            continue
        except RecursionError:
            value, end = {}, len(text)
        if isinstance(value, dict):
            start = len(text[:at].encode("utf-8", "surrogateescape"))
            raw = text[at:end].encode("utf-8", "surrogateescape")
            yield offset + start, raw, value
        at = end


def _next_record(text, at):
    for candidate in range(at + 1, len(text)):
        if text[candidate] == "{":
            try:
                value, _ = DECODER.raw_decode(text, candidate)
            except json.JSONDecodeError:
                continue
            if isinstance(value, dict) and "type" in value:
                return candidate
    return len(text)


def longest_copies(paths):
    """By uuid the bytes of its longest copy, ties to the first path, then the first offset."""
    best: dict[str, bytes] = {}
    for path in sorted(paths, key=lambda path: str(path).encode()):
        for _, raw, value in objects(path.read_bytes()):
            uuid = value.get("uuid")
            if isinstance(uuid, str) and uuid and len(raw) > len(best.get(uuid, b"")):
                best[uuid] = raw
    return best


def transcripts(root):
    """The files below a projects folder that are transcripts."""
    found = []
    for path in root.rglob("*.jsonl"):
        parts = path.relative_to(root).parts
        if len(parts) == 2 or (parts[-1].startswith("agent-") and "subagents" in parts):
            found.append(path)
    return found

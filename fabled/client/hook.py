"""What the client's hooks run: tell the daemon, in a moment or not at all.

    python -I -m fabled.client.hook < EVENT.json

It never fails the client: whatever goes wrong, it ends with status 0 and says nothing. It
imports little and waits for little, because the client waits for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from fabled import config

WAIT_S = 0.05
"""How long the daemon may take; it works on afterwards."""

LIMIT = 1 << 20


def main() -> int:
    """Pass one event on; the exit status is always 0."""
    try:
        event = json.loads(sys.stdin.buffer.read(LIMIT) or b"{}")
        told = _tell(event) if isinstance(event, dict) else ""
        if told:
            name = str(event.get("hook_event_name"))
            said = {"hookEventName": name, "additionalContext": told}
            sys.stdout.write(json.dumps({"hookSpecificOutput": said}) + "\n")
            sys.stdout.flush()
    except Exception:  # noqa: BLE001, S110 - a hook that fails would stop the client's user
        pass
    return 0


def _tell(event: dict[str, Any]) -> str:
    given = {
        "event": event.get("hook_event_name"),
        "path": event.get("transcript_path"),
        "session": event.get("session_id"),
    }
    query = "&".join(f"{name}={_encoded(str(value))}" for name, value in given.items() if value)
    head = f"POST /v1/hook?{query} HTTP/1.1\r\nHost: fabled\r\nFabled-Protocol: 1\r\n"
    head += "Connection: close\r\nContent-Length: 0\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(WAIT_S)
        sock.connect(_socket())
        sock.sendall(head.encode("ascii"))
        raw = b""
        while piece := sock.recv(65536):
            raw += piece
    body = raw.partition(b"\r\n\r\n")[2]
    return str(json.loads(body).get("text") or "")


def _encoded(text: str) -> str:
    # Every byte, so that nothing has to be imported that knows which ones need it.
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))


def _socket() -> str:
    return os.fspath(config.places(config.environment()).socket)


if __name__ == "__main__":
    sys.exit(main())

"""A real client on a leash: a program that does what it is told, a JSON line at a time.

    drive.py REALCLIENT_FOLDER CLIENT ROOT

ROOT/home is the home of the client, which sees it as /home/dev; who stands outside of the
namespaces finds the transcripts in ROOT/home/.claude/projects. Commands come on standard
input, one reply to each goes to standard output.

    {"do": "turn", "prompt": P, "steps": [...], "args": [...]}    one process, one prompt
    {"do": "open"}, {"do": "say", "prompt": P, "steps": [...]}, {"do": "close"}    one that lives

Replies: {"rc", "session", "sent"}; `sent` is the messages array that reached the API.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


class Leash:
    """One sandbox, and at most one process that lives in it."""

    def __init__(self, runner, client, root):
        self._runner = runner
        self._box = runner.Sandbox(client, root=root)
        runner.fill_project(self._box)
        self._stream: Any = None

    def turn(self, order):
        """A process for one prompt."""
        args = order.get("args", [])
        done = self._box.turn(order["prompt"], order.get("steps"), *args, timeout=300)
        return {"rc": done.rc, "session": done.session, "err": done.err[-2000:], **self._sent()}

    def open(self, order):
        """A process that lives until it is closed."""
        self._stream = self._runner.Stream(self._box, *order.get("args", []))
        return {"pid": self._stream.p.pid}

    def say(self, order):
        """A prompt to the one that lives."""
        done = self._stream.turn(order["prompt"], order.get("steps"), timeout=300)
        rc = 0 if done and not done.get("is_error") else 1
        return {"rc": rc, "session": self._stream.session, **self._sent()}

    def close(self, _order):
        """Let the one that lives end."""
        self._stream.close()
        return {"rc": self._stream.p.returncode}

    def _sent(self):
        return {"sent": self._box.last_messages()}

    def end(self):
        """Clear away what the sandbox made, but for its files."""
        self._box.__exit__()


def main():
    """Serve until standard input ends."""
    folder, client, root = sys.argv[1:]
    sys.path.insert(0, folder)
    os.environ["REALCLIENT_BIN"] = client
    runner = importlib.import_module("run_session")
    runner.ensure_netns()
    leash = Leash(runner, client, root)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(leash, order["do"])(order)), flush=True)
    leash.end()


if __name__ == "__main__":
    main()

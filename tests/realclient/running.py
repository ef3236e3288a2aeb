"""Real clients as a test sees them: one on a leash, and one that compares many transcripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import SHARED
from tests.realclient import clients

HERE = Path(__file__).parent
REALCLIENT = SHARED / "realclient"
_NO_NAMESPACES = {"REALCLIENT_NO_NS": "1"}
_LOOPBACK = ("unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")


def cannot(version):
    """Why nothing can be tested with this version; None when it can."""
    if not (REALCLIENT / "run_session.py").is_file():
        return "needs ../shared/realclient, which is not part of the project"
    return clients.cannot_run_version(version)


def _command(program, version, *more):
    client = clients.program(version)
    return [sys.executable, str(HERE / program), str(REALCLIENT), str(client), *map(str, more)]


def _environment(scratch):
    """Nothing of the user's own: the programs that run a client get a home of the test's."""
    scratch.mkdir(parents=True, exist_ok=True)
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, "HOME": str(scratch), "TMPDIR": str(scratch)}


def compare(version, pairs, scratch):
    """Resume all of `pairs` in this version; its verdicts by path. See compare_all.py."""
    out = scratch / "verdicts.json"
    done = subprocess.run(
        _command("compare_all.py", version, out),
        input=json.dumps([[str(path) for path in row] for row in pairs]),
        env=_environment(scratch),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {Path(verdict["other"]): verdict for verdict in json.loads(out.read_text())}


class RealClient:
    """A client in namespaces of its own; its home lies in `root`, and can be seen from outside.

    With `shared_paths` only its network is its own: paths mean the same inside and outside.
    """

    def __init__(self, version, root, *, shared_paths=False):
        self.root = Path(root)
        self.root.mkdir(parents=True)
        self.projects = self.root / "home" / ".claude" / "projects"
        self.session = None
        self.version = version
        with (self.root / "log").open("wb") as log:
            self._process: Any = subprocess.Popen(
                [*(_LOOPBACK if shared_paths else ()), *_command("drive.py", version, self.root)],
                env=_environment(self.root / "scratch") | (_NO_NAMESPACES if shared_paths else {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _ask(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (self.root / "log").read_text()
        answer = json.loads(line)
        self.session = answer.get("session") or self.session
        return answer

    def turn(self, prompt, steps=None, *args):
        """One process for one prompt; the messages it sent last."""
        answer = self._ask(do="turn", prompt=prompt, steps=steps, args=args)
        assert answer["rc"] == 0, answer
        return answer["sent"]

    def resume(self, prompt, steps=None):
        """The same session once more, in a process of its own."""
        return self.turn(prompt, steps, "--resume", self.session)

    def open(self, *args):
        """Start a process that lives; its pid."""
        return self._ask(do="open", args=args)["pid"]

    def say(self, prompt, steps=None):
        """A prompt to the process that lives; the messages it sent last."""
        answer = self._ask(do="say", prompt=prompt, steps=steps)
        assert answer["rc"] == 0, answer
        return answer["sent"]

    def close_stream(self):
        """Let the process that lives end."""
        return self._ask(do="close")["rc"]

    @property
    def transcript(self):
        """The present session's file, seen from outside."""
        (found,) = self.projects.glob(f"*/{self.session}.jsonl")
        return found

    def end(self):
        """Let everything end."""
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def words(messages):
    """Who said what, in order, without what the client adds by itself."""
    said = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            text = block.get("text", "")
            if block["type"] == "text" and not text.startswith("<system-reminder>"):
                said.append((message["role"], text))
    return said


def results(messages):
    """The tool results that were sent, in order."""
    return [
        block["content"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]

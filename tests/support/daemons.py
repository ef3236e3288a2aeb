"""A real daemon in a process of its own, on scratch folders, and ways to ask it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.support.http_socket import ask
from tests.support.waiting import until

PROGRAM = [sys.executable, "-m", "fabled.daemon.main"]
CLIENT = [sys.executable, "-m", "fabled.client.main"]


class Daemon:
    """Starts at once; `socket` answers when the constructor returns, unless told not to wait."""

    def __init__(self, folder, *roots, options=(), launch=(), wait=True, **environment):
        self.folder = Path(folder)
        self.launch = launch
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = self.folder / "home"
        self.log = self.folder / "log"
        self.environment = {
            **os.environ,
            "HOME": str(self.folder),
            "CLAUDE_CONFIG_DIR": str(self.folder / "claude"),
            "FABLED_HOME": str(self.home),
            "FABLED_PROJECTS": os.pathsep.join(str(root) for root in roots),
            "PYTHONWARNINGS": "error",
            **environment,
        }
        self.socket = str(self.home / "run" / "fabled.sock")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*launch, *PROGRAM, *options], env=self.environment, stderr=log, stdout=log
            )
        if wait:
            until(self.answers)

    def answers(self):
        """Whether the socket answers; fails when the process has ended instead."""
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            return ask(self.socket, "/v1/status").status == 200

    def get(self, target, **query):
        """One reply; `query` becomes parameters."""
        return ask(self.socket, target + ("?" + urlencode(query) if query else ""))

    def json(self, target, **query):
        """The JSON of a reply that must be good."""
        reply = self.get(target, **query)
        assert reply.status == 200, reply.body
        return reply.json()

    def status(self):
        return self.json("/v1/status")

    def search(self, text, **query):
        return self.json("/v1/search", q=text, **query)

    def block(self, name):
        return self.get("/v1/blocks/" + quote(name, safe=""))

    def index(self, **query):
        """Ask for a pass and wait for its end; the last line."""
        target = "/v1/index?" + urlencode({"wait": 1, **query})
        reply = ask(self.socket, target, method="POST")
        return json.loads(reply.body.splitlines()[-1])

    def idle(self):
        """Wait until nothing is pending; the status then."""
        return until(lambda: (s := self.status())["state"] == "idle" and s, 60)

    def client(self, *command, **more):
        """`fablectl` as a process."""
        return subprocess.run(
            [*self.launch, *CLIENT, *command],
            env=self.environment,
            capture_output=True,
            check=False,
            timeout=60,
            **more,
        )

    def events(self):
        """What it logged, line by line."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def stop(self):
        """Ask it to end; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self):
        """As the power cut does."""
        self.process.kill()
        self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

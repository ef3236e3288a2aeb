"""A daemon that says what a test tells it to, on a real Unix socket.

The one double of the client's tests: the real daemon cannot be made to lie, to break
off or to speak another protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import socketserver
import subprocess
import sys
import termios
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

CLIENT = [sys.executable, "-m", "fabled.client.main"]
SIGNED = "Fabled-Protocol: 1"


class Asked(NamedTuple):
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]


class Stub:
    """What it was asked is in `asked`; what it answers, in `script`, whole replies by pieces."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: Callable[[Asked], Iterable[bytes]] = lambda _: []
        self.gate = threading.Event()

    def says(self, *pieces: bytes) -> None:
        """Answer every request with these bytes."""
        self.script = lambda _: pieces

    def answers(self, value: Any, **more: Any) -> None:
        """Answer every request with this JSON."""
        self.says(reply(json.dumps(value, ensure_ascii=False).encode(), **more))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = False
    request_queue_size = 16

    def __init__(self, path: str, stub: Stub) -> None:
        self.stub = stub
        super().__init__(path, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is what some tests are about."""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        line = self.rfile.readline().decode("latin-1").split()
        headers = {}
        while (head := self.rfile.readline().decode("latin-1").strip()) != "":
            name, _, value = head.partition(":")
            headers[name.lower()] = value.strip()
        asked = Asked(line[0], line[1], headers)
        self.server.stub.asked.append(asked)
        for piece in self.server.stub.script(asked):
            self.wfile.write(piece)
            self.wfile.flush()


def reply(body: bytes = b"", *head: str, status: int = 200, length: bool = True) -> bytes:
    """A reply with the protocol's header, and a length unless told not to."""
    lines = [f"HTTP/1.1 {status} X", *(head or (SIGNED,))]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*pieces: bytes) -> Iterator[bytes]:
    """The same body in chunks, the head first, each chunk on its own."""
    yield f"HTTP/1.1 200 OK\r\n{SIGNED}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    for piece in pieces:
        yield b"%x;note=1\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\nTrailer: x\r\n\r\n"


def error(code: str, message: str = "it went wrong", hint: str = "Do better.") -> dict[str, Any]:
    """The JSON of an error."""
    return {"error": {"code": code, "message": message, "hint": hint}}


@contextlib.contextmanager
def stubbed(path: Path) -> Iterator[Stub]:
    """A stub on that socket until the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stub = Stub()
    with _Server(str(path), stub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stub
        finally:
            stub.gate.set()
            server.shutdown()
            thread.join(20)


def fablectl(*arguments: str | bytes, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the client as a process, away from any terminal."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", **more.pop("env", {})}
    return subprocess.run(
        [*CLIENT, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=more.pop("stdout", subprocess.PIPE),
        stderr=more.pop("stderr", subprocess.PIPE),
        check=False,
        timeout=50,
        **more,
    )


class OnTerminal:
    """The client on a terminal of its own; `text()` waits for its end.

    Args:
        columns: The terminal's width.
    """

    def __init__(self, *arguments: str, columns: int = 80, **environment: str) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, columns))
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST  # bytes as the client writes them
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONWARNINGS": "error", **environment}
        env.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [*CLIENT, *arguments], env=env, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self.seen = b""

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        os.close(self._master)

    def read(self) -> bytes:
        """What came next; nothing at the end."""
        ready, _, _ = select.select([self._master], [], [], 20)
        assert ready, f"the client is silent; so far: {self.seen!r}"
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # Linux says EIO when the other end was closed
            piece = b""
        self.seen += piece
        return piece

    def until(self, wanted: bytes) -> None:
        """Wait for these bytes."""
        while wanted not in self.seen:
            assert self.read(), f"the client ended; it said: {self.seen!r}"

    def text(self) -> str:
        """Everything it showed."""
        while self.read():
            pass
        self.process.wait(20)
        return self.seen.decode()


def on_terminal(*arguments: str, columns: int = 80, **environment: str) -> tuple[int, str]:
    """Run the client on a terminal: its exit status and all that was shown."""
    with OnTerminal(*arguments, columns=columns, **environment) as client:
        text = client.text()
        return client.process.returncode, text

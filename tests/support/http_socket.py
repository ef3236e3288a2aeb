"""A real server on a real Unix socket, and a client that can misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.daemon.endpoint import bind, unbind
from fabled.daemon.httpd import Limits, serve
from fabled.system import real

if TYPE_CHECKING:
    from collections.abc import Iterator


class Reply(NamedTuple):
    """One parsed HTTP reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def error(self) -> tuple[int, str]:
        """HTTP status and error code of an error reply."""
        return self.status, self.json()["error"]["code"]


class Running:
    """A server in a thread of its own."""

    def __init__(self, path: str, app: Any, limits: Limits) -> None:
        self.path = path
        self.endpoint = bind(path, real().files)
        self.stop = asyncio.Event()
        self.abort = asyncio.Event()
        self._app = app
        self._limits = limits
        self._up = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self._up.wait(20)

    def _run(self) -> None:
        with contextlib.closing(self.loop):
            self.loop.run_until_complete(
                serve(
                    self._app,
                    self.endpoint.socket,
                    stop=self.stop,
                    abort=self.abort,
                    started=self._up.set,
                    limits=self._limits,
                )
            )

    def tell(self, event: asyncio.Event) -> None:
        """Set one of the server's events from here."""
        self.loop.call_soon_threadsafe(event.set)

    def end(self) -> None:
        """Drain, and remove the socket."""
        if self.thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it ended between the two
                self.tell(self.stop)
        self.thread.join(30)
        assert not self.thread.is_alive()
        unbind(self.endpoint, real().files)


@contextlib.contextmanager
def serving(folder: Any, app: Any, **limits: Any) -> Iterator[Running]:
    """Serve the ASGI application at `folder`/s until the block ends."""
    running = Running(f"{folder}/s", app, Limits(**limits))
    try:
        yield running
    finally:
        running.end()


@contextlib.contextmanager
def connected(path: str) -> Iterator[socket.socket]:
    """A connection whose waits end after 20 s."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)
        client.settimeout(20)
        yield client


def read_all(client: socket.socket) -> bytes:
    """Everything until the server closes; a reset counts as closed."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def parse(raw: bytes) -> Reply:
    """The one reply in these bytes; chunked bodies are joined."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        joined = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            joined += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]
        body = joined
    return Reply(int(status.split(" ")[1]), headers, body)


def ask(path: str, target: str = "/", *lines: str, method: str = "GET", body: bytes = b"") -> Reply:
    """One request on a connection of its own."""
    head = [f"{method} {target} HTTP/1.1", "Host: fabled", "Connection: close", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    with connected(path) as client:
        client.sendall("\r\n".join([*head, "", ""]).encode() + body)
        return parse(read_all(client))

"""One HTTP/1.1 request over the daemon's Unix socket, by hand: an import costs more than it."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_from_bytes

from fabled import config
from fabled.errors import (
    DaemonBusy,
    DaemonUnreachable,
    InternalError,
    ProtocolMismatch,
    RequestTooLarge,
    from_wire,
)
from fabled.protocol import PROTOCOL, PROTOCOL_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import click

CONNECT_S = 2.0
REPLY_S = 60.0
LONGEST_TARGET = 60 << 10
"""The daemon reads 64 KiB of request line and headers."""

_CHUNK = 1 << 16


class Reply:
    """A reply whose head was read; the body comes as it is asked for. A context manager.

    Attributes:
        status: The HTTP status.
        headers: Names in lower case.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.status, self.headers = self._head()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(_CHUNK)
        except TimeoutError:
            raise DaemonBusy(f"the daemon has not answered for {REPLY_S:.0f} s") from None
        except ConnectionResetError:
            raise DaemonUnreachable("the daemon broke off the connection") from None

    def _head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._rest:
            data = self._receive()
            if not data:
                raise DaemonUnreachable("the daemon closed the connection without an answer")
            self._rest += data
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[1].isdigit():
            raise InternalError(f"what answers on the socket is no daemon of ours: {first[:60]!r}")
        pairs = (line.partition(":") for line in lines)
        return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives.

        Raises:
            DaemonUnreachable: It ended before it was complete.
        """
        if self.headers.get("transfer-encoding") == "chunked":
            yield from self._chunked()
            return
        length = int(self.headers.get("content-length", "-1"))
        seen = 0
        data = self._rest
        while True:
            if data:
                seen += len(data)
                yield data
            if seen == length:
                return
            data = self._receive()
            if not data:
                if length >= 0:
                    raise _cut_short()
                return

    def _chunked(self) -> Iterator[bytes]:
        while True:
            size = int(self._line().split(b";")[0] or b"0", 16)
            if size == 0:
                return
            while size:
                if not self._rest:
                    self._more()
                piece, self._rest = self._rest[:size], self._rest[size:]
                size -= len(piece)
                yield piece
            self._line()

    def _line(self) -> bytes:
        while b"\r\n" not in self._rest:
            self._more()
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def _more(self) -> None:
        data = self._receive()
        if not data:
            raise _cut_short()
        self._rest += data

    def lines(self) -> Iterator[bytes]:
        """The body line by line, as it arrives."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def json(self) -> Any:
        """The whole body as JSON."""
        return json.loads(b"".join(self.pieces()))


def _cut_short() -> DaemonUnreachable:
    return DaemonUnreachable("the daemon broke off in the middle of its answer")


class Daemon:
    """The daemon behind a socket path; every method makes one request.

    Args:
        path: The socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """The JSON of one answer.

        Raises:
            FabledError: What the daemon says, or that it does not answer.
        """
        with self.open("GET", path, query) as reply:
            return reply.json()

    def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        patient: bool = False,
    ) -> Reply:
        """One answer, its body not read yet.

        Args:
            method: The HTTP method.
            path: Already quoted.
            query: None values are left out; True is sent as 1.
            patient: Wait for however long the answer takes.
        """
        target = path + _query(query or {})
        if len(target) > LONGEST_TARGET:
            raise RequestTooLarge(f"the question is longer than {LONGEST_TARGET} bytes")
        connection = self._connect()
        try:
            connection.settimeout(None if patient else REPLY_S)
            connection.sendall(
                f"{method} {target} HTTP/1.1\r\nHost: fabled\r\nConnection: close\r\n"
                f"{PROTOCOL_HEADER}: {PROTOCOL}\r\nContent-Length: 0\r\n\r\n".encode("ascii")
            )
            reply = Reply(connection)
            _check(reply)
        except BrokenPipeError:
            connection.close()
            raise DaemonUnreachable("the daemon closed the connection") from None
        except BaseException:
            connection.close()
            raise
        return reply

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(self._path)
        except TimeoutError:
            connection.close()
            raise DaemonBusy(f"the daemon on {self._path} does not take the connection") from None
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            connection.close()
            raise DaemonUnreachable(f"no daemon answers on {self._path}") from None
        except OSError as fault:
            connection.close()
            raise DaemonUnreachable(f"cannot connect to {self._path}: {fault.strerror}") from fault
        return connection


def daemon(ctx: click.Context) -> Daemon:
    """The daemon that this invocation of `fablectl` asks."""
    return Daemon(str(config.places(config.environment(), ctx.find_root().obj).socket))


def segment(text: str) -> str:
    """An id as one part of a path, whatever bytes it holds."""
    return quote_from_bytes(text.encode("utf-8", "surrogateescape"), safe="")


def _query(given: Mapping[str, object]) -> str:
    pairs = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        text = "1" if value is True else str(value)
        pairs.append(f"{quote(name)}={segment(text)}")
    return "?" + "&".join(pairs) if pairs else ""


def _check(reply: Reply) -> None:
    theirs = reply.headers.get(PROTOCOL_HEADER.lower())
    if theirs is None:
        raise InternalError("what answers on the socket is no daemon of ours")
    if theirs != str(PROTOCOL):
        raise ProtocolMismatch(f"the daemon speaks protocol {theirs}, this client {PROTOCOL}")
    if reply.status >= 400:
        raise error(reply.json())


def error(body: Any) -> Exception:
    """The error that a reply, or the last line of a stream, carries."""
    said = body.get("error", {}) if isinstance(body, dict) else {}
    return from_wire(
        str(said.get("code", "")),
        str(said.get("message", "no reason given")),
        str(said.get("hint", "")),
    )

"""One HTTP/1.1 request over a Unix socket, by hand: importing a library costs more than asking.

A reply is read as it arrives, whatever its framing. Every fault of the socket leaves
here as a `FabledError`; nothing here knows what is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
from typing import TYPE_CHECKING

from fabled import __version__
from fabled.errors import (
    AccessDenied,
    DaemonBusy,
    DaemonUnreachable,
    FabledError,
    InternalError,
    ProtocolMismatch,
    RequestTooLarge,
    from_wire,
)
from fabled.protocol import PROTOCOL, PROTOCOL_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CONNECT_S = 2
REPLY_S = 30.0
"""How long the daemon may be silent, before the reply's first byte or within it."""

MAX_TARGET = 64 << 10
"""Longest path with query, percent-encoded."""

_MAX_HEAD = 64 << 10
_PIECE = 64 << 10
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class _Source:
    """The bytes of one connection, in order."""

    def __init__(self, sock: socket.socket, path: Path, wait_s: float | None) -> None:
        self._sock = sock
        self._path = path
        self._wait_s = wait_s
        self._held = b""

    def some(self, most: int = _PIECE) -> bytes:
        """At least one byte and at most `most`; nothing at the end.

        Raises:
            DaemonBusy: Nothing came in time.
        """
        piece, self._held = self._held[:most], self._held[most:]
        return piece or self._receive(min(most, _PIECE))

    def line(self, most: int = _MAX_HEAD) -> bytes:
        """The next line, without its end.

        Raises:
            DaemonUnreachable: The connection ended before the line did.
            ProtocolMismatch: The line is longer than `most`.
        """
        while b"\n" not in self._held:
            if len(self._held) > most:
                raise self.foreign()
            piece = self._receive(_PIECE)
            if not piece:
                raise self.broken_off()
            self._held += piece
        line, _, self._held = self._held.partition(b"\n")
        return line.removesuffix(b"\r")

    def _receive(self, most: int) -> bytes:
        try:
            return self._sock.recv(most)
        except TimeoutError:
            waited = f"{self._wait_s:g} s"
            raise DaemonBusy(f"the daemon was silent for {waited} on {self._path}") from None
        except ConnectionResetError:
            return b""

    def broken_off(self) -> FabledError:
        """The error for a connection that ended too early."""
        return DaemonUnreachable(f"the daemon ended the connection on {self._path} unfinished")

    def foreign(self) -> FabledError:
        """The error for bytes that no fabled sends."""
        return ProtocolMismatch(f"what answers on {self._path} is not a fabled of this protocol")


class Reply:
    """A reply whose head has been read. Its body can be taken once.

    Attributes:
        status: The HTTP status.
        headers: By lower-case name; of several with one name, the last.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        found = _STATUS_LINE.fullmatch(source.line())
        if found is None:
            raise source.foreign()
        self.status = int(found[1])
        self.headers = self._read_head()
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if length is not None and not _LENGTH.fullmatch(length):
            raise source.foreign()
        self._length = None if length is None else int(length)

    def _read_head(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        room = _MAX_HEAD
        while line := self._source.line():
            room -= len(line)
            if room < 0:
                raise self._source.foreign()
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return headers

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives.

        Raises:
            DaemonUnreachable: It ended too early; what was given before is exact.
            DaemonBusy: Nothing came in time.
        """
        if self._chunked:
            yield from self._chunks()
        elif self._length is not None:
            yield from self._exactly(self._length)
        else:
            while piece := self._source.some():
                yield piece

    def _chunks(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            yield from self._exactly(size)
            if self._source.line():
                raise self._source.foreign()
        while self._source.line():
            pass  # trailers say nothing that we ask for

    def _chunk_size(self) -> int:
        found = _CHUNK.fullmatch(self._source.line())
        if found is None:
            raise self._source.foreign()
        return int(found[1], 16)

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            piece = self._source.some(length)
            if not piece:
                raise self._source.broken_off()
            length -= len(piece)
            yield piece

    def body(self) -> bytes:
        """The whole body; raises what `pieces` does."""
        return b"".join(self.pieces())

    def lines(self) -> Iterator[bytes]:
        """The body's lines, each as soon as it is complete; empty ones are left out."""
        held = b""
        for piece in self.pieces():
            *whole, held = (held + piece).split(b"\n")
            yield from filter(None, whole)
        if held:
            yield held


@contextlib.contextmanager
def request(
    path: Path, method: str, target: str, *, wait_s: float | None = REPLY_S, body: bytes = b""
) -> Iterator[Reply]:
    """Ask once, on a connection of its own; the reply is a good one.

    Args:
        path: The socket.
        method: GET, POST or PUT.
        target: Path and query, percent-encoded.
        wait_s: How long the daemon may be silent; None for as long as it lives.
        body: What to send with it; nothing with GET.

    Raises:
        FabledError: The error that the reply carries.
        DaemonUnreachable: Nothing listens, or the connection ended too early.
        DaemonBusy: No answer in time.
        ProtocolMismatch: The answer is of another protocol number, or of something else.
        RequestTooLarge: The target is longer than `MAX_TARGET`; nothing was sent.
    """
    if len(target) > MAX_TARGET:
        raise RequestTooLarge(f"the request is {len(target)} bytes long; {MAX_TARGET} are allowed")
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: fabled\r\nUser-Agent: fablectl/{__version__}\r\n"
        f"{PROTOCOL_HEADER}: {PROTOCOL}\r\nConnection: close\r\n"
        + (f"Content-Length: {len(body)}\r\n" if method != "GET" else "")
        + "\r\n"
    )
    with _connected(path) as sock:
        sock.settimeout(wait_s)
        # A daemon that refuses a request may close before it has read all of it: the reply counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            sock.sendall(head.encode("ascii") + body)
        reply = Reply(_Source(sock, path, wait_s))
        _check_protocol(reply, path)
        if not 200 <= reply.status < 300:
            raise _failure(reply)
        yield reply


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        # A socket with a Python timeout does not wait for room in a full backlog, this one does.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", CONNECT_S, 0))
        try:
            sock.connect(os.fsencode(path))
        except FileNotFoundError:
            raise DaemonUnreachable(f"no daemon is running: there is no socket {path}") from None
        except BlockingIOError:
            raise DaemonBusy(f"the daemon took no connection on {path} in {CONNECT_S} s") from None
        except PermissionError as fault:
            raise AccessDenied(f"cannot connect to {path}: {fault.strerror}") from fault
        except OSError as fault:
            reason = fault.strerror or fault
            raise DaemonUnreachable(f"no daemon answers on {path}: {reason}") from fault
        yield sock


def _check_protocol(reply: Reply, path: Path) -> None:
    spoken = reply.headers.get(PROTOCOL_HEADER.lower())
    if spoken is None:
        raise ProtocolMismatch(f"what answers on {path} does not say which protocol it speaks")
    if spoken != str(PROTOCOL):
        raise ProtocolMismatch(
            f"this fablectl speaks protocol {PROTOCOL}, the daemon on {path} speaks {spoken[:20]}"
        )


def _failure(reply: Reply) -> FabledError:
    try:
        found = error_in(json.loads(reply.body()))
    except ValueError:
        found = None
    return found or InternalError(f"the daemon answered with HTTP status {reply.status}")


def error_in(value: object) -> FabledError | None:
    """The error that a JSON object carries, if it carries one."""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return None
    code, message, hint = (str(error.get(name) or "") for name in ("code", "message", "hint"))
    return from_wire(code, message, hint)

"""HTTP/1.1 on a bound Unix socket: uvicorn, with clients kept from hurting each other.

uvicorn alone trusts its clients: it waits for ever for the rest of a request, and for
ever for a client to read its reply. `Guarded` gives each of these waits an end, admits
only our own user, and makes room for a new connection by closing the quietest one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import h11
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import Server

from fabled.daemon.endpoint import BACKLOG
from fabled.daemon.peers import peer
from fabled.daemon.replies import error_reply
from fabled.errors import DaemonBusy, FabledError, RequestTooLarge, UsageError
from fabled.protocol import PROTOCOL, PROTOCOL_HEADER

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

_LAST_WORDS_S = 1.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost. Seconds, bytes and counts.

    Attributes:
        head_s: From the connection, or from a request's first byte, to the end of its headers.
        body_s: From the end of the headers to the end of the body.
        write_s: How long a client may leave a full reply buffer unread.
        keep_alive_s: How long a connection may stay open between two requests.
        drain_s: How long requests may go on after `stop`.
        head_bytes: Largest request line with headers, as far as it arrives in pieces.
        connections: Open at once; the quietest one without a request makes room for more.
    """

    head_s: float = 10
    body_s: float = 30
    write_s: float = 60
    keep_alive_s: int = 5
    drain_s: int = 10
    head_bytes: int = 64 << 10
    connections: int = 128


@dataclass(slots=True)
class _Gate:
    """What the connections of one server share."""

    limits: Limits
    uid: int
    refused: set[int] = field(default_factory=set)


async def serve(
    app: ASGIApp,
    sock: socket.socket,
    *,
    stop: asyncio.Event,
    abort: asyncio.Event,
    started: Callable[[], None],
    limits: Limits | None = None,
) -> None:
    """Answer requests until told to stop; the socket is closed when this returns.

    Installs no signal handlers: the caller sets the events, from this loop.

    Args:
        app: The ASGI application.
        sock: A bound Unix stream socket; owned from here on.
        stop: Set: take no new connection, finish what runs for at most `drain_s`.
        abort: Set after `stop`: close every connection now.
        started: Called once connections are accepted.
        limits: What one client may cost.
    """
    gate = _Gate(limits or Limits(), os.geteuid())
    server = _Server(_config(app, gate), stop, started)
    breaker = asyncio.create_task(_break_off(server, abort))
    try:
        await server.serve(sockets=[sock])
    finally:
        breaker.cancel()
        sock.close()
        if server.server_state.tasks:  # cancelled a moment ago: each has an answer left to send
            await asyncio.wait(server.server_state.tasks, timeout=_LAST_WORDS_S)
        _hang_up(server)
        await asyncio.sleep(0)  # transports close in the loop's next round


async def _break_off(server: _Server, abort: asyncio.Event) -> None:
    await abort.wait()
    server.force_exit = True
    for task in list(server.server_state.tasks):
        task.cancel()
    _hang_up(server)


def _hang_up(server: _Server) -> None:
    for connection in list(server.server_state.connections):
        cast("Guarded", connection).transport.abort()


def _config(app: ASGIApp, gate: _Gate) -> Config:
    return Config(
        cast("Any", app),
        http=cast("Any", partial(Guarded, gate=gate)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        loop="none",
        workers=1,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=gate.limits.keep_alive_s,
        timeout_graceful_shutdown=gate.limits.drain_s,
        h11_max_incomplete_event_size=gate.limits.head_bytes,
    )


class _Server(Server):
    """uvicorn's server without its signal handlers and its ten wake-ups a second."""

    def __init__(self, config: Config, stop: asyncio.Event, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop
        self._on_start = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self._on_start()
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # asyncio loses a connection that it accepts in the round in which its server closes: it
        # would stay open, unanswered. So accept no more, and let the last ones become ours first.
        loop = asyncio.get_running_loop()
        for listening in sockets or ():
            loop.remove_reader(listening.fileno())
        for _round in range(3):
            await asyncio.sleep(0)
        await super().shutdown(sockets)


class Guarded(H11Protocol):
    """One connection, whose client may be foreign, slow, silent or hostile.

    Attributes:
        heard: When the client last sent something, in the loop's time.
    """

    def __init__(self, *args: Any, gate: _Gate, **named: Any) -> None:
        super().__init__(*args, **named)
        self.heard = self.loop.time()
        self._gate = gate
        self._admitted = False
        self._waiting_for = ""
        self._request_timer: asyncio.TimerHandle | None = None
        self._reply_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, if it is of our user and there is room."""
        super().connection_made(transport)
        # Any byte that the client leaves unread counts as unread, so that its time is limited.
        transport.set_write_buffer_limits(high=0)
        if not self._is_ours(transport):
            transport.abort()
            return
        self._admitted = self._has_room()
        self._watch()

    def _is_ours(self, transport: asyncio.Transport) -> bool:
        who = peer(transport.get_extra_info("socket"))
        if who is None:
            return False
        if who.uid != self._gate.uid and who.uid not in self._gate.refused:
            self._gate.refused.add(who.uid)  # said once: whoever knocks must not fill the log
            _log.warning("connection of another user refused", uid=who.uid, pid=who.pid)
        return who.uid == self._gate.uid

    def _has_room(self) -> bool:
        if len(self.connections) <= self._gate.limits.connections:
            return True
        others = cast("set[Guarded]", self.connections - {self})
        idle = [other for other in others if not other.is_busy]
        if idle:
            quietest = min(idle, key=lambda other: other.heard)
            self.connections.discard(quietest)
            quietest.transport.abort()
        return len(self.connections) <= self._gate.limits.connections

    @property
    def is_busy(self) -> bool:
        """Whether a complete request of this connection is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or self.conn.their_state is h11.SEND_BODY:
            return False
        return not cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its timers."""
        self._request_timer = self._timer(self._request_timer, 0)
        self._reply_timer = self._timer(self._reply_timer, 0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, and judge what is still missing."""
        if self.transport.is_closing():
            return
        if not self._admitted:
            self._answer(DaemonBusy("too many connections are open"))
            return
        self.heard = self.loop.time()
        super().data_received(data)
        self._watch()

    def shutdown(self) -> None:
        """Close when the request that runs, if any, is answered."""
        if not self.transport.is_closing():
            super().shutdown()

    def _watch(self) -> None:
        """Set one deadline for each thing we wait for; more data of it gives no more time."""
        limits = self._gate.limits
        waits = {h11.IDLE: ("head", limits.head_s), h11.SEND_BODY: ("body", limits.body_s)}
        waiting_for, seconds = waits.get(self.conn.their_state, ("", 0.0))
        if waiting_for != self._waiting_for:
            self._waiting_for = waiting_for
            self._request_timer = self._timer(self._request_timer, seconds)

    def _timer(self, former: asyncio.TimerHandle | None, seconds: float) -> Any:
        """Cancel the former timer; close the connection after so many seconds, 0 for never."""
        if former is not None:
            former.cancel()
        return self.loop.call_later(seconds, self.transport.abort) if seconds else None

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        self._reply_timer = self._timer(self._reply_timer, self._gate.limits.write_s)

    def resume_writing(self) -> None:
        """The client has read everything."""
        self._reply_timer = self._timer(self._reply_timer, 0)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with an error of ours; called inside uvicorn's `except`."""
        fault = sys.exc_info()[1]
        if isinstance(fault, h11.RemoteProtocolError) and fault.error_status_hint == 431:
            limit = self._gate.limits.head_bytes
            large = RequestTooLarge(f"request line and headers may have {limit} bytes")
            self._answer(large, status=431)
        else:
            self._answer(UsageError(msg, hint="Speak HTTP/1.1."))

    def _answer(self, fault: FabledError, *, status: int | None = None) -> None:
        """Send a complete error reply if none was begun, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        reply = error_reply(fault, status=status)
        headers = [
            *((name, value) for name, value in reply.raw_headers if name != b"connection"),
            (PROTOCOL_HEADER.encode(), str(PROTOCOL).encode()),
            (b"connection", b"close"),
        ]
        reason = STATUS_PHRASES[reply.status_code]
        head = h11.Response(status_code=reply.status_code, headers=headers, reason=reason)
        for event in (head, h11.Data(data=bytes(reply.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

"""What every reply has in common: the protocol number, and errors as JSON.

`application` wraps routes so that whatever they raise becomes a reply, and no request
can be larger, older or more numerous than the daemon bears.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from typing import TYPE_CHECKING, Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from fabled.errors import (
    DaemonBusy,
    FabledError,
    InternalError,
    NotFound,
    ProtocolMismatch,
    RequestTooLarge,
    UsageError,
)
from fabled.protocol import JSON_TYPE, MAX_BODY_BYTES, PROTOCOL, PROTOCOL_HEADER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_RUNNING = 32
"""Requests that run at once; more wait for `MAX_WAIT_S`, then are told to come back."""

MAX_WAIT_S = 5.0

_HEADER = PROTOCOL_HEADER.lower().encode()
_NUMBER = str(PROTOCOL).encode()
_log = structlog.get_logger(__name__)


def application(
    routes: Sequence[BaseRoute], *, running: int = MAX_RUNNING, wait_s: float = MAX_WAIT_S
) -> Starlette:
    """A starlette application whose every reply, errors included, obeys the interface."""
    return Starlette(
        routes=routes,
        middleware=[Middleware(Envelope, running=running, wait_s=wait_s)],
        exception_handlers={HTTPException: _no_route},
    )


def json_bytes(value: object) -> bytes:
    """JSON in UTF-8; what is no text (bytes of an odd file name) as the escape JSON has for it."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def json_reply(value: object, status: int = 200) -> Response:
    """A reply of one JSON value."""
    return Response(json_bytes(value), status, media_type=JSON_TYPE)


def error_body(fault: FabledError) -> dict[str, dict[str, str]]:
    """The JSON object of an error: for a whole reply, or for the last line of a stream."""
    return {
        "error": {"code": fault.code, "message": _text(fault.message), "hint": _text(fault.hint)}
    }


def error_reply(fault: FabledError, *, status: int | None = None) -> Response:
    """The reply that carries this error, with its own HTTP status unless another is given."""
    reply = json_reply(error_body(fault), status if status is not None else fault.http_status)
    if isinstance(fault, RequestTooLarge):
        reply.headers["Connection"] = "close"  # the rest of the body is not worth reading
    return reply


def _text(words: str) -> str:
    """Names of files may hold bytes that are no text; JSON cannot."""
    return words.encode("utf-8", "backslashreplace").decode()


async def _no_route(request: Request, fault: Exception) -> Response:
    status = fault.status_code if isinstance(fault, HTTPException) else 500
    where = f"{request.method} {request.url.path[:200]}"
    error: FabledError
    if status == 404:
        error = NotFound(f"there is no {where}", hint="See the README's list of paths.")
    else:
        error = UsageError(f"{where} is not allowed", hint="Use the method that the path serves.")
    reply = error_reply(error, status=status)
    reply.headers.update(getattr(fault, "headers", None) or {})
    return reply


class Envelope:
    """ASGI middleware that checks what comes in and signs what goes out.

    Args:
        app: What answers.
        running: Requests that run at once.
        wait_s: How long a request waits for its turn before it is `DaemonBusy`.
    """

    def __init__(self, app: ASGIApp, *, running: int, wait_s: float) -> None:
        self._app = app
        self._turns = asyncio.Semaphore(running)
        self._wait_s = wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; only a reply that is already under way can be broken off."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def signed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), (_HEADER, _NUMBER)]
            await send(message)
            # uvicorn's send returns at once when the client has gone; a long stream would then
            # never let another request run, nor hear that it is cancelled.
            await asyncio.sleep(0)

        try:
            headers = dict(reversed(scope["headers"]))
            _check_protocol(headers)
            async with self._turn():
                await self._app(scope, _limited(receive, headers), signed)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # the time to finish is over; this task ends here anyway
            if not started:
                await error_reply(DaemonBusy("the daemon is stopping"))(scope, receive, signed)
        except Exception as fault:
            if started:  # half a reply must not look whole: the server closes the connection
                raise
            await error_reply(_as_error(fault))(scope, receive, signed)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._turns.acquire()
        except TimeoutError:
            raise DaemonBusy("too many requests run at once") from None
        try:
            yield
        finally:
            self._turns.release()


def _check_protocol(headers: dict[bytes, bytes]) -> None:
    said = headers.get(_HEADER)
    if said is not None and said.strip() != _NUMBER:
        theirs = said[:20].decode("ascii", "replace")
        raise ProtocolMismatch(f"the client speaks protocol {theirs}, this daemon {PROTOCOL}")


def _limited(receive: Receive, headers: dict[bytes, bytes]) -> Receive:
    """The same body, up to `MAX_BODY_BYTES`.

    Raises:
        RequestTooLarge: The body is longer, or says that it will be.
    """
    length = headers.get(b"content-length", b"0")
    if int(length) > MAX_BODY_BYTES:
        raise _too_large()
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY_BYTES:
            raise _too_large()
        return message

    return counted


def _too_large() -> RequestTooLarge:
    return RequestTooLarge(f"a request body may have {MAX_BODY_BYTES} bytes")


def _as_error(fault: Exception) -> FabledError:
    if isinstance(fault, FabledError):
        return fault
    number = uuid.uuid4().hex[:12]
    known: dict[str, Any] = {"id": number, "kind": type(fault).__name__}
    _log.error("request failed", exc_info=fault, **known)
    return InternalError(f"an internal error; the daemon's log has it under {number}")

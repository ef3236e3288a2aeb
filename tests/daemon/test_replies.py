"""What every reply has in common, over a real socket."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
import structlog
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from fabled.daemon.replies import application, error_body, error_reply
from fabled.errors import DiskFull, NotFound, StaleIndex, error_classes
from fabled.protocol import MAX_BODY_BYTES
from tests.support.http_socket import ask, connected, parse, read_all, serving


async def hello(request):
    """Whether a request of this sort gets through."""
    return PlainTextResponse("hello")


async def measure(request):
    """The length of the body."""
    return JSONResponse(len(await request.body()))


async def stale(request):
    """A condition of ours."""
    raise StaleIndex("a/\udcff changed")


async def broken(request):
    """A fault of ours."""
    raise KeyError("secret text")


async def torn(request):
    """A stream that fails in the middle."""

    async def parts():
        yield b'{"step": 1}\n'
        raise RuntimeError("in the middle")

    return StreamingResponse(parts(), media_type="application/x-ndjson")


ROUTES = [
    Route("/", hello),
    Route("/measure", measure, methods=["POST"]),
    Route("/stale", stale),
    Route("/broken", broken),
    Route("/torn", torn),
]


@pytest.fixture
def path(tmp_path):
    """The socket of a server with these routes."""
    with serving(tmp_path, application(ROUTES)) as running:
        yield running.path


@pytest.mark.parametrize(
    "target", ["/", "/stale", "/broken", "/missing", "/measure", "/%ff%00", "/?q=%F0%9F%A6%8A"]
)
def test_every_reply_carries_the_protocol_number(path, target):
    """Success, refusal, fault, wrong path and wrong method alike."""
    assert ask(path, target).headers["fabled-protocol"] == "1"


def test_error_of_ours_becomes_its_status_code_and_hint(path):
    """The HTTP status of its class, and a body of code, message and hint that is UTF-8."""
    reply = ask(path, "/stale")
    assert reply.status == 409
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "error": {
            "code": "stale_index",
            "message": "a/\\udcff changed",
            "hint": "Run: fablectl index --wait",
        }
    }


def test_fault_of_ours_is_logged_under_the_id_that_the_client_gets(path):
    """The client sees no text of the exception; the log has the traceback under that id."""
    with structlog.testing.capture_logs() as logged:
        reply = ask(path, "/broken")
    assert reply.error() == (500, "internal_error")
    assert b"secret text" not in reply.body
    (entry,) = logged
    assert entry["id"] in reply.json()["error"]["message"]
    assert isinstance(entry["exc_info"], KeyError)


def test_unknown_path_and_method_are_errors_as_json(path):
    """404 is `not_found`; 405 is `usage` and names what is allowed."""
    assert ask(path, "/v2/nothing").error() == (404, "not_found")
    reply = ask(path, "/measure")
    assert reply.error() == (405, "usage")
    assert reply.headers["allow"] == "POST"


def test_client_of_another_protocol_is_told_to_restart_the_daemon(path):
    """Another number is refused with 426 before anything runs; ours and none are served."""
    reply = ask(path, "/stale", "Fabled-Protocol: 2")
    assert reply.error() == (426, "protocol_mismatch")
    assert "Restart the daemon" in reply.json()["error"]["hint"]
    for line in ("fabled-protocol:  1 ", "X-Other: 2"):
        assert ask(path, "/", line).status == 200


def test_body_up_to_the_limit_is_read_and_beyond_is_refused(path):
    """Exactly the limit passes; one byte more does not, announced or in chunks."""
    full = b"x" * MAX_BODY_BYTES
    assert ask(path, "/measure", method="POST", body=full).json() == MAX_BODY_BYTES
    reply = ask(path, "/measure", f"Content-Length: {MAX_BODY_BYTES + 1}", method="POST")
    assert reply.error() == (413, "request_too_large")
    chunks = b"".join(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" for _ in range(17)) + b"0\r\n\r\n"
    with connected(path) as client:
        client.sendall(b"POST /measure HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            client.sendall(chunks)
        except OSError:  # the daemon has answered and hung up already
            assert True
        reply = parse(read_all(client))
    assert reply.error() == (413, "request_too_large")
    assert reply.headers["connection"] == "close"


def test_stream_that_fails_is_broken_off_not_ended(path):
    """Half an answer must not look like a whole one: no last chunk."""
    with connected(path) as client:
        client.sendall(b"GET /torn HTTP/1.1\r\nHost: f\r\n\r\n")
        raw = read_all(client)
    assert b'{"step": 1}' in raw
    assert not raw.endswith(b"0\r\n\r\n")


def test_client_that_leaves_during_its_body_is_no_fault(path):
    """Nothing is logged as an error, and others are served."""
    with structlog.testing.capture_logs() as logged:
        with connected(path) as client:
            client.sendall(b"POST /measure HTTP/1.1\r\nHost: f\r\nContent-Length: 10\r\n\r\nabc")
        assert ask(path).body == b"hello"
    assert logged == []


def test_requests_beyond_the_turns_wait_then_are_told_to_come_back(tmp_path):
    """One runs, the next waits its time and is `daemon_busy`; when the first ends, all is well."""
    entered, leave = threading.Event(), threading.Event()

    async def slow(request):
        entered.set()
        await asyncio.to_thread(leave.wait, 20)
        return PlainTextResponse("slow")

    app = application([Route("/", hello), Route("/slow", slow)], running=1, wait_s=0.05)
    with serving(tmp_path, app) as running, connected(running.path) as first:
        first.sendall(b"GET /slow HTTP/1.1\r\nHost: f\r\nConnection: close\r\n\r\n")
        assert entered.wait(20)
        assert ask(running.path).error() == (503, "daemon_busy")
        leave.set()
        assert parse(read_all(first)).body == b"slow"
        assert ask(running.path).body == b"hello"


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.code)
def test_error_reply_of_every_class_has_its_status_and_code(kind):
    """Whatever is raised, code, message and hint arrive."""
    fault = kind("what happened", hint="do this")
    reply = error_reply(fault)
    assert reply.status_code == kind.http_status
    assert error_body(fault) == {
        "error": {"code": kind.code, "message": "what happened", "hint": "do this"}
    }


def test_error_reply_takes_odd_file_names_and_another_status():
    """Bytes that are no text are spelled out in message and hint."""
    odd = os.fsdecode(b"\xff")
    reply = error_reply(DiskFull(odd, hint=odd), status=500)
    assert (reply.status_code, bytes(reply.body).count(b"\\\\udcff")) == (500, 2)
    assert error_body(NotFound("plain"))["error"]["message"] == "plain"

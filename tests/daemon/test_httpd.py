"""Clients that are slow, silent, foreign, many or no HTTP at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import threading
import time

import pytest
import structlog
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fabled.daemon.replies import application
from tests.support.http_socket import ask, connected, parse, read_all, serving
from tests.support.waiting import Heard, until

REQUEST = b"GET / HTTP/1.1\r\nHost: fabled\r\n\r\n"


async def hello(request):
    """A quick answer."""
    return PlainTextResponse("hello")


async def measure(request):
    """The length of the body, once it is there."""
    return JSONResponse(len(await request.body()))


async def big(request):
    """More than any buffer holds."""
    return Response(b"x" * (8 << 20))


async def endless(request):
    """A stream that ends with its client only, and never waits by itself."""

    async def parts():
        while True:
            yield b"x" * 65536

    return StreamingResponse(parts())


APP = application(
    [
        Route("/", hello),
        Route("/measure", measure, methods=["POST"]),
        Route("/big", big),
        Route("/endless", endless),
    ]
)


def read_until(client, end) -> bytes:
    """What arrives, up to these bytes."""
    got = b""
    while not got.endswith(end):
        part = client.recv(65536)
        assert part, got
        got += part
    return got


def closed_without_reply(client) -> bool:
    """Whether the server hung up and said nothing; waits for it."""
    return read_all(client) == b""


def test_requests_are_answered_on_one_connection_one_after_another(tmp_path):
    """Keep-alive and pipelining work; the connection is closed when it stays quiet."""
    with serving(tmp_path, APP, keep_alive_s=1) as running, connected(running.path) as client:
        client.sendall(REQUEST)
        read_until(client, b"hello")
        client.sendall(REQUEST * 3)
        assert read_all(client).count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("part", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: f\r\nX-Slow: "])
def test_headers_that_do_not_end_are_closed_and_others_served(tmp_path, part):
    """A slow loris is hung up on at the deadline, however often it sends one more byte."""
    with serving(tmp_path, APP, head_s=0.3) as running, connected(running.path) as loris:
        began = time.monotonic()
        loris.sendall(part)
        loris.settimeout(0.02)
        assert ask(running.path).body == b"hello"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:
                with contextlib.suppress(TimeoutError):
                    if loris.recv(1) == b"":
                        break
                if part:
                    loris.sendall(b"x")
                assert time.monotonic() - began < 10
        assert time.monotonic() - began >= 0.29


def test_second_request_on_a_connection_has_a_deadline_too(tmp_path):
    """One good request buys no endless second one."""
    limits = {"head_s": 0.2, "keep_alive_s": 60}
    with serving(tmp_path, APP, **limits) as running, connected(running.path) as client:
        client.sendall(REQUEST)
        read_until(client, b"hello")
        client.sendall(b"GET / HTTP/1.1\r\n")
        assert closed_without_reply(client)


def test_body_that_does_not_end_is_closed_at_its_deadline(tmp_path):
    """A promised body that stops, or trickles, is not waited for."""
    head = b"POST /measure HTTP/1.1\r\nHost: f\r\nContent-Length: 100000\r\n\r\nabc"
    with serving(tmp_path, APP, head_s=60, body_s=0.3) as running:
        with structlog.testing.capture_logs() as logged, connected(running.path) as client:
            client.sendall(head)
            assert closed_without_reply(client)
        assert ask(running.path).body == b"hello"
    assert logged == []


def test_reply_that_is_not_read_is_given_up(tmp_path):
    """A client that stops reading is hung up on at the deadline, and others are served."""
    with serving(tmp_path, APP, write_s=0.2) as running, connected(running.path) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: f\r\n\r\n")
        began = time.monotonic()
        hung_up = select.poll()
        hung_up.register(client, 0)  # nothing but the end of the connection
        assert hung_up.poll(20_000) == [(client.fileno(), select.POLLHUP)]
        assert time.monotonic() - began >= 0.19
        assert ask(running.path).body == b"hello"


def test_slow_but_steady_reader_gets_all_of_a_big_reply(tmp_path):
    """Eight MiB arrive whole through small reads."""
    with serving(tmp_path, APP) as running, connected(running.path) as client:
        client.sendall(b"GET /big HTTP/1.1\r\nHost: f\r\nConnection: close\r\n\r\n")
        got = bytearray()
        while part := client.recv(4096):
            got += part
    assert len(parse(bytes(got)).body) == 8 << 20


def test_client_killed_in_mid_reply_harms_nobody(tmp_path):
    """Twenty clients that vanish while a big reply is sent leave the server as it was."""
    with serving(tmp_path, APP) as running:
        before = len(os.listdir("/dev/fd"))
        for _ in range(20):
            with connected(running.path) as client:
                client.sendall(b"GET /big HTTP/1.1\r\nHost: f\r\n\r\n")
                client.recv(10)
        assert ask(running.path).body == b"hello"
        until(lambda: len(os.listdir("/dev/fd")) <= before)


@pytest.mark.parametrize("connections", [16, 1000])
def test_two_hundred_idle_connections_do_not_block_a_request(tmp_path, connections):
    """With or without room for them all, a new client is answered at once."""
    with serving(tmp_path, APP, connections=connections) as running, contextlib.ExitStack() as all_:
        for _ in range(200):
            all_.enter_context(connected(running.path))
        began = time.monotonic()
        assert ask(running.path).body == b"hello"
        assert time.monotonic() - began < 2


def test_connection_with_a_request_is_never_closed_to_make_room(tmp_path):
    """The quietest idle one goes; when all are at work, the newcomer is told `daemon_busy`."""
    entered, leave = Heard(), threading.Event()

    async def slow(request):
        entered()
        await asyncio.to_thread(leave.wait, 20)
        return PlainTextResponse("slow")

    app = application([Route("/", hello), Route("/slow", slow)])
    limits = {"connections": 2, "head_s": 600}
    with serving(tmp_path, app, **limits) as running, contextlib.ExitStack() as all_:
        workers = [all_.enter_context(connected(running.path)) for _ in range(2)]
        for worker in workers:
            worker.sendall(b"GET /slow HTTP/1.1\r\nHost: f\r\nConnection: close\r\n\r\n")
        entered.wait(lambda calls: len(calls) == 2)
        late = all_.enter_context(connected(running.path))
        assert ask(running.path).error() == (503, "daemon_busy")
        assert closed_without_reply(late)  # it was idle: it made room for the one after it
        leave.set()
        assert [parse(read_all(worker)).body for worker in workers] == [b"slow", b"slow"]
        until(lambda: ask(running.path).status == 200)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xc3\xa4 HTTP/1.1\r\nHost: f\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: f\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: f\r\nContent-Length: 1" + b"0" * 5000 + b"\r\n\r\n",
        b"POST /measure HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : f\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http_is_answered_400(tmp_path, raw):
    """An error of ours with the protocol number, then the connection is closed."""
    with serving(tmp_path, APP) as running, connected(running.path) as client:
        client.sendall(raw)
        reply = parse(read_all(client))
        assert reply.status in (400, 413, 501)
        assert reply.json()["error"]["code"] in ("usage", "request_too_large")
        assert reply.headers["fabled-protocol"] == "1"
        assert ask(running.path).body == b"hello"


def test_bad_chunk_after_good_headers_ends_the_connection_only(tmp_path):
    """A body that breaks its own framing is refused or cut off; others are served."""
    head = b"POST /measure HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(tmp_path, APP) as running, connected(running.path) as client:
        client.sendall(head + b"5\r\nabc")
        client.sendall(b"de\r\nzz\r\n")
        raw = read_all(client)
        assert raw == b"" or parse(raw).status == 400
        assert ask(running.path).body == b"hello"


def test_headers_beyond_the_limit_are_refused(tmp_path):
    """Endless headers stop at the limit, with 431 and a code of ours."""
    with serving(tmp_path, APP, head_bytes=4096) as running, connected(running.path) as client:
        with contextlib.suppress(OSError):
            client.sendall(b"GET / HTTP/1.1\r\nHost: f\r\n")
            for number in range(10_000):
                client.sendall(b"X-%d: y\r\n" % number)
        reply = parse(read_all(client))
        assert reply.error() == (431, "request_too_large")
        assert ask(running.path).body == b"hello"


def test_longest_question_fits_into_the_default_limit(tmp_path):
    """4096 characters of four bytes each, percent-encoded, are no oversize."""
    with serving(tmp_path, APP) as running:
        assert ask(running.path, "/?q=" + "%F0%9F%A6%8A" * 4096).status == 200


def test_connection_of_another_user_is_cut_off_and_logged_once(tmp_path, monkeypatch):
    """The kernel's word counts: no byte of a reply, one line in the log for many tries."""
    # The kernel cannot be told to lie, so the server is told that it is of another user.
    monkeypatch.setattr("fabled.daemon.httpd.os.geteuid", lambda: os.getuid() + 1)
    with structlog.testing.capture_logs() as logged, serving(tmp_path, APP) as running:
        monkeypatch.undo()
        for _ in range(3):
            with connected(running.path) as client:
                with contextlib.suppress(BrokenPipeError):
                    client.sendall(REQUEST)
                assert closed_without_reply(client)
    assert [(entry["uid"], entry["pid"]) for entry in logged] == [(os.getuid(), os.getpid())]


def test_stop_answers_what_runs_and_takes_nothing_new(tmp_path):
    """A request under way is finished; idle connections are closed; new ones are refused."""
    entered, leave = threading.Event(), threading.Event()

    async def slow(request):
        entered.set()
        await asyncio.to_thread(leave.wait, 20)
        return PlainTextResponse("slow")

    app = application([Route("/slow", slow)])
    with serving(tmp_path, app) as running, connected(running.path) as idle:
        with connected(running.path) as worker:
            worker.sendall(b"GET /slow HTTP/1.1\r\nHost: f\r\n\r\n")
            assert entered.wait(20)
            running.tell(running.stop)
            assert closed_without_reply(idle)
            with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
                late.connect(running.path)
            leave.set()
            assert parse(read_all(worker)).body == b"slow"
        running.thread.join(20)
        assert not running.thread.is_alive()


def test_stop_waits_for_a_stuck_request_no_longer_than_the_drain(tmp_path):
    """A request that would run for ever is cancelled when the time is over."""
    entered = threading.Event()

    async def stuck(request):
        entered.set()
        await asyncio.Event().wait()

    app = application([Route("/", stuck)])
    with serving(tmp_path, app, drain_s=1) as running, connected(running.path) as client:
        client.sendall(REQUEST)
        assert entered.wait(20)
        running.tell(running.stop)
        running.thread.join(20)
        assert not running.thread.is_alive()
        assert parse(read_all(client)).error() == (503, "daemon_busy")


def test_abort_ends_at_once(tmp_path):
    """The second signal does not wait for the drain."""
    entered = threading.Event()

    async def stuck(request):
        entered.set()
        await asyncio.Event().wait()

    app = application([Route("/", stuck)])
    with serving(tmp_path, app, drain_s=600) as running, connected(running.path) as client:
        client.sendall(REQUEST)
        assert entered.wait(20)
        running.tell(running.stop)
        running.tell(running.abort)
        running.thread.join(20)
        assert not running.thread.is_alive()
        assert closed_without_reply(client)


def test_many_clients_at_once_are_all_answered(tmp_path):
    """Fifty clients, ten requests each: five hundred right answers."""
    answers = Heard()

    def client(path):
        for _ in range(10):
            answers(ask(path).body)

    with serving(tmp_path, APP) as running:
        threads = [threading.Thread(target=client, args=(running.path,)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers.items == [b"hello"] * 500


def test_descriptors_stay_flat_over_many_connections(tmp_path):
    """Good, broken and reset connections leave nothing open."""
    with serving(tmp_path, APP, head_s=0.2) as running:
        assert ask(running.path).status == 200
        before = len(os.listdir("/dev/fd"))
        for _ in range(50):
            ask(running.path)
            with connected(running.path) as client:
                client.sendall(b"junk\r\n\r\n")
            with connected(running.path) as client:
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.sendall(b"GET / HTT")
        until(lambda: len(os.listdir("/dev/fd")) <= before)


def test_connections_that_arrive_while_it_stops_are_closed(tmp_path):
    """Whoever connects in the last moment is answered or hung up on, not left waiting."""
    for _ in range(30):
        with serving(tmp_path, APP) as running, contextlib.ExitStack() as all_:
            late = [all_.enter_context(connected(running.path)) for _ in range(10)]
            running.tell(running.stop)
            for client in late:
                assert closed_without_reply(client)

"""Bodies in every framing come out as the same bytes, and a broken one is never taken for whole."""

from __future__ import annotations

import subprocess

import pytest

from tests.client.objects import RECORD, THREAD
from tests.support.stub_daemon import CLIENT, SIGNED, chunked, fablectl, reply

AWKWARD = b'{"a":"\xff\xfe \x00 \x1b[31m"}\r\n\n no newline at the end'


@pytest.mark.parametrize(
    "pieces",
    [
        [reply(AWKWARD)],
        [reply(AWKWARD, length=False)],
        list(chunked(AWKWARD)),
        list(chunked(AWKWARD[:1], AWKWARD[1:7], AWKWARD[7:])),
        [bytes([byte]) for byte in reply(AWKWARD)],
        [bytes([byte]) for byte in b"".join(chunked(AWKWARD[:5], AWKWARD[5:]))],
    ],
    ids=["length", "to the end", "one chunk", "chunks", "byte by byte", "chunks byte by byte"],
)
def test_block_in_any_framing_writes_exactly_its_bytes(stub, pieces):
    """Invalid UTF-8, NUL, escapes and a missing last newline come through unchanged."""
    stub.says(*pieces)
    done = fablectl("block", RECORD)
    assert (done.returncode, done.stdout, done.stderr) == (0, AWKWARD, b"")


def test_raw_thread_of_megabytes_is_written_unchanged(stub):
    """A large body crosses every buffer without loss."""
    body = b"".join(b'{"n":%d}\n' % number for number in range(400_000))
    stub.script = lambda _: chunked(*(body[at : at + 99_991] for at in range(0, len(body), 99_991)))
    done = fablectl("thread", "--raw", THREAD)
    assert (done.returncode, done.stdout) == (0, body)
    assert stub.asked[0].target.endswith("raw=1")


def test_empty_block_writes_nothing(stub):
    """A body of no bytes is an answer too."""
    stub.says(reply(b""))
    done = fablectl("block", RECORD)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTTP/1.1 200 OK\r\n"],
        [reply(b"0123456789")[:-3]],
        list(chunked(b"01234", b"56789"))[:-1],
        list(chunked(b"01234", b"56789"))[:2],
        [b"".join(chunked(b"0123456789"))[:-20]],
    ],
    ids=["nothing", "half a head", "length", "no last chunk", "one chunk of two", "half a chunk"],
)
def test_reply_that_breaks_off_is_an_error(stub, pieces):
    """Exit 3: the daemon went away in the middle."""
    stub.says(*pieces)
    done = fablectl("block", RECORD)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(b"fablectl: ")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"220 mail.example ESMTP\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"],
        [reply(b"{}", "Fabled-Protocol: 2")],
        [reply(b'{"error":{"code":"x"}}', "Fabled-Protocol: 17", status=500)],
        [reply(b"", SIGNED, "Content-Length: -5", length=False)],
        [reply(b"zz\r\n", SIGNED, "Transfer-Encoding: chunked", length=False)],
        [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"],
        [b"x" * 200_000],
    ],
    ids=["mail", "unsigned", "newer", "newer error", "length", "chunk", "long head", "long line"],
)
def test_reply_of_something_else_is_a_protocol_mismatch(stub, pieces):
    """Exit 3 and the advice to restart the daemon, for another number or another program."""
    stub.says(*pieces)
    done = fablectl("status", "--json")
    assert done.returncode == 3, done.stderr
    assert b'"protocol_mismatch"' in done.stderr
    assert done.stdout == b""


def test_request_bears_the_protocol_number_and_closes(stub):
    """The daemon learns whom it talks to, and may hang up after its reply."""
    stub.answers({})
    fablectl("status", "--json")
    [asked] = stub.asked
    assert (asked.method, asked.target) == ("GET", "/v1/status")
    assert asked.headers["fabled-protocol"] == "1"
    assert asked.headers["connection"] == "close"


def test_reader_that_leaves_ends_a_long_answer_quietly(stub):
    """`fablectl thread --raw T | head -c 1` says nothing and is no error."""
    body = b"x" * 5_000_000
    stub.says(reply(body))
    with subprocess.Popen(
        [*CLIENT, "thread", "--raw", THREAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        assert client.stdout.read(1) == b"x"
        client.stdout.close()
        assert client.stderr.read() == b""
        assert client.wait(20) == 0


def test_reader_that_left_before_a_short_answer_is_no_error(stub):
    """The last flush may fail as well: quiet, exit 0."""
    stub.answers({"sessions": []})
    with subprocess.Popen(
        [*CLIENT, "sessions", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        client.stdout.close()
        assert client.stderr.read() == b""
        assert client.wait(20) == 0

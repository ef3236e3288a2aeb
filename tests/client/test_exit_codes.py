"""Every way a run can end, and what it says then."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess

import pytest

from fabled.errors import error_classes
from tests.client.objects import RECORD, THREAD, found, recalled, result
from tests.support.stub_daemon import CLIENT, error, fablectl, reply
from tests.support.waiting import until


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.code)
def test_error_reply_becomes_its_exit_status(stub, kind):
    """Message and hint on stderr, nothing on stdout, for every class there is."""
    stub.answers(error(kind.code, "the reason", "The remedy."), status=kind.http_status)
    done = fablectl("thread", THREAD)
    assert (done.returncode, done.stdout) == (kind.exit_status, b"")
    assert done.stderr == b"fablectl: the reason\nThe remedy.\n"


@pytest.mark.parametrize("command", [["block", RECORD], ["thread", "--raw", THREAD]])
def test_error_instead_of_bytes_leaves_stdout_empty(stub, command):
    """An error's JSON is never taken for the record that was asked for."""
    stub.answers(error("stale_index"), status=409)
    done = fablectl(*command)
    assert (done.returncode, done.stdout) == (6, b"")


def test_error_with_json_is_an_object_on_stderr(stub):
    """Scripts read the code; stdout stays empty."""
    stub.answers(error("not_found", "no session is called x", "Look."), status=404)
    done = fablectl("session", "x", "--json")
    assert (done.returncode, done.stdout) == (4, b"")
    assert json.loads(done.stderr) == error("not_found", "no session is called x", "Look.")


def test_error_of_an_unknown_code_names_it(stub):
    """A newer daemon's error is an internal one of this client, with its words."""
    stub.answers(error("moon_phase", "the moon is full"), status=500)
    done = fablectl("status")
    assert done.returncode == 1
    assert b"the moon is full (moon_phase)" in done.stderr


@pytest.mark.parametrize("body", [b"oops", b"[]", b'{"error": 7}', b"\xff"])
def test_error_reply_without_error_object_is_internal(stub, body):
    """Exit 1, with the HTTP status for whoever looks into it, and no traceback."""
    stub.says(reply(body, status=500))
    done = fablectl("status")
    assert done.returncode == 1
    assert b"500" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("body", [b"oops", b"[]", b"", b"{}", b'{"results": 3}'])
def test_good_reply_without_what_was_promised_is_internal(stub, body):
    """A broken answer is a sentence and exit 1, never a traceback."""
    stub.says(reply(body))
    done = fablectl("search", "x")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(b"fablectl: ")
    assert b"Traceback" not in done.stderr


def test_missing_socket_names_it_and_how_to_start(socket_path):
    """Exit 3."""
    done = fablectl("status")
    assert done.returncode == 3
    assert str(socket_path).encode() in done.stderr
    assert done.stderr.endswith(b"Start it with: fabled\n")


def test_stale_socket_names_it_and_how_to_start(socket_path):
    """A socket whose daemon died is the same as none: exit 3."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path))
    done = fablectl("search", "x", "--json")
    assert done.returncode == 3
    said = json.loads(done.stderr)["error"]
    assert said["code"] == "daemon_unreachable"
    assert str(socket_path) in said["message"]


def test_plain_file_in_place_of_the_socket_is_unreachable(socket_path):
    """Exit 3, and the file is left alone."""
    socket_path.write_text("mine")
    assert fablectl("status").returncode == 3
    assert socket_path.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may connect anywhere")
def test_socket_of_another_user_is_access_denied(socket_path):
    """Exit 8, not the advice to start a daemon."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(socket_path))
        socket_path.chmod(0)
        other.listen()
        assert fablectl("status").returncode == 8


def test_daemon_that_takes_no_connection_is_busy_after_two_seconds(socket_path):
    """A full backlog does not hold the client for ever: exit 3."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(socket_path))
        deaf.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(socket_path))
            done = fablectl("status", "--json")
    assert done.returncode == 3
    assert json.loads(done.stderr)["error"]["code"] == "daemon_busy"


def test_socket_path_that_no_platform_takes_is_a_configuration_error(monkeypatch):
    """Exit 7 with the limit."""
    monkeypatch.setenv("FABLED_SOCKET", "/run/" + "x" * 200)
    done = fablectl("status")
    assert done.returncode == 7
    assert b"this platform allows" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["search"],
        ["search", "  "],
        ["search", "--query="],
        ["recall"],
        ["search", "--no-such-option", "x"],
        ["search", "--kind", "other", "x"],
        ["search", "--level", "file", "x"],
        ["search", "--sort", "size", "x"],
        ["search", "-n"],
        ["search", "--ids", "--json", "x"],
        ["thread"],
        ["thread", ""],
        ["thread", "a", "b"],
        ["thread", "--raw", "--json", "a"],
        ["block"],
        ["block", ""],
        ["session"],
        ["session", ""],
        ["config"],
        ["config", "no-such"],
        ["completion"],
        ["completion", "tcsh"],
        [],
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_2_and_asks_nothing(stub, arguments):
    """The daemon hears nothing of it; the message is on stderr."""
    done = fablectl(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr
    assert stub.asked == []


def test_wrong_use_with_json_is_an_object_on_stderr(stub):
    """Also what the command line itself gets wrong."""
    done = fablectl("search", "--json", "--kind", "other", "x")
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["code"] == "usage"


def test_question_longer_than_the_socket_takes_is_refused_here(stub):
    """Exit 2, nothing is sent."""
    done = fablectl("search", "--json", "x" * 70_000)
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"]["code"] == "request_too_large"
    assert stub.asked == []


@pytest.mark.parametrize("command", [["search", "x"], ["search", "--ids", "x"]])
def test_nothing_found_is_done_and_said(stub, command):
    """Exit 0, empty stdout, a sentence on stderr with what was searched."""
    stub.answers(found())
    done = fablectl(*command)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"Nothing found")


def test_nothing_recalled_is_done_and_said(stub):
    """The same for `recall`."""
    stub.answers(recalled(""))
    done = fablectl("recall", "x")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"Nothing found")


def test_no_sessions_is_done_and_said(stub):
    """The same for `sessions`."""
    stub.answers({"sessions": []})
    done = fablectl("sessions")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize(
    "command", [["search", "x"], ["search", "--json", "x"], ["config", "show"]]
)
def test_full_disk_behind_stdout_is_exit_8(stub, command):
    """Output that was lost is never exit 0."""
    stub.answers(found(result()))
    with open("/dev/full", "wb") as full:
        done = fablectl(*command, stdout=full)
    assert done.returncode == 8
    assert b"standard output" in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_closed_stdout_is_exit_8(stub):
    """Likewise."""
    stub.answers(found(result()))
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *CLIENT, "search", "x"],
        capture_output=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 8
    assert b"Traceback" not in done.stderr


def test_interrupt_while_waiting_is_exit_130(stub):
    """Ctrl-C ends the wait without a traceback."""

    def stall(_):
        yield b"HTTP/1.1 200 OK\r\n"
        stub.gate.wait(30)

    stub.script = stall
    with subprocess.Popen(
        [*CLIENT, "status"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stderr is not None
        until(lambda: stub.asked)
        client.send_signal(signal.SIGINT)
        said = client.stderr.read()
        assert client.wait(20) == 130
    assert b"Traceback" not in said

"""`index`: steps as they come, and no end that is taken for success."""

from __future__ import annotations

import json

import pytest

from tests.support.stub_daemon import OnTerminal, chunked, error, fablectl, on_terminal, reply

STEP = {"step": "progress", "done_bytes": 10, "total_bytes": 40, "files": 3, "eta_s": 1.5}
DONE = {"step": "done", "files": 2, "bytes": 1_200_000, "records": 420, "took_ms": 1234.5}


def lines(*values):
    """NDJSON, a line a value."""
    return [json.dumps(value).encode() + b"\n" for value in values]


def test_wait_is_silent_until_the_last_line(stub):
    """Away from a terminal: one sentence on stderr."""
    stub.script = lambda _: chunked(*lines(STEP, STEP, DONE))
    done = fablectl("index", "--wait")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"Indexed 2 files, 420 records, 1.2 MB in 1.2 s.\n"


def test_wait_as_json_is_the_final_object(stub):
    """And nothing else."""
    stub.script = lambda _: chunked(*lines(STEP, DONE))
    done = fablectl("index", "--wait", "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, DONE, b"")


def test_lines_split_anywhere_are_the_same_lines(stub):
    """A step may arrive in two pieces, or two in one."""
    body = b"".join(lines(STEP, STEP, DONE))
    stub.script = lambda _: chunked(body[:5], body[5:90], body[90:])
    assert fablectl("index", "--wait").returncode == 0


def test_error_in_mid_stream_is_its_exit_status(stub):
    """HTTP said 200 long before the disk was full: exit 8."""
    stub.script = lambda _: chunked(*lines(STEP, error("disk_full", "no room", "Make room.")))
    done = fablectl("index", "--wait", "--json")
    assert (done.returncode, done.stdout) == (8, b"")
    assert json.loads(done.stderr) == error("disk_full", "no room", "Make room.")


@pytest.mark.parametrize(
    "pieces",
    [
        list(chunked(*lines(STEP))),
        list(chunked(*lines(STEP)))[:-1],
        [reply(b"", length=False)],
        list(chunked(json.dumps(DONE)[:-9].encode())),
    ],
    ids=["no last step", "broken off", "nothing", "half a step"],
)
def test_stream_that_ends_before_the_work_is_not_success(stub, pieces):
    """The daemon may have died: never exit 0."""
    stub.says(*pieces)
    done = fablectl("index", "--wait")
    assert done.returncode in {1, 3}, done.stderr
    assert done.stderr.startswith(b"fablectl: ")


def test_asking_without_waiting_says_where_to_look(stub):
    """202 is a good answer."""
    stub.answers({"step": "asked"}, status=202)
    done = fablectl("index")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"fablectl status" in done.stderr


def test_progress_is_drawn_while_it_happens(stub):
    """On a terminal the bar moves before the work is done."""

    def slowly(_):
        *head, end = chunked(*lines(STEP), *lines(DONE))
        yield from head[:2]
        stub.gate.wait(30)
        yield from head[2:]
        yield end

    stub.script = slowly
    with OnTerminal("index", "--wait") as client:
        client.until(b"25%")
        stub.gate.set()
        assert "Indexed 2 files" in client.text()
        assert client.process.returncode == 0


def test_progress_without_colour_has_none(stub):
    """NO_COLOR holds for the bar as well."""
    stub.script = lambda _: chunked(*lines(STEP, DONE))
    code, text = on_terminal("index", "--wait", NO_COLOR="1")
    assert code == 0
    assert "\x1b[3" not in text
    assert "\x1b[9" not in text

"""What a terminal is shown: never what it would obey, colour only where it is wanted."""

from __future__ import annotations

import json
import re
import signal
import subprocess

import pytest

from fabled.client.layout import cells
from tests.client.objects import (
    SESSION,
    THREAD,
    event,
    found,
    generation,
    one_session,
    recalled,
    result,
    session,
    status,
    thread,
)
from tests.support.stub_daemon import CLIENT, OnTerminal, error, fablectl, on_terminal

EVIL = "ab\x1b[31mcd\x1b]0;owned\x07ef\x9b2Jgh\x1b]52;c;AAAA\x1b\\ij\x08\x7f\u202ekl\x1bcmn"
TAME = "abcdefghijklmn"
OURS = re.compile(r"\x1b\[[0-9;]*m")
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def evil_result():
    """A result all of whose words are hostile."""
    record = {"uuid": EVIL, "role": EVIL, "ts": EVIL, "snippet": EVIL}
    return result(title=EVIL, thread=EVIL, project=EVIL, session=EVIL, records=[record])


SCREENS = {
    "search": (["search", "x"], found(evil_result())),
    "ids": (["search", "--ids", "x"], found(evil_result())),
    "thread": (["thread", "x"], thread(EVIL)),
    "recall": (["recall", "x"], recalled(EVIL)),
    "sessions": (
        ["sessions"],
        {"sessions": [session(session=EVIL, title=EVIL, project=EVIL, last_ts=EVIL)]},
    ),
    "session": (
        ["session", "x"],
        one_session(
            session=session(title=EVIL, live_path=EVIL),
            events=[event(event=EVIL, detail={"why": EVIL})],
        ),
    ),
    "vault": (
        ["vault", "list"],
        {
            "generations": [generation(session=EVIL, path=EVIL, reason=EVIL, kind=EVIL)],
            "totals": {"generations": 1, "bytes": 1, "raw_bytes": 1},
        },
    ),
    "events": (["events"], {"events": [event(event=EVIL, session=EVIL, detail={EVIL: EVIL})]}),
    "handoff": (["handoff", "x"], {"session": "x", "text": EVIL}),
    "status": (["status"], status(warnings=[EVIL], state=EVIL, version=EVIL)),
    "json": (["search", "--json", "x"], found(evil_result())),
}


@pytest.mark.parametrize("name", sorted(SCREENS))
def test_text_of_transcripts_cannot_steer_the_terminal(stub, name):
    """Every escape sequence and control character is gone; the words stay."""
    arguments, answer = SCREENS[name]
    stub.answers(answer)
    code, text = on_terminal(*arguments, columns=120)
    assert code == 0, text
    shown = text if name in {"json", "ids"} else OURS.sub("", text)
    assert not OBEYED.search(shown.replace("\r\n", "\n")), repr(shown)
    if name != "json":
        assert TAME[:8] in shown.replace("\n", "")
    assert "owned" not in shown or name == "json"


def test_json_on_a_terminal_is_the_same_object(stub):
    """Indented and escaped for a person, equal for a parser."""
    stub.answers(found(evil_result()))
    _, text = on_terminal("search", "--json", "x")
    assert json.loads(text) == found(evil_result())
    assert "\n  " in text


def test_error_cannot_steer_the_terminal(stub):
    """The daemon's words may quote a transcript."""
    stub.answers(error("not_found", EVIL, EVIL), status=404)
    code, text = on_terminal("thread", "x")
    assert code == 4
    assert text.split() == ["fablectl:", TAME, TAME]


@pytest.mark.parametrize("command", [["search", "sqlite"], ["sessions"], ["status"]])
def test_colour_is_for_terminals_that_want_it(stub, command):
    """Colour on a terminal; none with NO_COLOR, on a dumb one, or in a pipe."""
    answers = {
        "search": found(result()),
        "sessions": {"sessions": [session()]},
        "status": status(),
    }
    stub.answers(answers[command[0]])
    assert "\x1b[" in on_terminal(*command)[1]
    assert "\x1b" in on_terminal(*command, NO_COLOR="")[1]
    assert "\x1b" not in on_terminal(*command, NO_COLOR="1")[1]
    assert "\x1b" not in on_terminal(*command, TERM="dumb")[1]
    assert b"\x1b" not in fablectl(*command).stdout


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("name", ["search", "sessions", "status"])
def test_no_line_is_wider_than_the_terminal(stub, name, columns):
    """Long words, wide characters and long titles included; ids are never cut."""
    long = "缓存 " * 40 + "x" * 300
    record = {**result()["records"][0], "snippet": long}
    arguments, answer = {
        "search": (["search", "x"], found(result(title=long, records=[record]))),
        "sessions": (["sessions"], {"sessions": [session(title=long, project="/" + long)]}),
        "status": (["status"], status(warnings=[long])),
    }[name]
    stub.answers(answer)
    _, text = on_terminal(*arguments, columns=columns)
    lines = [line for line in OURS.sub("", text).splitlines() if "searched" not in line]
    # The widest thing that is never cut: an id, or the status's first line.
    most = max(columns, {"search": len(THREAD) + 3, "status": 78, "sessions": 76}[name])
    assert max(map(cells, lines)) <= most, lines
    if name == "search":
        assert THREAD in text


def test_thread_on_a_terminal_ends_its_last_line(stub):
    """The prompt is not glued to it."""
    stub.answers(thread("the end"))
    assert on_terminal("thread", "x")[1] == "the end\n"


def test_words_of_the_question_stand_out(stub):
    """Painting changes no character of the snippet."""
    stub.answers(found(result()))
    text = on_terminal("search", "SQLITE")[1]
    assert "\x1b[1;33mSQLite\x1b[0m" in text
    assert "why is SQLite the honest centre" in OURS.sub("", text)


def test_times_on_a_terminal_are_local(stub):
    """Elsewhere they are UTC and say so."""
    stub.answers(found(result()))
    assert "2026-11-30 19:30" in on_terminal("search", "x", TZ="JST-9")[1]


def test_sessions_on_a_terminal_are_short_but_distinct(stub):
    """Enough of each id to tell them apart is enough to paste."""
    twin = SESSION[:10] + "x" + SESSION[11:]
    stub.answers({"sessions": [session(), session(session=twin)]})
    text = on_terminal("sessions", NO_COLOR="1")[1]
    assert [line.split()[0] for line in text.splitlines()[1:]] == [SESSION[:11], twin[:11]]


def test_status_says_everything_on_aligned_lines(stub):
    """State, counts, pending, progress, memory, roots, Vault, prunes, jobs, risk, warnings."""
    stub.answers(status())
    text = on_terminal("status", NO_COLOR="1", TZ="UTC", columns=100)[1]
    for wanted in (
        "fabled 0.1.0  indexing  pid 4711, up 1 d 2 h, protocol 1",
        "indexed   107 files, 9,785 records, 246 threads, 102 sessions, 24 MB",
        "pending   3 files, 1.2 MB, 2.5 s behind",
        "progress  ████████████░░░░░░░░░░░░  50%  520 MB of 1.0 GB, 12 s left",
        "process   45 MB memory, 12 s of CPU",
        "roots     watched: /home/ada/.claude/projects",
        "vault     12 generations, 34 MB for 643 MB, 5.0 MB not sealed",
        "prune     3, saved 120 MB, last 2026-11-30 10:30",
        "jobs      reconcile, last 2026-11-30 10:30 ok: 3 files, next 2026-11-30 10:31",
        "at risk   1 session the client will delete within 7 days, 1 of them not sealed",
        "          0b6f3a52 from 2026-12-03, not sealed: Why SQLite",
        "warning   the disk is nearly full",
    ):
        assert wanted in text.splitlines(), text


def test_watch_on_a_terminal_refreshes_until_interrupted(stub):
    """The second look shows what changed meanwhile, also that the daemon has gone."""
    stub.answers(status(pid=1111))
    with OnTerminal("status", "--watch") as client:
        client.until(b"pid 1111")
        stub.answers(status(pid=2222))
        client.until(b"pid 2222")
        stub.answers(error("daemon_busy", "too many requests"), status=503)
        client.until(b"too many requests")
        client.process.send_signal(signal.SIGINT)
        text = client.text()
        assert client.process.returncode == 130
    assert "Traceback" not in text
    assert text.rstrip("\r\n").endswith("\x1b[?25h") or "\x1b[?25h" in text


def test_watch_away_from_a_terminal_is_a_line_of_json_a_look(stub):
    """Each line is there as soon as it is known, and a reader that leaves ends it."""
    stub.answers(status())
    with subprocess.Popen(
        [*CLIENT, "status", "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        assert json.loads(client.stdout.readline()) == status()
        assert json.loads(client.stdout.readline()) == status()
        client.stdout.close()
        assert client.wait(20) == 0
        assert client.stderr.read() == b""


def test_watch_of_no_daemon_is_an_error(socket_path):
    """It does not wait for one that never was: exit 3."""
    code, text = on_terminal("status", "--watch")
    assert code == 3
    assert "Start it with: fabled" in text

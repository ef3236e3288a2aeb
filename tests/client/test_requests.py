"""What the daemon is asked for each command line, byte by byte."""

from __future__ import annotations

import json
import os

import pytest

from tests.client.objects import (
    RECORD,
    SESSION,
    THREAD,
    event,
    found,
    one_session,
    recalled,
    result,
    session,
    status,
    thread,
)
from tests.support.stub_daemon import error, fablectl, reply

ANSWERS = {
    "status": status(),
    "search": found(result()),
    "recall": recalled("the words"),
    "thread": thread("the words"),
    "sessions": {"sessions": [session()]},
    "session": one_session(),
    "index": {"step": "asked"},
}


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (["search", "why", "sqlite"], "/v1/search?q=why%20sqlite&n=10&level=thread&sort=relevance"),
        (
            [
                *("search", "-n", "3", "--project", "a/b", "--session", "0b", "--since", "7d"),
                *("--until", "2026-11-30", "--kind", "main", "--level", "record"),
                *("--sort", "recent", "x"),
            ],
            (
                "/v1/search?q=x&n=3&level=record&project=a%2Fb&session=0b&since=7d"
                "&until=2026-11-30&kind=main&sort=recent"
            ),
        ),
        (
            ["search", "--query=-rf & more=?"],
            "/v1/search?q=-rf%20%26%20more%3D%3F&n=10&level=thread&sort=relevance",
        ),
        (["search", "--", "-x"], "/v1/search?q=-x&n=10&level=thread&sort=relevance"),
        (["recall", "why", "--budget", "400"], "/v1/recall?q=why&budget=400"),
        (["thread", "a:b/c"], "/v1/threads/a%3Ab%2Fc?budget=8000"),
        (["thread", "a", "--no-sentinel"], "/v1/threads/a?budget=8000&sentinel=0"),
        (["thread", "a", "--raw"], "/v1/threads/a?raw=1"),
        (["block", "a b"], "/v1/blocks/a%20b"),
        (["sessions"], "/v1/sessions"),
        (["sessions", "--project", "p", "--vanished"], "/v1/sessions?project=p&vanished=1"),
        (["session", "0b"], "/v1/sessions/0b"),
        (["index"], "/v1/index"),
        (["index", "--rebuild"], "/v1/index?rebuild=1"),
        (["index", "--wait", "--rebuild"], "/v1/index?wait=1&rebuild=1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_asks_for_what_its_flags_say(stub, arguments, target):
    """Parameters bear the flags' names; order is of no account."""
    stub.answers(error("not_found"), status=404)
    fablectl(*arguments)
    [asked] = stub.asked
    path, _, query = asked.target.partition("?")
    wanted, _, parameters = target.partition("?")
    assert (path, sorted(query.split("&"))) == (wanted, sorted(parameters.split("&")))
    assert asked.method == ("POST" if arguments[0] == "index" else "GET")


def test_bytes_that_are_no_text_are_sent_as_they_are(stub):
    """Whatever the shell hands over reaches the daemon, in queries and in ids."""
    stub.answers(found())
    fablectl("search", b"caf\xe9 \xff")
    fablectl("block", b"\xfe\x01")
    assert "q=caf%E9%20%FF" in stub.asked[0].target
    assert stub.asked[1].target == "/v1/blocks/%FE%01"


def test_text_of_any_script_is_sent_as_utf8(stub):
    """Not mangled on the way, whatever the locale."""
    stub.answers(found())
    fablectl("search", "naïve 缓存 🙂".encode(), env={"LC_ALL": "C"})
    assert "q=na%C3%AFve%20%E7%BC%93%E5%AD%98%20%F0%9F%99%82" in stub.asked[0].target


@pytest.mark.parametrize("command", sorted(ANSWERS))
def test_json_is_the_daemons_object(stub, command):
    """The keys and values are the server's, whatever else it adds."""
    value = {**ANSWERS[command], "added later": ["缓存", "\x1b[31m", None]}
    stub.answers(value)
    arguments = {"session": [SESSION], "thread": [THREAD]}.get(command, [])
    question = ["x"] if command in {"search", "recall"} else []
    done = fablectl(command, *arguments, *question, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == value
    assert done.stdout.endswith(b"}\n")


@pytest.mark.parametrize(
    ("level", "name"), [("thread", THREAD), ("session", SESSION), ("record", RECORD)]
)
def test_ids_are_of_the_level_one_a_line(stub, level, name):
    """Best first, and nothing else on stdout or stderr."""
    stub.answers(found(result(), result(thread="t2", session="s2")))
    done = fablectl("search", "--ids", "--level", level, "x")
    second = {"thread": "t2", "session": "s2", "record": RECORD}[level]
    assert (done.stdout, done.stderr) == (f"{name}\n{second}\n".encode(), b"")


def test_thread_text_is_written_exactly(stub):
    """Away from a terminal nothing is stripped, added or wrapped."""
    text = "\x1b[31mred\x1b[0m\r\n\ttab \x07 缓存 " + "wide " * 100
    stub.answers(thread(text))
    assert fablectl("thread", THREAD).stdout == text.encode()


def test_recall_prints_the_text_only(stub):
    """What an agent pastes, and nothing round it."""
    stub.answers(recalled("<historical_context>x</historical_context>"))
    done = fablectl("recall", "x")
    assert done.stdout == b"<historical_context>x</historical_context>"


@pytest.mark.parametrize("command", [["thread", THREAD], ["recall", "x"], ["search", "x"]])
def test_answer_that_is_not_fresh_says_so(stub, command):
    """On stderr: stdout stays what it was."""
    fresh = {"pending_files": 2, "pending_bytes": 1_200_000, "lag_s": 1.0}
    answer = {"thread": thread("t"), "recall": recalled("t"), "search": found(result())}[command[0]]
    stub.answers({**answer, "freshness": fresh})
    done = fablectl(*command)
    assert done.returncode == 0
    assert b"2 files (1.2 MB) not indexed yet" in done.stderr


def test_search_away_from_a_terminal_is_whole_and_plain(stub):
    """No colour, nothing cut, titles and snippets harmless all the same, times in UTC."""
    snippet = "long " * 100 + "\x1b]0;owned\x07end"
    stub.answers(found(result(records=[{**result()["records"][0], "snippet": snippet}])))
    said = fablectl("search", "x").stdout.decode()
    assert "\x1b" not in said
    assert "long " * 100 + "end" in said
    for wanted in ("Why SQLite", THREAD, "fabled", "2026-11-30 10:30Z", "12 turns", "~3.4k tokens"):
        assert wanted in said


def test_results_without_title_project_time_or_snippet_are_shown(stub):
    """Every field that may be null is."""
    record = {"uuid": RECORD, "role": None, "ts": None, "snippet": None}
    nothing = result(title=None, project=None, last_ts=None, session=None, records=[record])
    stub.answers(found(nothing))
    done = fablectl("search", "x")
    assert done.returncode == 0, done.stderr
    assert THREAD.encode() in done.stdout


def test_sessions_away_from_a_terminal_show_whole_ids(stub):
    """A script may cut the first column; a person sees what the client deleted."""
    stub.answers({"sessions": [session(), session(session="s2", vanished=True, live_path=None)]})
    head, first, second = fablectl("sessions").stdout.decode().splitlines()
    assert head.split()[0] == "SESSION"
    assert first.split()[0] == SESSION
    assert "deleted by the client" not in first
    assert "deleted by the client" in second


def test_session_shows_threads_files_and_damage(stub):
    """Ids whole, places by line and offset, what is not indexed yet by size."""
    stub.answers(one_session(events=[event(detail={"bytes": 7})]))
    said = fablectl("session", SESSION).stdout.decode()
    for wanted in (THREAD, SESSION, "not JSON", "offset 812", "100 kB not indexed", "bytes 7"):
        assert wanted in said


def test_block_as_json_holds_every_byte(stub):
    """Text where it is text, base64 where it is not."""
    stub.says(reply(b'{"a": "\xc3\xa9"}\n'))
    said = json.loads(fablectl("block", RECORD, "--json").stdout)
    assert said == {"uuid": RECORD, "bytes": 12, "text": '{"a": "é"}\n', "base64": None}
    stub.says(reply(b"\xff\x00"))
    said = json.loads(fablectl("block", RECORD, "--json").stdout)
    assert said == {"uuid": RECORD, "bytes": 2, "text": None, "base64": "/wA="}


def test_configuration_is_shown_without_a_daemon(socket_path, tmp_path):
    """`show` with sources, `path`, `check`; exit 7 and the reason when it is wrong."""
    file = tmp_path / "c.toml"
    file.write_text("[archive]\nquiet = 5\n")
    option = ("--config", str(file))
    shown = json.loads(fablectl(*option, "config", "show", "--json").stdout)
    assert shown["places"]["socket"] == str(socket_path)
    assert shown["settings"]["archive.quiet"] == {"value": 5, "source": "file"}
    assert fablectl(*option, "config", "path").stdout == f"{file}\n".encode()
    assert fablectl(*option, "config", "check").returncode == 0
    file.write_text("[archive]\nquiet = -1\n")
    wrong = fablectl(*option, "config", "check")
    assert wrong.returncode == 7
    assert b"archive.quiet = -1" in wrong.stderr


def test_configuration_path_of_any_bytes_is_printed(socket_path):
    """A folder's name may be no text; the command still ends well."""
    done = fablectl("config", "path", env={"FABLED_CONFIG": os.fsdecode(b"/x/\xff.toml")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"/x/")

"""Terms, citations, cards, secrets, agents and hooks through the daemon and its clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cards.test_providers import Endpoint, chat
from tests.e2e.test_vault import daemon, post, traces, write
from tests.support.daemons import CLIENT
from tests.support.http_socket import ask
from tests.support.transcripts import line, prompt, reply, tool_result, uid
from tests.support.waiting import until

STILL = "[archive]\nenabled = false\n[prune]\nenabled = false\n"
SECRET = "ghp_" + "a1B2" * 9
CARD = {"title": "Why sqlite", "type": "decision", "summary": "One file, no server."}


@pytest.fixture
def projects(tmp_path):
    """Two sessions, one of them with a secret in it."""
    root = tmp_path / "claude" / "projects"
    write(
        root / "-p" / "s1.jsonl",
        prompt("a", None, f"fix src/store.py, the token is {SECRET}")
        + reply("b", "a", "Fixed the quokka cache. We decided to use sqlite instead of files."),
    )
    write(root / "-q" / "s2.jsonl", prompt("c", None, "deploy it") + reply("d", "c", "Deployed."))
    return root


@pytest.fixture
def running(tmp_path, projects):
    """A daemon that has studied them."""
    with daemon(tmp_path, projects, STILL) as there:
        there.index()
        yield there


def _text(running, *command):
    done = running.client(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_terms_cards_and_citations_are_answered_when_index_wait_returns(running):
    """As JSON with stable keys, and in words; facets restrict a search."""
    found = json.loads(_text(running, "terms", "--json", "--kind", "target"))
    assert {one["text"] for one in found["terms"]} >= {"src/store.py", "store.py"}
    assert "store.py" in _text(running, "terms", "--prefix", "STORE")
    assert "fix" in _text(running, "terms", uid("a"))
    thread = f"u:{uid('a')}"
    shown = json.loads(_text(running, "cards", "show", thread, "--json"))
    assert shown["card"]["source"] == "extractive"
    assert shown["card"]["generated"] is False
    assert "derived from the thread's words" in _text(running, "cards", "show", thread)
    assert _text(running, "search", "--ids", "--target", "src/store.py", "quokka") == thread + "\n"
    assert _text(running, "search", "--ids", "--operative", "deploy", "quokka") == ""
    assert _text(running, "search", "--ids", "--type", "decision", "quokka") == thread + "\n"
    (result,) = running.search("quokka")["results"]
    assert result["card"]["decisions"] == [
        "We decided to use sqlite instead of files.",
    ]
    assert json.loads(_text(running, "cited", thread, "--json"))["cited_by"] == []


def test_wrong_values_are_usage_errors_that_say_what_is_allowed(running):
    """Unknown kinds, types and threads."""
    assert running.get("/v1/terms", kind="poem").status == 400
    assert running.get("/v1/search", q="x", type="poem").status == 400
    assert running.get("/v1/cards/nothing").status == 404
    assert running.get("/v1/terms/nothing").status == 404
    assert running.get("/v1/cited/nothing").status == 404
    assert running.client("cards", "run").returncode == 1
    bad = ask(running.socket, f"/v1/cards/u:{uid('a')}", method="PUT", body=b"{}")
    assert bad.json()["error"]["code"] == "bad_card"


def test_recall_loop_closes(tmp_path, projects):
    """Recall, paste into a new transcript, index: a citation comes of it, and nothing else."""
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        before = json.loads(_text(running, "terms", "--json", "-n", "1000"))["terms"]
        thread = f"u:{uid('a')}"
        texts = {
            "1": _text(running, "recall", "quokka cache"),
            "2": _text(running, "thread", thread),
            "3": json.dumps(json.loads(_text(running, "recall", "--json", "quokka cache"))["text"]),
            "4": running.json("/v1/agent/search", q="quokka")["text"],
            "5": running.json("/v1/agent/block", uuid=uid("b"))["text"],
            "6": running.json("/v1/agent/cited", thread=thread)["text"],
        }
        for name, text in texts.items():
            assert "quokka" in text or name == "6"
            write(
                projects / "-p" / f"new{name}.jsonl",
                prompt(f"e{name}", None, f"hm {text} ok")
                + tool_result(f"f{name}", f"e{name}", f"toolu_{name}", text),
            )
        running.index()
        results = running.search("quokka cache", n=50)["results"]
        assert [one["thread"] for one in results] == [thread]
        cited = json.loads(_text(running, "cited", thread, "--json"))
        assert len(cited["cited_by"]) == 2 * len(texts)
        assert all(one["known"] for one in cited["cited_by"])
        after = json.loads(_text(running, "terms", "--json", "-n", "1000"))["terms"]
        assert {one["text"] for one in after} == {one["text"] for one in before}
        assert "Recalled by" in _text(running, "cited", thread)


def test_secret_is_in_no_answer_but_the_exact_ones(tmp_path, projects):
    """Not in search, recall, cards, hand-over, titles or agents' pages; in block and raw."""
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        thread = f"u:{uid('a')}"
        home = tmp_path / "run" / "home"
        assert traces(home, SECRET) == []
        assert running.search(SECRET)["results"] == []
        for command in (
            ("search", "--json", "token"),
            ("recall", "token store"),
            ("thread", thread),
            ("cards", "show", thread),
            ("handoff", "s1"),
            ("sessions", "--json"),
            ("session", "s1", "--json"),
            ("terms", "--json", "-n", "1000"),
        ):
            assert SECRET not in _text(running, *command), command
        assert SECRET not in running.json("/v1/agent/block", uuid=uid("a"))["text"]
        assert SECRET in _text(running, "block", uid("a"))
        assert SECRET in _text(running, "thread", "--raw", thread)
    with daemon(tmp_path, projects, STILL + "[index]\nredact = false\n") as running:
        running.index()
        assert len(running.search(SECRET)["results"]) == 1
        assert SECRET in _text(running, "thread", f"u:{uid('a')}")
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        assert running.search(SECRET)["results"] == []


def test_card_put_by_hand_is_kept_over_a_rebuild_and_forgotten_with_its_thread(tmp_path, projects):
    """It is a file of its own; `forget` leaves nothing of it."""
    thread = f"u:{uid('a')}"
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    home = tmp_path / "run" / "home"
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        _text(running, "cards", "put", thread, str(tmp_path / "card.json"))
        assert running.search("quokka")["results"][0]["card"]["title"] == "Why sqlite"
        running.index(rebuild=1)
        assert running.json(f"/v1/cards/{thread}")["card"]["source"] == "manual"
        assert traces(home, "One file, no server") != []
        assert ask(running.socket, f"/v1/forget?name={thread}", method="POST").status == 200
        assert running.search("quokka")["results"] == []
        until(lambda: traces(home, "One file, no server") == [], 20)


def test_provider_writes_cards_records_failures_and_goes_on(tmp_path, projects):
    """Through a real endpoint: a dry run sends nothing, a run keeps what it got, faults and all."""
    endpoint = Endpoint()
    config = STILL + (
        f'[cards]\nprovider = "openai"\nurl = "{endpoint.url}"\nmodel = "small"\n'
        'per_minute = 6000\nattempts = 1\ndaily_tokens = 0\nkey_env = "SOME_KEY"\n'
    )
    try:
        with daemon(tmp_path, projects, config, SOME_KEY="key-7") as running:
            running.index()
            dry = _text(running, "cards", "run", "--dry-run")
            assert "quokka" in dry
            assert SECRET not in dry
            assert endpoint.asked == []
            endpoint.script = [(500, b"no"), (200, chat(json.dumps(CARD)))]
            done = json.loads(_text(running, "cards", "run", "--json"))
            assert (done["written"], done["failed"]) == (1, 1)
            assert endpoint.keys == ["Bearer key-7"] * 2
            assert not any(SECRET in json.dumps(one) for one in endpoint.asked)
            failed = [one["thread"] for one in done["steps"] if one["step"] == "failed"]
            shown = running.json(f"/v1/cards/{failed[0]}")
            assert shown["failure"]["code"] == "provider_failed"
            assert shown["card"]["source"] == "extractive"
            written = [one["thread"] for one in done["steps"] if one["step"] == "card"]
            card = running.json(f"/v1/cards/{written[0]}")["card"]
            assert (card["source"], card["model"], card["generated"]) == ("openai", "small-1", True)
            assert "may be wrong" in _text(running, "cards", "show", written[0])
            endpoint.script = [(200, chat(json.dumps(CARD)))]
            done = json.loads(_text(running, "cards", "run", "--json"))
            assert (done["written"], done["failed"]) == (1, 0)
            assert json.loads(_text(running, "cards", "run", "--json"))["written"] == 0
            assert [e for e in running.events() if e["level"] == "error"] == []
    finally:
        endpoint.close()


def test_cards_job_stays_within_its_daily_budget_and_writes_by_itself(tmp_path, projects):
    """A program as provider; the budget of today ends the job, not an error."""
    program = tmp_path / "write.py"
    program.write_text(f"import sys\nsys.stdin.read()\nprint('''{json.dumps(CARD)}''')\n")
    config = STILL + (
        f'[cards]\nprovider = "command"\ncommand = ["{sys.executable}", "-I", "{program}"]\n'
        "per_minute = 6000\n"
    )
    with daemon(tmp_path, projects, config) as running:
        running.index()
        done = json.loads(_text(running, "cards", "run", "--json"))
        assert done["written"] == 2
        jobs = {job["name"]: job for job in running.status()["jobs"]}
        assert jobs["cards"]["failures"] == 0


def _mcp(running):
    (program, *more) = CLIENT
    keep = ("FABLED_HOME", "HOME", "CLAUDE_CONFIG_DIR", "PATH")
    environment = {name: running.environment[name] for name in keep}
    return StdioServerParameters(command=program, args=[*more, "mcp"], env=environment)


def _said(done):
    (content,) = done.content
    return content.text


async def _calls(running, *calls):
    async with Client(stdio_client(_mcp(running))) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answers = []
        for name, given in calls:
            done = await client.call_tool(name, given)
            answers.append((done.is_error, _said(done)))
        template = (await client.list_resource_templates()).resource_templates[0].uri_template
        return tools, answers, template


def test_agents_are_served_over_mcp_read_only_and_wrapped(running):
    """The SDK's own client over stdio: schemas, answers with our mark, errors in words."""
    thread = f"u:{uid('a')}"
    calls = [
        ("search", {"query": "quokka", "limit": 1}),
        ("recall", {"query": "why sqlite", "budget": 500}),
        ("thread", {"thread": thread}),
        ("block", {"uuid": uid("b"), "length": 40}),
        ("sessions", {"limit": 1}),
        ("terms", {"kind": "target", "limit": 5}),
        ("cited", {"thread": thread}),
        ("status", {}),
        ("thread", {"thread": "nothing"}),
        ("search", {"query": ""}),
        ("search", {"query": "quokka", "target": "no/such.path"}),
    ]
    tools, answers, template = anyio.run(_calls, running, *calls)
    assert set(tools) == {name for name, _ in calls}
    for tool in tools.values():
        assert tool.annotations.read_only_hint is True
        assert tool.description
        assert all(
            "type" in one or "anyOf" in one for one in tool.input_schema["properties"].values()
        )
    wrapped = [text.startswith("<historical_context ") for _, text in answers[:7]]
    assert wrapped == [True] * 7
    assert [failed for failed, _ in answers] == [False] * 8 + [True, True, False]
    assert "no thread and no record is called nothing" in answers[8][1]
    assert "0 results" in answers[10][1]
    assert template == "fabled://thread/{thread}"


async def _patient(running, start):
    async with Client(stdio_client(_mcp(running))) as client:
        first = await client.call_tool("status", {})
        await anyio.to_thread.run_sync(start)
        second = await client.call_tool("status", {})
        return first.is_error, _said(first), second.is_error


def test_mcp_server_finds_a_daemon_that_starts_later(tmp_path, projects):
    """Away: a tool error that says how to start it; there: an answer, on the same connection."""
    there = daemon(tmp_path, projects, STILL)
    there.stop()
    started = []
    try:
        failed, text, later = anyio.run(
            _patient, there, lambda: started.append(daemon(tmp_path, projects, STILL))
        )
    finally:
        for one in started:
            one.stop()
    assert failed
    assert "fabled" in text
    assert not later


def _hook(running, event, **more):
    began = time.monotonic()
    command = [sys.executable, "-I", "-m", "fabled.client.hook"]
    said = json.dumps({"hook_event_name": event, **more}).encode()
    done = subprocess.run(
        command, input=said, env=running.environment, capture_output=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout, time.monotonic() - began


def test_hooks_seal_before_a_compaction_and_at_the_end_and_point_back_after(running, projects):
    """They return at once; what they ask for happens; outside paths are nobody's business."""
    path = projects / "-p" / "s1.jsonl"
    assert _hook(running, "PreCompact", transcript_path=str(path), session_id="s1")[0] == b""
    until(lambda: running.status()["vault"]["generations"] == 1, 20)
    with path.open("ab") as file:
        file.write(reply("7", "b", "one more"))
    assert _hook(running, "SessionEnd", transcript_path=str(path), session_id="s1")[0] == b""
    until(lambda: running.status()["vault"]["generations"] == 2, 20)
    assert running.search("more")["results"] != []
    out, _ = _hook(running, "SessionStart", session_id="s1", source="compact")
    said = json.loads(out)["hookSpecificOutput"]
    assert said["hookEventName"] == "SessionStart"
    assert f"u:{uid('a')}" in said["additionalContext"]
    assert said["additionalContext"].startswith("<historical_context ")
    assert SECRET not in said["additionalContext"]
    _hook(running, "PreCompact", transcript_path="/etc/passwd", session_id="x")
    _hook(running, "PreCompact", transcript_path=str(projects / ".." / ".." / "x"), session_id="x")
    _hook(running, "SessionStart", session_id="unknown")
    assert running.status()["vault"]["generations"] == 2


def test_hook_without_a_daemon_or_with_garbage_does_nothing_and_succeeds(tmp_path, projects):
    """A client never fails because of it."""
    there = daemon(tmp_path, projects, STILL)
    there.stop()
    assert _hook(there, "PreCompact", transcript_path="/x")[0] == b""
    for said in (b"", b"{", b"[1]", b"\xff" * 100, b'{"hook_event_name": 3}'):
        done = subprocess.run(
            [sys.executable, "-I", "-m", "fabled.client.hook"],
            input=said,
            env=there.environment,
            capture_output=True,
            check=False,
            timeout=20,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_integration_is_shown_before_it_is_done_and_needs_the_client(tmp_path, running):
    """A dry run writes nothing; without the client's program nothing is done either."""
    said = _text(running, "integrate", "claude-code", "--dry-run")
    assert "claude plugin install fabled@fabled" in said
    assert not (running.home / "integrations").exists()
    environment = {**running.environment, "PATH": str(tmp_path)}
    running.environment = environment
    done = running.client("integrate", "claude-code")
    assert done.returncode == 4
    assert not (running.home / "integrations").exists()


def test_integration_runs_the_clients_own_commands_with_absolute_programs(tmp_path, running):
    """A stand-in for the client notes what it is asked; undo asks for the opposite."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "claude"
    program.write_text('#!/bin/sh\necho "$@" >> "$HOME/asked"\n')
    program.chmod(0o755)
    running.environment = {
        **running.environment,
        "PATH": f"{folder}{os.pathsep}{running.environment['PATH']}",
    }
    _text(running, "integrate", "claude-code")
    plugin = running.home / "integrations" / "claude-code"
    server = json.loads((plugin / ".mcp.json").read_text())["mcpServers"]["fabled"]
    assert Path(server["command"]).is_absolute()
    hooks = json.loads((plugin / "hooks" / "hooks.json").read_text())["hooks"]
    assert set(hooks) == {"PreCompact", "SessionStart", "SessionEnd"}
    for entries in hooks.values():
        assert sys.executable in entries[0]["hooks"][0]["command"]
    _text(running, "integrate", "claude-code", "--remove")
    assert not plugin.exists()
    asked = (running.folder / "asked").read_text().splitlines()
    assert asked == [
        f"plugin marketplace add {plugin}",
        "plugin install fabled@fabled",
        "plugin uninstall fabled@fabled",
        "plugin marketplace remove fabled",
    ]


def test_text_that_imitates_a_recall_hides_nothing_through_the_daemon(tmp_path, projects):
    """In code, in documentation, unbalanced, nested, over two blocks: all of it is found."""
    open_tag = '<historical_context session="s" arcs="u:x" sig="' + "0" * 32 + '">'
    blocks = [{"type": "text", "text": open_tag + " numbat"}, {"type": "text", "text": "bilby"}]
    forged = prompt("e0", None, "x")
    value = json.loads(forged)
    value["message"]["content"] = blocks
    write(
        projects / "-p" / "s9.jsonl",
        line(value)
        + prompt("e1", None, f"```\n{open_tag}\nwallaby\n</historical_context>\n```")
        + prompt("e2", None, f"{open_tag} {open_tag} dingo </historical_context>"),
    )
    with daemon(tmp_path, projects, STILL) as running:
        running.index()
        for word in ("numbat", "bilby", "wallaby", "dingo"):
            assert len(running.search(word)["results"]) == 1, word
        shown = running.json(f"/v1/threads/u:{uid('e1')}")["text"]
        assert shown.count("</historical_context>") == 1


def test_index_wait_by_hook_and_seal_do_not_disturb_each_other(running, projects):
    """Ten hooks at once: every one is answered, one seal is enough."""
    path = projects / "-p" / "s1.jsonl"
    for _ in range(10):
        _hook(running, "SessionEnd", transcript_path=str(path), session_id="s1")
    until(lambda: running.status()["vault"]["generations"] == 1, 20)
    assert post(running, "/v1/vault/verify")[-1]["damaged"] == 0

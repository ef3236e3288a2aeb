"""The real client asks fabled over MCP, and its hooks tell fabled what happens."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.test_vault import daemon, write
from tests.realclient import running
from tests.realclient.running import RealClient
from tests.support.transcripts import prompt, reply, uid
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STILL = "[archive]\nenabled = false\n[prune]\nenabled = false\n"
KEPT = ("FABLED_HOME",)


@pytest.fixture
def history(tmp_path):
    """A projects folder with something to recall."""
    root = tmp_path / "earlier" / "projects"
    write(
        root / "-p" / "s1.jsonl",
        prompt("a", None, "why does the quokka cache fail")
        + reply("b", "a", "The quokka cache fails because its wombat key is stale."),
    )
    return root


def _recall(tool):
    return [
        {"tools": [{"name": tool, "input": {"query": "quokka cache wombat", "budget": 800}}]},
        {"text": "I looked it up."},
    ]


def test_tool_call_reaches_fabled_and_the_answer_is_not_indexed_again(newest, tmp_path, history):
    """The model calls recall; the words come back; that very session adds a citation, no words."""
    with RealClient(newest, tmp_path / "client", shared_paths=True) as client:
        with daemon(tmp_path, history, STILL) as there:
            there.index()
        roots = os.pathsep.join((str(history), str(client.projects)))
        with daemon(tmp_path, history, STILL, FABLED_PROJECTS=roots) as there:
            there.index()
            server = {
                "command": sys.executable,
                "args": ["-m", "fabled.client.main", "mcp"],
                "env": {name: there.environment[name] for name in KEPT},
            }
            config = json.dumps({"mcpServers": {"fabled": server}})
            asked = ("--mcp-config", config, "--strict-mcp-config")
            sent = client.turn("What about it?", _recall("mcp__fabled__recall"), *asked)
            (result,) = running.results(sent)
            assert "because its wombat key is stale" in json.dumps(result)
            assert "<historical_context " in json.dumps(result)
            assert b"wombat key is stale" in client.transcript.read_bytes()
            there.index()
            found = there.search("fails because stale", n=20)["results"]
            thread = f"u:{uid('a')}"
            assert [one["thread"] for one in found] == [thread]
            (by,) = there.json(f"/v1/cited/{thread}")["cited_by"]
            assert by["session"] == client.session


def test_plugin_recalls_and_its_hooks_seal_and_point_back(newest, tmp_path, history):
    """Installed as `integrate` writes it: the session is sealed at its end and at compaction."""
    with RealClient(newest, tmp_path / "client", shared_paths=True) as client:
        roots = os.pathsep.join((str(history), str(client.projects)))
        with daemon(tmp_path, history, STILL, FABLED_PROJECTS=roots) as there:
            plugin = _installed(tmp_path, there)
            settings = json.dumps({"env": {name: there.environment[name] for name in KEPT}})
            asked = ("--plugin-dir", str(plugin), "--settings", settings)
            sent = client.turn(
                "What about it?", _recall("mcp__plugin_fabled_fabled__recall"), *asked
            )
            (result,) = running.results(sent)
            assert "because its wombat key is stale" in json.dumps(result)
            found = until(lambda: _sealed(there, client.session), 30)
            assert "session end" in {one["reason"] for one in found}
            client.turn("/compact", None, "--resume", client.session, *asked)
            found = until(lambda: len(_sealed(there, client.session)) > 1, 30)
            reasons = {one["reason"] for one in _sealed(there, client.session)}
            assert reasons >= {"before a compaction"}
            assert b"fabled still has every word of it" in client.transcript.read_bytes()
            there.index()
            assert there.search("guess at what was said, done or decided", n=5)["results"] == []


def _installed(tmp_path, there):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\n")
    (folder / "claude").chmod(0o755)
    there.environment = {
        **there.environment,
        "PATH": f"{folder}{os.pathsep}{there.environment['PATH']}",
    }
    done = there.client("integrate", "claude-code")
    assert done.returncode == 0, done.stderr
    return Path(there.home) / "integrations" / "claude-code"


def _sealed(there, session):
    generations = there.json("/v1/vault", session=session)["generations"]
    return [one for one in generations if one["session"] == session]

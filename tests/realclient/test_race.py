"""A real client writes while its transcript is pruned and taken back again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.realclient import running
from tests.realclient.running import RealClient
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PRUNER = Path(__file__).parent / "prune_once.py"
REPLACEMENTS = 100
MOST_TURNS = 400
AT_ONCE = 2
FORGETFUL = ("2.0.77",)
"""Of two tools at once, this client sends one after a resume, pruned or not (measured)."""


class Pruner:
    """`prune_once.py --loop` as a process of its own; its last counts."""

    def __init__(self, path, home):
        self.counts = {}
        self._log = home.with_suffix(".log").open("wb+")
        self._command = [sys.executable, str(PRUNER), "--home", str(home)]
        self._path = str(path)
        self._process: Any = subprocess.Popen(
            [*self._command, "--loop", self._path],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def replaced(self):
        """How often the file was replaced until now."""
        self._log.seek(0)
        lines = [line for line in self._log.read().splitlines(keepends=True) if line[:1] == b"{"]
        whole = [line for line in lines if line.endswith(b"\n")]
        self.counts = json.loads(whole[-1]) if whole else {}
        assert self._process.poll() is None, self._text()
        return self.counts.get("pruned", 0) + self.counts.get("undone", 0)

    def _text(self):
        self._log.seek(0)
        return self._log.read().decode()[-4000:]

    def end(self):
        """Stop, then start once more and put right what the stop left."""
        self._process.stdin.close()
        assert self._process.wait(60) == 0, self._text()
        subprocess.run([*self._command, "--recover", self._path], check=True, capture_output=True)

    def close(self):
        """End whatever is still there."""
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(60)
        self._log.close()


def steps(turn):
    """Two tools at once, then words."""
    calls = [
        {"name": "Bash", "input": {"command": f"echo {turn}-{n}", "description": "scripted"}}
        for n in range(AT_ONCE)
    ]
    return [{"text": f"first {turn:03d}", "tools": calls}, {"text": f"done {turn:03d}"}]


def said(turn):
    """Both sides' words of a turn."""
    return [
        ("user", f"Stress turn {turn:03d}."),
        ("assistant", f"first {turn:03d}"),
        ("assistant", f"done {turn:03d}"),
    ]


def test_race_with_a_real_client_loses_nothing_in_a_hundred_replacements(version, tmp_path):
    """Every word and result of every turn is sent when the session is resumed, in order."""
    with RealClient(version, tmp_path / "client") as client:
        client.open()
        lived = client.say(f"Stress turn {0:03d}.", steps(0))
        path = until(lambda: client.transcript)
        pruner, turns = Pruner(path, tmp_path / "home"), 1
        try:
            until(pruner.replaced)
            while pruner.replaced() < REPLACEMENTS and turns < MOST_TURNS:
                lived = client.say(f"Stress turn {turns:03d}.", steps(turns))
                turns += 1
            assert client.close_stream() == 0
            until(lambda: path.read_bytes().endswith(b"\n"))
            replaced, counts = pruner.replaced(), pruner.counts
            pruner.end()
        finally:
            pruner.close()
        sent = client.resume("And now?", [{"text": "Enough."}])
        print(f"\n{version}: {turns} turns, {replaced} replacements, {counts}")
        _judge_file(path, turns)
        _judge_messages(version, lived, sent, turns)
    assert replaced >= REPLACEMENTS
    assert not list(path.parent.glob(".fabled-*"))


def _judge_messages(version, lived, sent, turns):
    """What the living process knew is what is sent after a resume."""
    wanted = [word for turn in range(turns) for word in said(turn)]
    assert [word for word in running.words(sent) if word in wanted] == wanted
    known, resumed = running.results(lived), running.results(sent)
    if version in FORGETFUL:
        assert sorted({int(result.partition("-")[0]) for result in resumed}) == list(range(turns))
    else:
        assert resumed == known


def _judge_file(path, turns):
    """Every result is there once, and every link leads to a record."""
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    uuids = [record["uuid"] for record in records if record.get("uuid")]
    assert len(set(uuids)) == len(uuids)
    outputs = [
        str(block["content"])
        for record in records
        if record["type"] == "user" and isinstance(record["message"]["content"], list)
        for block in record["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert sorted(outputs) == sorted(f"{turn}-{n}" for turn in range(turns) for n in range(AT_ONCE))
    parents = {record["parentUuid"] for record in records if record.get("parentUuid")}
    assert parents <= set(uuids)

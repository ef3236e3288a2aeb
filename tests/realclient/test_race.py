"""A real client writes while its transcript is pruned and taken back again and again."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
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
        self.counts: Counter[str] = Counter()
        self.kills = 0
        self._log = home.with_suffix(".log")
        self._command = [sys.executable, str(PRUNER), "--home", str(home)]
        self._path = str(path)
        self._process = self._start()

    def _start(self) -> Any:
        self._before = self.counts.copy()
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [*self._command, "--loop", self._path],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def replaced(self):
        """How often the file was replaced until now, by this process and those before it."""
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        return self._replaced()

    def _replaced(self):
        lines = [line for line in self._log.read_bytes().split(b"\n")[:-1] if line[:1] == b"{"]
        now = Counter(json.loads(lines[-1])) if lines else Counter()
        longest = max(self._before["longest_ms"], now["longest_ms"])
        self.counts = self._before + now
        self.counts["longest_ms"] = longest
        return self.counts["pruned"] + self.counts["undone"]

    def kill(self):
        """As the power cut does, wherever it is; and start anew."""
        self._process.kill()
        self._process.wait(60)
        self._process.stdin.close()
        self._replaced()
        self.kills += 1
        self._process = self._start()

    def end(self):
        """Stop, then start once more and put right what the stop left."""
        self._process.stdin.close()
        assert self._process.wait(60) == 0, self._log.read_text()[-4000:]
        subprocess.run([*self._command, "--recover", self._path], check=True, capture_output=True)

    def close(self):
        """End whatever is still there."""
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(60)


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
    pruner = _race(version, tmp_path, lambda _pruner: None)
    assert pruner.counts["pruned"] + pruner.counts["undone"] >= REPLACEMENTS


def test_race_with_a_real_client_loses_nothing_when_the_pruner_is_killed(newest, tmp_path):
    """The same, when the pruner dies at any moment and its next start finishes what it began."""
    pruner = _race(newest, tmp_path, _killing(random.Random(11)))
    assert pruner.kills >= 10


def _killing(rng):
    """Kill the pruner once it has replaced the file a few times more."""
    due = 0

    def kill(pruner):
        nonlocal due
        if pruner.replaced() >= due:
            threading.Event().wait(rng.random() * 0.05)
            pruner.kill()
            due = pruner.replaced() + rng.randrange(1, 12)

    return kill


def _race(version, tmp_path, meanwhile):
    """Turns against a pruner until the file was replaced often enough; nothing may be lost."""
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
                meanwhile(pruner)
            assert client.close_stream() == 0
            until(lambda: path.read_bytes().endswith(b"\n"))
            replaced = pruner.replaced()
            pruner.end()
        finally:
            pruner.close()
        sent = client.resume("And now?", [{"text": "Enough."}])
        print(f"\n{version}: {turns} turns, {replaced} replacements, {dict(pruner.counts)}")
        _judge_file(path, turns)
        _judge_messages(version, lived, sent, turns)
    assert not list(path.parent.glob(".fabled-*"))
    return pruner


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

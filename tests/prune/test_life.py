"""A transcript's whole life with fabled beside it: nothing that was ever complete gets lost."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fabled.errors import NothingToGain, PruneDeclined, UndoImpossible
from fabled.map import queries
from fabled.recall.verbatim import read
from fabled.vault.restore import restore
from tests.support.oracle import objects
from tests.support.pruning import MAIN, Workbench
from tests.support.transcripts import line, prompt, record, reply, tool_call, tool_result, uid

if TYPE_CHECKING:
    from pathlib import Path

OTHER = "-p/s2.jsonl"
names = st.sampled_from([MAIN, OTHER])
sizes = st.integers(0, 1500)
levels = st.sampled_from(["transparent", "lean"])
modes = st.sampled_from(["resume", "resume", "extract"])


class Life(RuleBasedStateMachine):
    """Client, archive, prune, undo and deletion in any order over two transcripts."""

    scratch: Path

    @initialize()
    def begin(self):
        self.folder = self.scratch / f"run{len(os.listdir(self.scratch))}"
        self.bench = Workbench(self.folder)
        self.count = 0
        self.last = {MAIN: None, OTHER: None}
        self.lines = set()
        self.longest = {}
        self.stack: dict[str, list] = {MAIN: [], OTHER: []}
        self.undone: dict[str, set] = {MAIN: set(), OTHER: set()}

    # --- the client ---

    def next(self):
        self.count += 1
        return f"n{self.count}"

    def put(self, name, data):
        (self.bench.root / name).parent.mkdir(parents=True, exist_ok=True)
        self.bench.append(name, data)
        self.saw(data)

    def saw(self, data):
        self.lines.update(data.splitlines(keepends=True))
        for _, raw, value in objects(data):
            uuid = value.get("uuid")
            if isinstance(uuid, str) and len(raw) > len(self.longest.get(uuid, b"")):
                self.longest[uuid] = raw

    @rule(name=names, size=sizes, bulk=st.booleans())
    def talk(self, name, size, bulk):
        ask, call, result, answer = (self.next() for _ in range(4))
        data = prompt(ask, self.last[name], "please " * 3)
        data += tool_call(call, ask, f"toolu_{call}", "x" * size)
        data += tool_result(result, call, f"toolu_{call}", "r" * size)
        if bulk:
            data += line({"type": "api-request-blob", "blob": "b" * size})
            data += line({"type": "mode", "mode": self.next()})
        data += reply(answer, result, "done")
        self.last[name] = answer
        self.put(name, data)

    @rule(name=names)
    def compact(self, name):
        if self.last[name] is None:
            return
        wall, summary = self.next(), self.next()
        boundary = {
            **record("system", wall),
            "subtype": "compact_boundary",
            "parentUuid": None,
            "logicalParentUuid": uid(self.last[name]),
            "compactMetadata": {"trigger": "auto", "preTokens": 1},
        }
        told = record("user", summary, wall, text="This session is being continued")
        self.put(name, line(boundary) + line({**told, "isCompactSummary": True}))
        self.last[name] = summary

    @rule(name=names)
    def progress(self, name):
        step = self.next()
        value = record("progress", step, self.last[name], text="")
        self.put(name, line({**value, "data": {"type": "hook_progress"}}))
        self.last[name] = step

    @rule(name=names, junk=st.sampled_from([b"{broken\n", b"\0\0\n", b"[1]\n", b"\xff\xfe\n"]))
    def damage(self, name, junk):
        if self.last[name] is not None:
            self.put(name, junk)

    @rule(name=names)
    def rewritten_by_the_client(self, name):
        path = self.bench.root / name
        if not path.exists():
            return
        self.bench.seal(name)  # it was quiet before
        fresh = self.next()
        data = prompt(fresh, None, "a fresh start")
        other = path.with_suffix(".compact.tmp.1")
        other.write_bytes(data)
        other.replace(path)
        self.last[name] = fresh
        self.stack[name] = []
        self.saw(data)

    @rule(name=names)
    def swept_by_the_client(self, name):
        path = self.bench.root / name
        if not path.exists():
            return
        self.bench.seal(name)
        before, mode = path.read_bytes(), path.stat().st_mode
        path.unlink()
        self.check_lines()
        newest = self.bench.lineage(name)[-1]
        restore(self.bench.vault, self.bench.system.files, newest, str(path), keep_mtime=False)
        assert path.read_bytes() == before
        assert path.stat().st_mode == mode

    # --- fabled ---

    @rule(name=names)
    def archive(self, name):
        if (self.bench.root / name).exists():
            self.bench.seal(name)

    @rule(name=names, level=levels, mode=modes, keep=st.integers(0, 2))
    def prune(self, name, level, mode, keep):
        path = self.bench.root / name
        if not path.exists():
            return
        before = path.read_bytes()
        try:
            done = self.bench.prune(name, now_ms=self.count, level=level, mode=mode, keep=keep)
        except (NothingToGain, PruneDeclined):
            assert path.read_bytes() == before
            return
        after = path.read_bytes()
        assert len(after) < len(before)
        self.stack[name].append((done.generation.card.number, before, len(after)))

    @rule(name=names)
    def undo(self, name):
        path = self.bench.root / name
        if not path.exists():
            return
        now = path.read_bytes()
        if not self.stack[name]:
            with pytest.raises(UndoImpossible):
                self.bench.undo(name, self.undone[name] | self.numbers(name))
            return
        number, before, size = self.stack[name].pop()
        done = self.bench.undo(name, self.undone[name])
        assert done.generation.card.number == number
        assert path.read_bytes() == before + now[size:]
        self.undone[name].add(number)

    def numbers(self, name):
        return {one.card.number for one in self.bench.lineage(name)}

    # --- the promises ---

    @precondition(lambda self: hasattr(self, "bench"))
    @invariant()
    def check_lines(self):
        kept: set[bytes] = set()
        for name in (MAIN, OTHER):
            path = self.bench.root / name
            kept.update(path.read_bytes().splitlines(keepends=True) if path.exists() else ())
            for generation in self.bench.lineage(name):
                kept.update(self.bench.bytes_of(generation).splitlines(keepends=True))
        assert not self.lines - kept, "a line is nowhere"
        assert not list(self.bench.root.rglob("*.jsonl*.tmp*"))

    def teardown(self):
        if not hasattr(self, "bench"):
            return
        self.bench.library.reconcile()
        self.bench.library.reconcile()
        with self.bench.library.snapshots.snapshot() as snapshot:
            for uuid, raw in self.longest.items():
                pointer = queries.record(snapshot, uuid)
                assert pointer is not None, uuid
                found = read(self.bench.library.sources, pointer)
                assert found == raw, (found[:300], raw[:300])
        self.bench.close()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.bench.maps)


@pytest.mark.timeout(280)
def test_nothing_that_was_ever_complete_is_lost(tmp_path):
    """Appends, compactions, rewrites, sweeps, prunes, undos: lines, blocks and images hold."""
    scratch = tmp_path / "life"
    scratch.mkdir()

    class Here(Life):
        pass

    Here.scratch = scratch
    test = Here.TestCase
    test.settings = settings(
        max_examples=60,
        stateful_step_count=25,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    test("runTest").runTest()

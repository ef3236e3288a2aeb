"""Public reports of lost work, each as a test: the Vault and the prune.

Every test names its report; the numbers in the docstrings are the reporters'. The ones on
mass deletion, on an emptied session, on boundaries and on tool pairs are beside the code
they are about: tests/e2e/test_vault.py and tests/prune/test_plan.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

import pytest

from fabled.errors import AccessDenied, DiskFull, FileBusy, GateRefused
from fabled.prune import apply
from fabled.prune.plan import plan
from fabled.prune.values import Plan
from fabled.system import System, real
from fabled.system.effects import Effects
from fabled.system.files import PosixFiles
from fabled.vault.restore import restore
from fabled.vault.verify import verify
from tests.support.pruning import MAIN, Bytes, Workbench, options
from tests.support.transcripts import line, prompt, record, reply, tool_call, tool_result
from tests.support.vaults import Shelter

DAY_S = 86400


def sweep(root):
    """The client's cleanup: what is older than thirty days goes."""
    for path in root.rglob("*.jsonl"):
        if path.stat().st_mtime < time.time() - 30 * DAY_S:
            path.unlink()


def test_v1_restored_session_survives_the_sweep_that_took_it(tmp_path):
    """claude-code 62250: cleanup goes by mtime; what is put back has the time of now."""
    shelter = Shelter(tmp_path)
    shelter.write(MAIN, prompt("a", None, "precious"))
    path = shelter.root / MAIN
    old = time.time() - 90 * DAY_S
    os.utime(path, (old, old))
    generation = shelter.seal(MAIN)
    sweep(shelter.root)
    assert not path.exists()
    files = shelter.system.files
    restore(shelter.vault, files, generation, str(path), keep_mtime=False)
    sweep(shelter.root)
    assert path.read_bytes() == prompt("a", None, "precious")
    path.unlink()
    restore(shelter.vault, files, generation, str(path), keep_mtime=True)
    assert path.stat().st_mtime == pytest.approx(old, abs=1)


class _FailingDisk(Effects):
    """Refuses the nth write or sync with an error of the disk."""

    def __init__(self, at, number):
        self.left, self.number = at, number

    def _maybe(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))

    def write(self, fd, data):
        self._maybe()
        return super().write(fd, data)

    def sync(self, fd):
        self._maybe()
        super().sync(fd)

    def link(self, source, target):
        self._maybe()
        super().link(source, target)


@pytest.mark.parametrize("number", [5, 28])
@pytest.mark.parametrize("at", range(10))
def test_v4_half_written_backup_never_passes_for_a_good_one(tmp_path, at, number):
    """Nora 678: EIO or ENOSPC at each step of a seal: no bad generation, no prune on top of it."""
    with Workbench(tmp_path / "bench") as bench:
        data = prompt("a", None, "x") + tool_call("b", "a", "t", "ls")
        data += tool_result("c", "b", "t", "o" * 4000) + reply("d", "c", "done")
        bench.write(MAIN, data)
        there = real()
        bad = System(PosixFiles(_FailingDisk(at, number)), there.clock, there.processes)
        with (
            Workbench(tmp_path / "bench", bad, maps=tmp_path / "m") as broken,
            contextlib.suppress(DiskFull, AccessDenied),
        ):
            broken.prune()
        again = Workbench(tmp_path / "bench", maps=tmp_path / "n")
        again.put_right()
        for generation in again.vault.catalogue.generations():
            assert verify(again.system.files, again.vault, generation) == []
        if bench.live() != data:
            assert data in [again.bytes_of(one) for one in again.lineage(MAIN)]
        again.close()


def test_p1_lines_appended_round_a_prune_are_never_lost(tmp_path):
    """Cozempic 106: a writer that holds the file open; 500 rounds, a line at each, none lost."""
    with Workbench(tmp_path / "bench") as bench:
        bench.write(MAIN, prompt("p", None, "begin"))
        last, refused = "p", 0
        for number in range(500):
            name = f"r{number}"
            data = tool_call(f"c{number}", last, name, "ls")
            data += tool_result(name, f"c{number}", name, "o" * 50)
            with (bench.root / MAIN).open("ab") as handle:
                handle.write(data)
                handle.flush()
                if number % 25 == 0:
                    with pytest.raises(FileBusy):
                        bench.prune(now_ms=number)
                    refused += 1
            last = name
            if number % 25 == 1:
                bench.prune(now_ms=number)
        uuids = {json.loads(one)["uuid"] for one in bench.live().splitlines()}
        assert len(uuids) == 1001
        assert refused == 20


def test_p4_kept_thinking_is_byte_identical(tmp_path):
    """claude-code 63147: empty thinking with a long signature is never re-serialised."""
    think = record("assistant", "t", "p", message={"id": "m"})
    think["message"]["content"] = [
        {"type": "thinking", "thinking": "", "signature": "Ab+/=" * 400},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}},
    ]
    data = prompt("p", None, "go") + line(think) + tool_result("r", "t", "toolu_1", "o" * 3000)
    for level in ("transparent", "lean"):
        decided = plan(Bytes(data), len(data), "s1", options(level=level, keep=0))
        assert isinstance(decided, Plan)
        touched = [edit for edit in decided.edits if edit.offset < data.index(b"toolUseResult") - 9]
        spared = data.index(line(think))
        assert not [e for e in touched if spared <= e.offset < spared + len(line(think))]


def test_images_go_only_with_a_sealed_copy_and_never_from_the_tail(tmp_path):
    """claude-code 34025: images that block a resume may go before the tail, and are kept."""
    picture = {"type": "image", "source": {"media_type": "image/png", "data": "A" * 9000}}
    asked = []
    for number in range(5):
        value = record("user", f"p{number}", f"p{number - 1}" if number else None)
        value["message"]["content"] = [{"type": "text", "text": "look"}, picture]
        asked.append(line(value))
    with Workbench(tmp_path / "bench") as bench:
        bench.write(MAIN, b"".join(asked))
        bench.prune(level="lean", keep=2)
        assert bench.live().endswith(b"".join(asked[3:]))
        assert bench.live().count(b"A" * 9000) == 2
        assert bench.bytes_of(bench.lineage(MAIN)[0]) == b"".join(asked)


def test_records_without_uuid_are_covered_by_the_gate(tmp_path):
    """4 % of records have no uuid: the gate wants each of them in the Map as well."""
    nameless = line({"type": "queue-operation", "operation": "enqueue", "content": "do it"})
    data = prompt("a", None, "x") + nameless + line({"type": "api-request", "x": "y" * 99})
    with Workbench(tmp_path / "bench") as bench:
        bench.write(MAIN, data + reply("b", "a", "ok"))
        at = data.index(nameless)
        known = bench.bench.indexed

        def without(generation):
            return {spot for spot in known(generation) if spot.offset != at}

        blind = bench.bench._replace(indexed=without)
        with pytest.raises(GateRefused, match="1 of 4 records"):
            apply.prune(blind, bench.origin(MAIN), apply.Wish(options()), 1)
        bench.prune()
        assert nameless in bench.live()

"""The Map's main promise: however files came to be, it ends as if built from scratch."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fabled.system import real
from fabled.transcript.sentinel import wrap
from fabled.vault.store import Vault
from fabled.vault.values import Origin, Receipt
from tests.support.dump import dump, studied
from tests.support.maps import KEY, Library
from tests.support.transcripts import line, prompt, record, reply, tool_call, tool_result, uid

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"r{number}" for number in range(8)]
RECALL = wrap("words of old " * 5, "s9", ["u:cited"], KEY)
WORDS = [
    "alpha",
    "fix beta gamma in src/beta.py",
    RECALL,
    f"so {RECALL} refactor it",
    "delta \u4e2d\u6587 epsilon",
    "parse_config fooBar",
    "x" * 300,
]
FILES = [
    "-a/s1.jsonl",
    "-a/s2.jsonl",
    "-b/s1.jsonl",
    "-a/s1/subagents/agent-abc.jsonl",
    "-a/agent-def.jsonl",
]

names = st.sampled_from(NAMES)
texts = st.sampled_from(WORDS)
parents = st.one_of(st.none(), names)
lines = st.one_of(
    st.builds(prompt, names, parents, texts),
    st.builds(lambda n, p, t: prompt(n, p, t, promptId="PID"), names, parents, texts),
    st.builds(reply, names, parents, texts),
    st.builds(
        lambda n, p, t: reply(n, p, t, isSidechain=True, agentId="abc"), names, parents, texts
    ),
    st.builds(lambda n, p: tool_call(n, p, "toolu_1", "ls", tool="Task"), names, parents),
    st.builds(
        lambda n, p: tool_result(n, p, "toolu_1", "done", result={"agentId": "abc"}), names, parents
    ),
    st.builds(
        lambda n, p: tool_result(n, p, "toolu_2", "done", result={"agentId": "def"}), names, parents
    ),
    st.builds(lambda n: line({"type": "summary", "summary": "sum", "leafUuid": uid(n)}), names),
    st.builds(lambda t: line({"type": "ai-title", "aiTitle": t, "sessionId": "s1"}), texts),
    st.builds(
        lambda n, p: line(
            {
                **record("system", n),
                "subtype": "compact_boundary",
                "logicalParentUuid": p and uid(p),
                "content": "compacted",
            }
        ),
        names,
        parents,
    ),
    st.sampled_from([b"\n", b"{broken\n", b"\0\0\0\n", b"[1]\n", b"\xff\n"]),
)
files = st.sampled_from(FILES)


class Growth(RuleBasedStateMachine):
    """Writes like the client, and unlike it; in the end the two Maps are compared."""

    scratch: Path

    @initialize()
    def begin(self):
        self.folder = self.scratch / f"run{len(os.listdir(self.scratch))}"
        self.root = self.folder / "projects"
        (self.root / "-keep").mkdir(parents=True)
        (self.root / "-keep" / "note.txt").write_text("so that the root is never empty")
        (self.folder / "home").mkdir()
        self.library = Library(self.folder / "home", self.root)
        self.builds = 0

    def path(self, name):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @rule(name=files, more=st.lists(lines, min_size=1, max_size=4), torn=st.integers(0, 30))
    def append(self, name, more, torn):
        data = b"".join(more)
        with self.path(name).open("ab") as handle:
            handle.write(data[: len(data) - torn] if torn < 10 else data)

    @rule(name=files, more=st.lists(lines, max_size=5))
    def rewrite(self, name, more):
        self.path(name).write_bytes(b"".join(more))

    @rule(name=files, more=st.lists(lines, max_size=5))
    def replace(self, name, more):
        path = self.path(name)
        fresh = path.with_suffix(".tmp")
        fresh.write_bytes(b"".join(more))
        fresh.replace(path)

    @rule(name=files, cut=st.integers(1, 200))
    def shrink(self, name, cut):
        path = self.path(name)
        if path.exists():
            os.truncate(path, max(0, path.stat().st_size - cut))

    @rule(name=files, other=files)
    def rename(self, name, other):
        if self.path(name).exists():
            self.path(name).replace(self.path(other))

    @rule(name=files, other=files)
    def copy(self, name, other):
        if self.path(name).exists() and name != other:
            shutil.copyfile(self.path(name), self.path(other))

    @rule(name=files)
    def delete(self, name):
        self.path(name).unlink(missing_ok=True)

    @rule(known=st.booleans())
    def describe_agent(self, known):
        path = self.path("-a/s1/subagents/agent-abc.meta.json")
        path.write_text('{"toolUseId":"toolu_1"}' if known else '{"agentType":"x"}')

    @rule()
    def forget_folder(self):
        shutil.rmtree(self.root / "-b", ignore_errors=True)

    @rule()
    def seal(self):
        self.library.seal()

    @rule(name=files, keep=st.integers(0, 6))
    def prune(self, name, keep):
        path = self.path(name)
        if not path.exists():
            return
        origin = Origin(str(self.root), name)
        fresh = path.with_suffix(".tmp")
        fresh.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[keep:]))
        receipt = Receipt(0, "lean", "resume", 0, 0, {}, 0)
        with real().files.open_read(str(fresh)) as image:
            self.library.vault.keep_pruned(origin, image, image.stat().size, receipt)
        fresh.replace(path)

    @precondition(lambda self: hasattr(self, "library"))
    @rule()
    def reconcile(self):
        self.library.reconcile()

    @precondition(lambda self: hasattr(self, "library"))
    @rule()
    def study(self):
        self.library.reconcile()
        self.library.study()

    def teardown(self):
        if not hasattr(self, "library"):
            return
        self.library.reconcile()
        (self.folder / "scratch").mkdir()
        old = self.library.vault
        vault = Vault(old._files, old._clock, old.root, "zstd")
        with Library(self.folder / "scratch", self.root, vault) as fresh:
            fresh.reconcile()
            fresh.study()
            expected = {**dump(fresh.snapshots), **studied(fresh.snapshots)}
        self.library.study()
        found = {**dump(self.library.snapshots), **studied(self.library.snapshots)}
        self.library.close()
        shutil.rmtree(self.folder)
        for table, rows in expected.items():
            assert found[table] == rows, table


@pytest.mark.timeout(300)
def test_map_grown_in_any_way_equals_map_built_from_scratch(tmp_path):
    """Appended, torn, rewritten, replaced, renamed, copied, deleted: the same Map in the end.

    Terms, their counts, citations and cards included.
    """
    Growth.scratch = tmp_path
    case = Growth.TestCase
    case.settings = settings(
        max_examples=120,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()

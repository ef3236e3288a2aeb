"""Recall over a real Map and real files: what is shown, how it is labelled, what is exact."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.errors import AmbiguousId, NotFound, StaleIndex
from fabled.map import queries
from fabled.model import Filter
from fabled.recall import threads
from fabled.recall.pack import pack
from fabled.recall.search import Request, search
from fabled.recall.snippets import _densest, _places
from fabled.recall.verbatim import read
from fabled.transcript.veil import Veil
from tests.support.maps import KEY, Library
from tests.support.transcripts import line, prompt, record, reply, tool_call, tool_result, uid


@pytest.fixture
def root(tmp_path):
    """A projects folder whose first session has one of everything."""
    folder = tmp_path / "projects"
    (folder / "-p").mkdir(parents=True)
    parallel = {"message": {"id": "msg_1"}}
    (folder / "-p" / "s1.jsonl").write_bytes(
        prompt("p", text="Why is the build slow?", at=0)
        + tool_call("c1", "p", "t1", "make -n", at=1, **parallel)
        + tool_call("c2", "c1", "t2", "nproc", at=2, **parallel)
        + tool_result("r1", "c1", "t1", "cc -O2 main.c", at=3)
        + tool_result("r2", "c2", "t2", "2", at=4)
        + reply("draft", "r2", "An abandoned answer.", at=5)
        + reply("a", "r2", "It compiles everything twice.", at=6)
        + line({"type": "ai-title", "aiTitle": "Slow build", "sessionId": "s1"})
        + reply("side", None, "A helper speaks.", at=7, isSidechain=True, agentId="h1")
        + prompt("q", "a", text="Fix it please", at=8)
        + reply("b", "q", "Done: the Makefile had a double rule.", at=9)
    )
    return folder


@pytest.fixture
def library(tmp_path, root):
    """Its Map."""
    with Library(tmp_path, root) as opened:
        opened.reconcile()
        yield opened


def show(library, name, budget=8000, *, sentinel=False):
    """A thread's answer."""
    with library.snapshots.snapshot() as snapshot:
        files = library.system.files
        return threads.show(snapshot, files, name, budget, Veil(KEY), sentinel=sentinel)


def ask(library, text, **more):
    """A search's results."""
    with library.snapshots.snapshot() as snapshot:
        return search(snapshot, library.system.files, Request(text, **more), Veil(KEY)).results


def test_thread_shows_parallel_calls_and_labels_branches(library):
    """Both calls of one API message and their results belong; the other answer is labelled."""
    text = show(library, "u:" + uid("p"))["text"]
    for words in ("make -n", "nproc", "cc -O2 main.c", "It compiles everything twice."):
        assert words in text
    abandoned = text.split("An abandoned answer.")[0].rsplit("##", 1)[1]
    assert "(abandoned branch)" in abandoned
    assert text.count("(abandoned branch)") == 1


def test_sidechain_in_the_main_file_is_labelled_with_its_agent(library):
    """What a subagent said is never shown as if the conversation had said it."""
    with library.snapshots.snapshot() as snapshot:
        side = queries.record(snapshot, uid("side"))
    assert side is not None
    text = show(library, uid("side"))["text"]
    assert "(sidechain of agent h1)" in text.split("A helper speaks.")[0]


def test_thread_is_found_by_key_uuid_and_beginning(library):
    """The key, the prompt's uuid, any record's uuid, an unambiguous beginning: one thread."""
    names = ["u:" + uid("p"), uid("p"), uid("r2"), uid("p")[:13]]
    assert {show(library, name)["thread"] for name in names} == {"u:" + uid("p")}
    with pytest.raises(NotFound):
        show(library, "nothing")
    with pytest.raises(AmbiguousId):
        show(library, "u:")


def test_raw_thread_is_its_records_byte_for_byte(library, root):
    """Every record of the thread as its line in the transcript, in order."""
    with library.snapshots.snapshot() as snapshot:
        found = threads.find(snapshot, uid("q"))
        raw = b"".join(threads.raw(library.system.files, found))
    assert raw == b"".join((root / "-p" / "s1.jsonl").read_bytes().splitlines(keepends=True)[-2:])


def test_changed_bytes_are_never_given(library, root):
    """A pointer whose file was changed or removed raises; search shows no words for it."""
    path = root / "-p" / "s1.jsonl"
    with library.snapshots.snapshot() as snapshot:
        pointer = queries.record(snapshot, uid("a"))
        assert pointer is not None
        assert json.loads(read(library.system.files, pointer))["uuid"] == uid("a")
        path.write_bytes(path.read_bytes().replace(b"compiles", b"COMPILES"))
        with pytest.raises(StaleIndex):
            read(library.system.files, pointer)
        answer = search(
            snapshot, library.system.files, Request("compiles", level="record"), Veil(KEY)
        )
        assert answer.stale == (str(path),)
        assert answer.results[0]["records"][0]["snippet"] is None
        path.unlink()
        with pytest.raises(StaleIndex):
            read(library.system.files, pointer)


@pytest.mark.parametrize(
    ("project", "count"),
    [
        ("/home/me/project", 1),
        ("project", 1),
        ("me/project", 1),
        ("-p", 1),
        ("roject", 0),
        ("/home", 0),
    ],
)
def test_project_filter_takes_path_folder_and_ending(library, project, count):
    """An absolute path is exact; a folder's name or the last parts of the path will do."""
    found = ask(library, "build", wanted=Filter(project=project), level="session")
    assert len(found) == count


def test_levels_group_alike_and_ties_are_settled(library):
    """A record, the thread it is in, the session that is in; the same order every time."""
    by_level = {
        level: ask(library, "makefile rule build", level=level) for level in ("record", "thread")
    }
    assert [r["thread"] for r in by_level["thread"]] == ["u:" + uid("q"), "u:" + uid("p")]
    assert all(len(r["records"]) == 1 for r in by_level["record"])
    assert by_level["thread"] == ask(library, "makefile rule build", level="thread")
    session = ask(library, "makefile rule build", level="session")
    assert [(r["session"], r["title"]) for r in session] == [("s1", "Slow build")]


def test_recalled_text_is_not_found_again_where_it_is_pasted(library, root):
    """The inception guard: memory quoted in a transcript adds nothing to the index."""
    before = len(ask(library, "makefile", level="record"))
    with library.snapshots.snapshot() as snapshot:
        packed = pack(snapshot, library.system.files, "makefile", Filter(), 2000, Veil(KEY)).reply
    assert "double rule" in packed["text"]
    with (root / "-p" / "s2.jsonl").open("wb") as handle:
        handle.write(prompt("x", text="please recall", session="s2"))
        handle.write(tool_result("y", "x", "t9", packed["text"] + "\nand zanzibar"))
    library.reconcile()
    assert len(ask(library, "makefile", level="record")) == before
    assert len(ask(library, "zanzibar", level="record")) == 1


WORDS = st.text(alphabet="ab \n<>/&\u4e2d", max_size=3000)


@given(
    st.lists(st.tuples(st.sampled_from("uatr"), WORDS), min_size=1, max_size=12),
    st.integers(100, 3000),
)
def test_text_never_exceeds_one_and_a_half_budgets(tmp_path_factory, said, budget):
    """Whatever was said and however little room there is: bounded, and verbatim where uncut."""
    folder = tmp_path_factory.mktemp("budget")
    (folder / "projects" / "-p").mkdir(parents=True)
    lines, parent = [prompt("n", text="begin")], "n"
    for number, (kind, words) in enumerate(said):
        name = f"n{number}"
        make = {
            "u": lambda: line(record("user", name, parent, text=words, isMeta=True)),  # noqa: B023
            "a": lambda: reply(name, parent, words),  # noqa: B023
            "t": lambda: tool_call(name, parent, f"t{name}", words),  # noqa: B023
            "r": lambda: tool_result(name, parent, "t", words),  # noqa: B023
        }[kind]
        lines.append(make())
        parent = name
    (folder / "projects" / "-p" / "s.jsonl").write_bytes(b"".join(lines))
    with Library(folder, folder / "projects") as library:
        library.reconcile()
        answer = show(library, uid("n"), budget, sentinel=True)
    assert len(answer["text"]) <= budget * 4 * 1.5
    if not answer["truncated"]:
        for kind, words in said:
            if kind in "ua" and words.strip("\n"):
                assert words.strip("\n").replace("</", "</") in answer["text"]


def test_snippet_of_a_long_record_with_many_matches_is_found_in_linear_work():
    """Where every word matches thousands of times, finding the densest place stays linear."""
    words = tuple(f"w{n}" for n in range(60))
    text = " ".join(words[n % 60] for n in range(20_000)) + " needle w1 w2 w3"
    places = _places(text, ("needle", *words))
    assert len(places) > 2_000
    counted = CountingList(places)
    start = _densest(counted)
    assert len({word for at, word in places if start <= at < start + 180}) > 40
    assert counted.reads < 20 * len(places)


class CountingList(list):
    """Counts how often its items are read."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return super().__getitem__(index)

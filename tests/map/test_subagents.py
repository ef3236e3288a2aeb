"""Subagents' transcripts belong to the thread that spawned them, however the link is written."""

from __future__ import annotations

import pytest

from fabled.map import queries
from tests.support.maps import Library
from tests.support.transcripts import line, prompt, record, reply, tool_call, tool_result, uid

AGENT = "a1b2c3d"
SIDE = {"isSidechain": True, "agentId": AGENT}


def main(**link):
    """A main transcript with two prompts; the second spawns an agent."""
    return (
        prompt("p1", text="first")
        + reply("a1", "p1", "ok")
        + prompt("p2", "a1", text="second")
        + tool_call("c", "p2", "toolu_9", "look", tool="Task")
        + tool_result("r", "c", "toolu_9", "found", **link)
    )


def agent(first="x1", **more):
    """The agent's transcript: its own prompt and an answer."""
    return prompt(first, text="look for it", **SIDE, **more) + reply("x2", first, "here", **SIDE)


@pytest.fixture
def folder(tmp_path):
    """A project folder."""
    place = tmp_path / "projects" / "-p"
    (place / "s1" / "subagents").mkdir(parents=True)
    return place


def thread(library, name):
    """Key of the thread a record is in."""
    with library.snapshots.snapshot() as snapshot:
        found = queries.record(snapshot, uid(name))
        assert found is not None
        assert found.thread is not None
        return queries.thread_key(snapshot, found.thread)


def by_result(folder):
    """2.1: the id in the tool's result, the file in the session's folder."""
    (folder / "s1.jsonl").write_bytes(main(result={"agentId": AGENT}))
    return folder / "s1" / "subagents" / f"agent-{AGENT}.jsonl"


def by_flat_file(folder):
    """2.0: the same link, the agent's file beside the session."""
    (folder / "s1.jsonl").write_bytes(main(result={"agentId": AGENT}))
    return folder / f"agent-{AGENT}.jsonl"


def by_progress(folder):
    """2.1.12 to 2.1.63: a progress record names the agent."""
    progress = {
        **record("progress", "g", "c"),
        "data": {"type": "agent_progress", "agentId": AGENT},
    }
    (folder / "s1.jsonl").write_bytes(main() + line(progress))
    return folder / "s1" / "subagents" / f"agent-{AGENT}.jsonl"


def by_description(folder):
    """Newer: the agent's description names the tool call."""
    (folder / "s1.jsonl").write_bytes(main())
    place = folder / "s1" / "subagents"
    (place / f"agent-{AGENT}.meta.json").write_text('{"toolUseId":"toolu_9"}')
    return place / f"agent-{AGENT}.jsonl"


@pytest.mark.parametrize("link", [by_result, by_flat_file, by_progress, by_description])
def test_agent_belongs_to_the_prompt_that_spawned_it(tmp_path, folder, link):
    """Every form of the link the client has written leads to the second prompt's thread."""
    link(folder).write_bytes(agent())
    with Library(tmp_path, folder.parent) as library:
        library.reconcile()
        assert thread(library, "x1") == thread(library, "x2") == "u:" + uid("p2")


@pytest.mark.parametrize("link", [by_result, by_flat_file, by_progress, by_description])
def test_order_of_arrival_does_not_matter(tmp_path, folder, link):
    """The agent's file before the main one: its own thread first, the spawner's afterwards."""
    path = link(folder)
    path.write_bytes(agent())
    held = (folder / "s1.jsonl").read_bytes()
    (folder / "s1.jsonl").unlink()
    with Library(tmp_path, folder.parent) as library:
        library.reconcile()
        assert thread(library, "x2") == "u:" + uid("x1")
        (folder / "s1.jsonl").write_bytes(held)
        library.reconcile()
        assert thread(library, "x2") == "u:" + uid("p2")
        (folder / "s1.jsonl").unlink()
        library.reconcile()
        assert thread(library, "x2") == "u:" + uid("x1")


def test_agent_of_an_agent_belongs_to_the_first_prompt(tmp_path, folder):
    """A chain of spawns is followed to its beginning."""
    by_result(folder).write_bytes(
        agent() + tool_result("x3", "x2", "toolu_8", "sub", result={"agentId": "ffff001"}, **SIDE)
    )
    inner = {"isSidechain": True, "agentId": "ffff001"}
    (folder / "s1" / "subagents" / "agent-ffff001.jsonl").write_bytes(
        prompt("y1", text="deeper", **inner)
    )
    with Library(tmp_path, folder.parent) as library:
        library.reconcile()
        assert thread(library, "y1") == "u:" + uid("p2")


def test_agents_that_spawn_each_other_keep_an_end(tmp_path, folder):
    """A circle is cut: every record is in a thread, and indexing ends."""
    for mine, other in (("aaaa", "bbbb"), ("bbbb", "aaaa")):
        side = {"isSidechain": True, "agentId": mine}
        (folder / "s1" / "subagents" / f"agent-{mine}.jsonl").write_bytes(
            prompt(mine, text="go", **side)
            + tool_result(f"{mine}r", mine, "t", "x", result={"agentId": other}, **side)
        )
    with Library(tmp_path, folder.parent) as library:
        library.reconcile()
        assert {thread(library, "aaaa"), thread(library, "bbbb")} <= {
            "u:" + uid("aaaa"),
            "u:" + uid("bbbb"),
        }


def test_prompt_id_in_the_agents_records_is_final(tmp_path, folder):
    """Where the client wrote the parent's promptId, no link is needed and none overrides it."""
    by_result(folder).write_bytes(agent(promptId="PID"))
    with Library(tmp_path, folder.parent) as library:
        library.reconcile()
        assert thread(library, "x1") == "PID"

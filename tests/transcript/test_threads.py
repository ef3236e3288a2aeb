"""Placement into threads: the rules one by one, and growth against placing at once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fabled.model import Placement
from fabled.transcript.threads import Node, Placer

MAIN = "False:"


def node(offset, uuid=None, parent=None, *, link=None, prompt_id=None, prompt=False, lane=MAIN):
    """A record as placement sees it."""
    return Node(offset, uuid, parent, link, prompt_id, prompt, lane)


def place(*nodes):
    """Key of each node's thread, placed at once."""
    return [p.key if p else None for p in Placer().extend(list(nodes)).new]


def test_reply_below_prompt_takes_the_prompts_thread():
    """Rule 2: everything below a prompt belongs to it, until the next prompt."""
    keys = place(
        node(0, "p", prompt=True),
        node(1, "a", "p"),
        node(2, "q", "a", prompt=True),
        node(3, "b", "q"),
    )
    assert keys == ["u:p", "u:p", "u:q", "u:q"]


def test_prompt_id_wins_over_the_prompts_uuid():
    """Rule 1: the client's own key is the thread's key, also for what hangs below."""
    assert place(node(0, "p", prompt=True, prompt_id="PID"), node(1, "a", "p")) == ["PID", "PID"]


def test_dangling_parent_takes_the_lanes_last_thread():
    """Rule 3: behind a missing parent the nearest earlier record of the same lane decides."""
    keys = place(
        node(0, "p", prompt=True),
        node(1, "s", prompt=True, lane="True:x"),
        node(2, "d", "missing"),
        node(3, "e", "d"),
        node(4, "f", "gone", lane="True:x"),
    )
    assert keys[2:] == ["u:p", "u:p", "u:s"]


def test_head_without_prompt_takes_the_first_descendants_thread():
    """Rule 4: a hook's record before the first prompt belongs to that prompt."""
    keys = place(node(0, "h"), node(1, "i", "h"), node(2, "p", "i", prompt=True))
    assert keys == ["u:p", "u:p", "u:p"]


def test_head_without_any_prompt_stands_for_itself():
    """Rule 4: without a prompt below, the head's own uuid is the key."""
    assert place(node(0, "h"), node(1, "i", "h")) == ["head:h", "head:h"]


def test_metadata_takes_its_link_else_its_neighbour():
    """Rule 5: a record without uuid follows its link, else what stands before, else after."""
    keys = place(
        node(0, link="nowhere"),
        node(1, "p", prompt=True),
        node(2, "q", prompt=True),
        node(3, link="p"),
        node(4),
    )
    assert keys == ["u:p", "u:p", "u:q", "u:p", "u:q"]


def test_only_metadata_belongs_to_no_thread():
    """A file that holds no record with a uuid has no thread to give."""
    assert place(node(0), node(1, link="elsewhere")) == [None, None]


def test_circle_of_parents_ends_and_is_deterministic():
    """A chain that bites its tail is placed, whichever record is asked first."""
    nodes = [node(0, "a", "c"), node(1, "b", "a"), node(2, "c", "b")]
    assert place(*nodes) == ["head:a"] * 3
    assert place(node(0, "x", "x")) == ["head:x"]


def test_prompt_arriving_below_a_head_moves_the_head():
    """What was placed provisionally is reported as moved once the prompt is there."""
    placer = Placer()
    assert placer.extend([node(0, "h"), node(1, link="p")]).moved == {}
    placed = placer.extend([node(2, "p", "h", prompt=True)])
    assert placed.new == [Placement("u:p", 2)]
    assert placed.moved == {0: Placement("u:p", 4), 1: Placement("u:p", 5)}


IDS = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", None])
NODES = st.lists(
    st.builds(
        lambda uuid, parent, link, prompt_id, prompt, lane: (
            uuid,
            parent,
            None if uuid else link,
            prompt_id,
            prompt and uuid is not None,
            lane,
        ),
        IDS,
        IDS,
        IDS,
        st.sampled_from([None, None, None, "P", "Q"]),
        st.booleans(),
        st.sampled_from([MAIN, "True:x"]),
    ),
    max_size=12,
)


@given(NODES, st.lists(st.integers(0, 12), max_size=4))
def test_growing_in_any_steps_equals_placing_at_once(rows, cuts):
    """However a file grows, its placements end as if it had been read in one go."""
    nodes = [Node(at, *row) for at, row in enumerate(rows)]
    placer = Placer()
    seen = {}
    edges = sorted({0, len(nodes), *[min(cut, len(nodes)) for cut in cuts]})
    for start, end in pairwise(edges):
        placed = placer.extend(nodes[start:end])
        seen.update(placed.moved)
        seen.update({n.offset: p for n, p in zip(nodes[start:end], placed.new, strict=True)})
    whole = Placer()
    whole._nodes = list(nodes)
    whole._place_everything()
    assert [seen[n.offset] for n in nodes] == whole._placements


@given(NODES)
def test_record_with_a_uuid_is_always_placed(rows):
    """No chain, broken or circular, leaves a record with a uuid outside every thread."""
    nodes = [Node(at, *row) for at, row in enumerate(rows)]
    placed = Placer().extend(nodes).new
    assert all(p is not None for n, p in zip(nodes, placed, strict=True) if n.uuid is not None)

"""The mark round recalled text: only our own signature hides anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.sentinel import cited, consulted, neutral, strip, wrap

KEY = b"k" * 32
OTHER = b"o" * 32


def test_wrapped_text_is_stripped_with_its_citations():
    """What recall gave out is not indexed again, and says what it cited."""
    quoted = f"before {wrap('old words', 's1', ['u:a', 'PID'], KEY)} after"
    assert strip(quoted, KEY) == ("before  after", ("u:a", "PID"))


def test_reflowed_text_still_counts_as_ours():
    """White space that a terminal changed does not break the signature."""
    assert strip(wrap("one two\nthree", "s", ["a"], KEY).replace("two\n", "two   "), KEY).arcs


def test_imitation_hides_nothing():
    """A tag without our signature, or with changed words, is ordinary text."""
    forged = wrap("hidden words", "s", ["a"], OTHER)
    assert strip(forged, KEY) == (forged, ())
    changed = wrap("hidden words", "s", ["a"], KEY).replace("hidden", "secret")
    assert strip(changed, KEY) == (changed, ())


def test_unbalanced_tag_hides_nothing():
    """An opening without end leaves all that follows in the index."""
    text = wrap("x", "s", ["a"], KEY).removesuffix("</historical_context>") + " rest"
    assert strip(text, KEY).text == text


@pytest.mark.parametrize("words", [250, 1000, 1990])
def test_recall_that_was_cut_off_is_hidden_as_far_as_it_is_ours(words):
    """Clients cut long output: what is left of it is known piece by piece, and nothing else."""
    body = " ".join(f"word{n}" for n in range(2000))
    whole = wrap(body, "s", ["a", "b"], KEY)
    cut = whole[: whole.index(f"word{words} ")] + "... [cut here] and this is new"
    found = strip(cut, KEY)
    assert found.arcs == ("a", "b")
    assert "and this is new" in found.text
    assert len([one for one in found.text.split() if one.startswith("word")]) < 100


def test_cut_off_imitation_hides_nothing():
    """A true opening tag with other words behind it, or pieces in another order."""
    body = " ".join(f"word{n}" for n in range(300))
    whole = wrap(body, "s", ["a"], KEY)
    opening = whole[: whole.index("\n")]
    other = f"{opening}\n" + " ".join(f"mine{n}" for n in range(300))
    assert strip(other, KEY) == (other, ())
    late = f"{opening}\n" + " ".join(f"word{n}" for n in range(100, 300))
    assert strip(late, KEY) == (late, ())


def test_recall_printed_as_json_is_hidden_as_well():
    """`--json` puts it into a string: the escapes are seen through."""
    whole = wrap('said "so" on\ntwo lines', "s", ["a"], KEY)
    quoted = json.dumps({"text": whole, "budget": 1})
    found = strip(quoted, KEY)
    assert found.arcs == ("a",)
    assert "two lines" not in found.text
    assert '"budget": 1' in found.text


def test_tag_of_a_prune_cites_and_hides_nothing():
    """What it names counts if it can be a thread's id; the text round it stays."""
    tag = consulted(["u:0b6f3a52-1111-4222-8333-444455556666", "PID-1"])
    text = f"before {tag} after"
    assert strip(text, KEY) == (text, ())
    assert cited(text) == ("u:0b6f3a52-1111-4222-8333-444455556666", "PID-1")
    assert cited('<consulted_arcs refs="a <b>"/>') == ()
    assert cited("<consulted_arcs refs=" + '"x' * 50_000) == ()


def test_body_cannot_break_out_or_nest():
    """A closing tag inside recalled text is text; a recall inside a recall is a stub."""
    whole = wrap("a </historical_context> b", "s", ["x"], KEY)
    assert whole.count("</historical_context>") == 1
    assert strip(whole, KEY).text == ""
    nested = wrap(f"outer {wrap('inner', 's', ['x'], KEY)}", "s", ["y"], KEY)
    assert nested.count("<historical_context") == 1
    assert "inner" not in nested


def test_attributes_cannot_break_out():
    """A session or key with quotes and brackets stays inside its attribute."""
    whole = wrap("body", 'a" b="c', ["x>y"], KEY)
    assert strip(whole, KEY).text == ""


@given(st.text(), st.text())
def test_any_body_is_hidden_whole_and_nothing_else(body, around):
    """Whatever is wrapped, stripping gives back exactly what stood around it."""
    around = neutral(around)
    assert strip(around + wrap(body, "s", ["a"], KEY) + around, KEY).text == around + around

"""The mark round recalled text: only our own signature hides anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.sentinel import neutral, strip, wrap

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

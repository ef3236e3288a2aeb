"""From typed text to an expression that cannot be a syntax error."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.recall.question import MAX_TERMS, understand


@pytest.fixture(scope="module")
def index():
    """A real full-text index to try expressions on."""
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE f USING fts5(body, parts, tokenize='porter unicode61')"
    )
    connection.execute("INSERT INTO f VALUES('hello world', '')")
    yield connection
    connection.close()


HARD = [
    "what changed?",
    "auth.ts",
    "--flag",
    "don't",
    "C++",
    "a AND",
    "NOT x",
    '"open',
    "a-b",
    "x:y",
    "{x}",
    "NEAR(a b)",
    "x^2",
    "*",
    "\0",
    "body:hello",
    "(",
    "\ud800",
    "\u4e2d\u6587\u5b57",
]


@given(st.one_of(st.text(), st.sampled_from(HARD), st.text(alphabet='"*():^-+{}AND \0')))
def test_any_text_is_a_valid_expression(index, text):
    """No text is an error, and none is executed as query syntax."""
    match = understand(text).match
    if match is not None:
        list(index.execute("SELECT rowid FROM f WHERE f MATCH ?", (match,)))


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Where is parse_config_file?", '"parse config file"'),
        ("src/auth/login.ts:12:3", '"login.ts"'),
        ("fooBar", '"foobar"'),
        ("pane index", '"paneindex"'),
        ("\u6570\u636e\u5e93", '"\u6570 \u636e \u5e93"'),
        ("who", '"who"'),
    ],
)
def test_term_is_looked_up_in_every_form_it_may_have(text, term):
    """Identifiers are taken apart and joined, CJK goes by characters, a lone stop word stays."""
    assert term in (understand(text).match or "")


def test_stop_words_are_left_out():
    """A question's small words find everything and mean nothing."""
    assert understand("what is the database").match == '"database"'


def test_long_question_is_cut_and_says_so():
    """More terms than are looked up: the answer has to say that it used the first ones."""
    question = understand(" ".join(f"word{n}x" for n in range(500)))
    assert question.cut
    assert question.match is not None
    assert question.match.count(" OR ") < MAX_TERMS


def test_nothing_to_look_up_is_no_expression():
    """Punctuation alone matches nothing, and that is no error."""
    assert understand("?!, ...").match is None

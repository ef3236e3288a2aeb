"""A thread's vocabulary: the same words give the same terms, of four kinds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.sentences import decisions, sentences
from fabled.transcript.sentinel import wrap
from fabled.transcript.terms import CONCEPT, KINDS, MOST, OPERATIVE, TARGET, WIKILINK, Gatherer
from fabled.transcript.text import PROMPT, REPLY, RESULT, THINKING, TOOL, Part
from fabled.transcript.veil import Veil
from fabled.transcript.verbs import FORMS, NOUNS

KEY = b"k" * 32


def terms(*parts):
    """The terms of parts given as (kind, text), or of prompts given as text."""
    gatherer = Gatherer(Veil(KEY))
    gatherer.add([Part(PROMPT, one) if isinstance(one, str) else Part(*one) for one in parts])
    return gatherer.result().by_kind


@pytest.mark.parametrize(
    ("form", "verb"),
    [
        ("fixed", "fix"),
        ("fixes", "fix"),
        ("refactoring", "refactor"),
        ("wrote", "write"),
        ("written", "write"),
        ("stopped", "stop"),
        ("dropping", "drop"),
        ("analysed", "analyze"),
        ("optimising", "optimize"),
        ("rolled-back", "roll-back"),
        ("verified", "verify"),
        ("caches", "cache"),
        ("rebuilt", "rebuild"),
        ("logged", "log"),
    ],
)
def test_operatives_are_found_through_their_inflections(form, verb):
    """Each form counts for its verb."""
    assert FORMS[form] == verb
    assert terms(f"We {form} it.")[OPERATIVE] == {verb: 1}


def test_operatives_come_from_prose_of_people_and_models_only():
    """Not from thinking, tool calls, results or code."""
    found = terms(
        (PROMPT, "please deploy it"),
        (REPLY, "I merged it\n```\nrevert(everything)\n```\nand `remove`d nothing"),
        (THINKING, "I should migrate"),
        (TOOL, "Bash\nrename files"),
        (RESULT, "upgraded 3 packages"),
    )
    assert set(found[OPERATIVE]) == {"deploy", "merge"}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("see src/auth/login.ts:42", "src/auth/login.ts"),
        ("see src/auth/login.ts", "login.ts"),
        ("in ~/.config/app.toml", "~/.config/app.toml"),
        ("the Makefile.am and setup.cfg", "setup.cfg"),
        ("call parse_config_file here", "parse_config_file"),
        ("the SessionLive view", "SessionLive"),
        ("useEffect ran", "useEffect"),
        ("install left-pad", "left-pad"),
        ("with --dry-run", "--dry-run"),
        ("got E0502 again", "E0502"),
        ("a TypeError in it", "TypeError"),
        ("it says ENOENT", "ENOENT"),
        ("https://docs.rs/serde/latest", "docs.rs"),
        ("run `make all` first", "make all"),
    ],
)
def test_targets_are_paths_identifiers_codes_flags_hosts_and_ticks(text, target):
    """What the work was done to, as it is written."""
    assert target in terms(text)[TARGET]


@pytest.mark.parametrize(
    "text", ["this and/or that", "a built-in thing", "on 2026-01-02 at 10", "up-to-date", "24/7"]
)
def test_words_and_dates_are_no_targets(text):
    """Hyphens and slashes alone make none."""
    assert terms(text)[TARGET] == {}


def test_targets_of_a_tool_call_come_from_the_beginning_of_its_input():
    """The path counts, the content of a whole file does not; nor does the tool's own name."""
    content = "x" * 3000 + " hidden_name_far_away"
    found = terms((TOOL, f"mcp__some_tool\n/work/app/main.py\n{content}"))[TARGET]
    assert {"/work/app/main.py", "main.py"} <= set(found)
    assert "hidden_name_far_away" not in found
    assert "mcp__some_tool" not in found


def test_concepts_are_phrases_of_words_that_carry_meaning():
    """Two or three together count more than one alone; numbers and code count nothing."""
    found = terms(
        "The write-ahead log needs crash recovery. Crash recovery of the write-ahead log!"
        " ```crash handler code``` 12345"
    )[CONCEPT]
    assert found["crash recovery"] == 2
    assert "crash handler" not in found
    assert next(iter(found)).count(" ") >= 1


def test_concepts_of_chinese_japanese_and_korean_are_found():
    """Runs between the particles."""
    assert "数据库索引" in terms("请优化数据库索引的性能")[CONCEPT] or any(
        "数据库" in one for one in terms("请优化数据库索引的性能")[CONCEPT]
    )
    assert any("検索" in one for one in terms("全文検索の設計を見直す")[CONCEPT])
    assert terms("인덱스 성능 개선")[CONCEPT]


def test_wikilinks_are_links_and_no_shell_tests():
    """`[[Page]]`, `[[Page|shown]]`, `[[Page#part]]`; not `[[ -f x ]]`, not code."""
    found = terms("see [[Design Notes]], [[Plan|the plan]] and [[Log#today]]; [[ -f x ]]; [[]]")
    assert set(found[WIKILINK]) == {"Design Notes", "Plan", "Log"}
    assert terms("```\n[[Not This]]\n```")[WIKILINK] == {}


def test_recalled_text_and_secrets_are_nobodys_vocabulary():
    """A recall in a prompt adds no term; a secret neither."""
    recalled = wrap("they renamed old_module_name", "s", ["u:a"], KEY)
    secret = "ghp_" + "a1" * 18
    found = terms(f"now {recalled} fix new_module_name with {secret}")
    assert "old_module_name" not in found[TARGET]
    assert "rename" not in found[OPERATIVE]
    assert not any("ghp_" in one for kind in KINDS for one in found[kind])


@given(st.lists(st.text(max_size=200), max_size=6))
def test_any_text_gives_the_same_terms_twice_within_bounds(texts):
    """Deterministic, bounded, never an error."""
    found = terms(*texts)
    assert found == terms(*texts)
    assert all(len(found[kind]) <= MOST[kind] for kind in KINDS)
    assert all(n > 0 for kind in KINDS for n in found[kind].values())


def test_list_of_verbs_is_consistent():
    """Every form leads to a verb that leads to itself."""
    assert all(FORMS[verb] == verb for verb in set(FORMS.values()))
    assert set(FORMS) >= NOUNS
    assert Counter(FORMS.values()).most_common(1)[0][1] <= 12


def test_sentences_end_at_stops_and_not_inside_names():
    """A dot inside a file's name ends none; code is left out."""
    text = "Fix app.py first. Then v1.2.3!\n```\nx = 1. y\n```\nWhy?"
    assert list(sentences(text)) == ["Fix app.py first.", "Then v1.2.3!", "Why?"]


def test_decisions_are_picked_out_by_their_words():
    """Long enough to say something, short enough to be one sentence."""
    text = "We decided to keep SQLite because it is one file. Decided. It is fine."
    assert list(decisions(text)) == ["We decided to keep SQLite because it is one file."]

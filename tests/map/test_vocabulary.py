"""Terms, citations and cards in the Map: derived, exact, and the same after a rebuild."""

from __future__ import annotations

import pytest

from fabled.cards.shelf import Kept, current
from fabled.map import cards, citations, queries, vocabulary
from fabled.map.search import hits, scope
from fabled.model import Card, Filter
from fabled.recall.question import understand
from fabled.recall.search import Request, search
from fabled.transcript.sentinel import consulted, wrap
from fabled.transcript.veil import Veil
from tests.conftest import SHARED
from tests.support.dump import dump, studied
from tests.support.maps import KEY, Library
from tests.support.transcripts import prompt, reply, tool_call, uid

CARD = Card("Title", "decision", ("topic",), ("We decided.",), ("a.py",), "Done.", "Sum.", "manual")


@pytest.fixture
def root(tmp_path):
    """A projects folder with three threads."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_bytes(
        prompt("a", None, "please fix src/auth/login.py, see [[Login Plan]]")
        + tool_call("b", "a", "toolu_1", "pytest tests/test_login.py")
        + reply("c", "b", "Fixed. We decided to keep the session cookie because it is simple.")
        + prompt("d", "c", "now deploy the session cookie change")
        + reply("e", "d", "Deployed it.")
    )
    (folder / "s2.jsonl").write_bytes(
        prompt("f", None, "explain why SRC/auth/LOGIN.py fails")
        + reply("9", "f", "It is the clock.")
    )
    return tmp_path / "projects"


@pytest.fixture
def library(tmp_path, root):
    """A Map of them, studied."""
    with Library(tmp_path, root) as made:
        made.reconcile()
        made.study()
        yield made


def _keys(library, **wanted):
    """Keys of the threads that a filter lets through."""
    with library.snapshots.snapshot() as snapshot:
        match = understand("login session cookie change explain").match or ""
        found = hits(snapshot, match, Filter(**wanted))
        return {queries.thread_key(snapshot, hit.thread or 0) for hit in found}


def test_facets_restrict_exactly(library):
    """By term and card type, in any letter case, all of them together; nothing else is let in."""
    first, second, third = (f"u:{uid(name)}" for name in "adf")
    assert _keys(library) == {first, second, third}
    assert _keys(library, terms=(("target", "login.py"),)) == {first, third}
    assert _keys(library, terms=(("target", "src/auth/login.py"),)) == {first, third}
    assert _keys(library, terms=(("operative", "deploy"),)) == {second}
    assert _keys(library, terms=(("operative", "fix"), ("target", "login.py"))) == {first}
    assert _keys(library, terms=(("concept", "session cookie"),)) == {first, second}
    assert _keys(library, terms=(("target", "login"),)) == set()
    assert _keys(library, terms=(("target", "%"),)) == set()
    assert _keys(library, type="decision") == {first}


def test_terms_are_browsed_by_kind_and_prefix_for_all_and_for_one(library):
    """The most widespread first for all; the most telling first for one thread."""
    with library.snapshots.snapshot() as snapshot:
        every = vocabulary.browse(snapshot, "target", "SRC/", 10)
        assert {word.text for word in every} == {"src/auth/login.py", "SRC/auth/LOGIN.py"}
        assert [w.text for w in vocabulary.browse(snapshot, "wikilink", "", 10)] == ["Login Plan"]
        thread = queries.thread_by_key(snapshot, f"u:{uid('d')}")
        mine = vocabulary.browse(snapshot, "operative", "", 10, thread)
        assert [(word.text, word.n) for word in mine] == [("deploy", 2), ("change", 1)]
        assert vocabulary.browse(snapshot, None, "no such", 10) == []


def test_terms_follow_a_thread_that_changes_and_only_that_one(library, root):
    """A record more: its thread is derived again; a thread that is gone leaves no word behind."""
    with (root / "-p" / "s2.jsonl").open("ab") as file:
        file.write(reply("8", "9", "I refactored clock_drift_check."))
    library.reconcile()
    assert library.study() == 1
    assert _keys(library, terms=(("target", "clock_drift_check"),)) == {f"u:{uid('f')}"}
    (root / "-p" / "s2.jsonl").unlink()
    library.reconcile()
    library.study()
    with library.snapshots.snapshot() as snapshot:
        assert vocabulary.browse(snapshot, "target", "clock", 10) == []
        thread = queries.thread_by_key(snapshot, f"u:{uid('a')}")
        assert thread is not None
        (word,) = vocabulary.browse(snapshot, "target", "login.py", 10, thread)
        assert word.threads == 1


def test_extractive_card_is_the_threads_own_words(library):
    """Title from the prompt, decisions and outcome from replies, and it says what it is."""
    with library.snapshots.snapshot() as snapshot:
        thread = queries.thread_by_key(snapshot, f"u:{uid('a')}")
        card = cards.load(snapshot, thread or 0)
    assert card is not None
    assert card.title == "please fix src/auth/login.py, see [[Login Plan]]"
    assert card.decisions == ("We decided to keep the session cookie because it is simple.",)
    assert card.outcome == "We decided to keep the session cookie because it is simple."
    assert (card.source, card.model, card.outdated) == ("extractive", None, False)


def test_kept_card_survives_a_rebuild_and_is_marked_when_its_thread_changed_much(
    library, root, tmp_path
):
    """The file is the truth; a thread half as long again is another thread."""
    key = f"u:{uid('f')}"
    library.cards.put(key, CARD, tokens=15)
    with library.writer.transaction() as txn:
        thread = queries.thread_by_key(txn, key)
        txn.run("INSERT INTO unstudied VALUES(?)", (thread,))
    library.study()
    again = tmp_path / "again"
    again.mkdir()
    with Library(again, root) as fresh:
        fresh.student._shelf = library.cards
        fresh.reconcile()
        fresh.study()
        with fresh.snapshots.snapshot() as snapshot:
            thread = queries.thread_by_key(snapshot, key)
            assert cards.load(snapshot, thread or 0) == CARD
    assert not current(Kept(CARD, 1000), 1100).outdated
    assert current(Kept(CARD, 1000), 1800).outdated
    assert current(Kept(CARD, 1000), 500).outdated


def test_damaged_card_file_gives_the_extractive_card(library):
    """It can be written again; nothing fails."""
    key = f"u:{uid('f')}"
    library.cards.put(key, CARD, tokens=15)
    (path,) = library.vault.root and library.system.files.scan(library.cards._folder)
    with open(path.path, "w", encoding="utf-8") as file:
        file.write("{")
    assert library.cards.get(key) is None
    assert list(library.cards.threads()) == []


def test_a_hundred_recalls_add_citations_and_no_words(tmp_path):
    """A history that recalls itself over and over does not grow in the index."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    (folder / "s0.jsonl").write_bytes(
        prompt("a", None, "the wombat module") + reply("b", "a", "ok")
    )
    with Library(tmp_path, tmp_path / "projects") as library:
        library.reconcile()
        library.study()
        with library.snapshots.snapshot() as snapshot:
            text = "\n".join(f"line {n} of the wombat module" for n in range(300))
            size = snapshot.value("SELECT sum(length(block)) FROM fts_data")
            words = snapshot.value("SELECT count(*) FROM words")
        for n in range(1, 101):
            recalled = wrap(text, "s0", [f"u:{uid('a')}"], KEY)
            (folder / f"s{n}.jsonl").write_bytes(prompt(f"{n:02x}0", None, recalled))
        library.reconcile()
        library.study()
        with library.snapshots.snapshot() as snapshot:
            assert snapshot.value("SELECT count(*) FROM citations") == 100
            assert snapshot.value("SELECT count(*) FROM words") == words
            assert snapshot.value("SELECT sum(length(block)) FROM fts_data") <= size * 1.01
            found = search(snapshot, library.sources, Request("wombat", limit=50), Veil(KEY))
            assert [one["thread"] for one in found.results] == [f"u:{uid('a')}"]
            assert len(citations.consumers(snapshot, f"u:{uid('a')}")) == 100


def test_citation_is_shown_in_both_directions_and_survives_a_prune_of_its_record(tmp_path):
    """The tag that a lean prune leaves where the recall was cites as well."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    source = f"u:{uid('a')}"
    (folder / "s1.jsonl").write_bytes(prompt("a", None, "origin") + reply("b", "a", "told"))
    recalled = wrap("told", "s1", [source], KEY)
    (folder / "s2.jsonl").write_bytes(prompt("c", None, f"as {recalled} says"))
    with Library(tmp_path, tmp_path / "projects") as library:
        library.reconcile()
        for text in (f"as {recalled} says", f"as {consulted([source])} says"):
            (folder / "s2.jsonl").write_bytes(prompt("c", None, text))
            library.reconcile()
            with library.snapshots.snapshot() as snapshot:
                (by,) = citations.consumers(snapshot, source)
                thread = queries.thread_by_key(snapshot, f"u:{uid('c')}")
                assert thread is not None
                (of,) = citations.consumed(snapshot, thread)
                assert by == of
                assert by.record.name == uid("c")
        (folder / "s2.jsonl").unlink()
        library.reconcile()
        with library.snapshots.snapshot() as snapshot:
            assert citations.consumers(snapshot, source) == []


def test_setting_that_changes_what_is_indexed_has_everything_read_again(tmp_path):
    """With redaction and without: never a Map that is half the one and half the other."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    secret = "ghp_" + "a1" * 18
    (folder / "s1.jsonl").write_bytes(prompt("a", None, f"the token {secret} here"))
    for redact, count in ((True, 0), (False, 1), (True, 0)):
        with Library(tmp_path, tmp_path / "projects", redact=redact) as library:
            library.reconcile()
            library.study()
            with library.snapshots.snapshot() as snapshot:
                match = understand(secret).match or ""
                assert len(hits(snapshot, match, Filter())) == count


def test_study_of_the_corpus_equals_a_study_in_slices(tmp_path):
    """One thread a slice or all at once, in any order of arrival: the same terms and cards."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    many = b"".join(
        prompt(f"{n:02x}", None, f"fix module_{n % 7} in src/m{n}.py for the cache layer")
        for n in range(60)
    )
    path = folder / "s1.jsonl"
    lines = many.splitlines(keepends=True)
    with Library(tmp_path, tmp_path / "projects") as grown:
        for at in range(0, 60, 7):
            path.write_bytes(b"".join(lines[: at + 7]))
            grown.reconcile()
            grown.student.slice(grown.writer, grown.system.clock, 0.0)
        path.write_bytes(many)
        grown.reconcile()
        grown.study()
        other = tmp_path / "other"
        other.mkdir()
        with Library(other, tmp_path / "projects") as fresh:
            fresh.reconcile()
            fresh.study()
            assert studied(fresh.snapshots) == studied(grown.snapshots)
            assert dump(fresh.snapshots) == dump(grown.snapshots)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["corpus", "retrieval/code"])
def test_every_thread_of_real_transcripts_has_terms_and_a_card_the_same_grown_or_at_once(
    tmp_path, which
):
    """Half of each file first, then the rest; and facets let through just the threads that have."""
    source = SHARED / which / "projects"
    if not source.is_dir():
        pytest.skip(f"needs ../shared/{which}, which is not part of the project")
    root = tmp_path / "projects"
    whole = {path: path.read_bytes() for path in source.rglob("*.jsonl")}
    with Library(tmp_path, root) as grown:
        for share in (2, 1):
            for path, data in whole.items():
                live = root / path.relative_to(source)
                live.parent.mkdir(parents=True, exist_ok=True)
                live.write_bytes(data[: len(data) // share])
            grown.reconcile()
            grown.study()
        fresh_folder = tmp_path / "fresh"
        fresh_folder.mkdir()
        with Library(fresh_folder, root) as fresh:
            fresh.reconcile()
            fresh.study()
            assert studied(fresh.snapshots) == studied(grown.snapshots)
        with grown.snapshots.snapshot() as snapshot:
            threads = snapshot.value("SELECT count(DISTINCT thread) FROM records")
            assert snapshot.value("SELECT count(*) FROM cards") == threads > 40
            for kind in ("target", "concept", "operative"):
                _facets_are_exact(snapshot, kind)


def _facets_are_exact(snapshot, kind):
    for word in vocabulary.browse(snapshot, kind, "", 30)[::5]:
        found = scope(snapshot, Filter(terms=((kind, word.text),))).threads
        folded = sum(
            one.threads
            for one in vocabulary.browse(snapshot, kind, word.text, 10_000)
            if one.text.lower() == word.text.lower()
        )
        assert word.threads <= found <= folded

"""The real clients resume what the prune leaves: every fixture, every level."""

from __future__ import annotations

import pytest

from tests.realclient import images, recordings, running
from tests.realclient.clients import VERSIONS
from tests.realclient.running import RealClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FIXTURES = [fixture for version in VERSIONS for fixture in images.fixtures(version)] or [None]
OLDER = [fixture for fixture in FIXTURES if fixture and fixture.version != VERSIONS[0]] or [None]
NOTE = "[image pruned, "


@pytest.fixture(params=FIXTURES, ids=str)
def fixture(request):
    """A fixture whose own client can be run here."""
    return _or_skip(request.param)


@pytest.fixture(params=OLDER, ids=str)
def older(request, newest):
    """A fixture that the newest client did not write."""
    return _or_skip(request.param)


def _or_skip(found):
    reason = running.cannot(found.version if found else VERSIONS[0])
    if reason is not None:
        pytest.skip(reason)
    return found


def _whole(verdict):
    """The transcript resumes, and as the original does as far as the oracle looks."""
    assert verdict["problems"] is not None, "the original itself does not resume"
    assert verdict["problems"] == [], verdict["notes"]
    assert verdict["same_system"], "the recorded system prompt is lost"


def _same_words(verdict):
    """Every text of both sides in order, and nothing that the API would refuse."""
    assert verdict["problems"] is not None, "the original itself does not resume"
    kept = [word for word in verdict["words"] if not word.startswith(NOTE)]
    assert kept == verdict["words_before"]
    assert set(verdict["api"]) <= set(verdict["api_before"])


def test_resume_of_transparent_image_sends_identical_messages(fixture, verdicts):
    """Nothing the transparent level takes out reaches the API: the messages are the same."""
    verdict = verdicts(fixture.version)[fixture, "transparent"]
    _whole(verdict)
    assert verdict["identical"], verdict["notes"]


def test_resume_of_lean_image_sends_the_same_conversation(fixture, verdicts):
    """At the lean level with its defaults the oracle finds nothing missing or out of order."""
    _whole(verdicts(fixture.version)[fixture, "lean"])


def test_resume_of_image_lean_to_the_end_sends_every_word(fixture, verdicts):
    """With no prompt protected all words are there; notes of ours stand only for images."""
    _same_words(verdicts(fixture.version)[fixture, "lean-all"])


def test_resume_of_extract_image_is_one_the_api_takes(fixture, verdicts):
    """Without walls the session still resumes, and says at least what it said before."""
    verdict = verdicts(fixture.version)[fixture, "extract"]
    assert set(verdict["api"]) <= set(verdict["api_before"])
    summary = "This session is being continued from a previous conversation"
    walled = any(word.startswith(summary) for word in verdict["words_before"])
    assert not any(word.startswith(summary) for word in verdict["words"])
    if walled:
        assert len(verdict["words"]) > len(verdict["words_before"])
    else:
        assert verdict["words"] == verdict["words_before"]


def test_resume_in_a_newer_client_sends_identical_messages(older, newest_verdicts):
    """A session of an older client, pruned and then resumed by the newest, is the same."""
    verdict = newest_verdicts(older.version)[older, "transparent"]
    _whole(verdict)
    assert verdict["identical"], verdict["notes"]


def test_resume_of_lean_image_in_a_newer_client_sends_every_word(older, newest_verdicts):
    """The same, lean to the end."""
    _same_words(newest_verdicts(older.version)[older, "lean-all"])


def test_resume_of_large_compacted_session_is_identical_at_a_tenth(version, tmp_path):
    """Megabytes before a compaction go, more than 90 % of the file, and nobody can tell."""
    with RealClient(version, tmp_path / "client") as client:
        path = recordings.compacted(client)
        original = images.put(path, tmp_path / "original", path.stem)
    before = original.stat().st_size
    assert before > 3_000_000
    rows = [
        images.pruned(original, tmp_path / kind, images.KINDS[kind])
        for kind in ("transparent", "lean-all")
    ]
    verdicts = running.compare(version, [[original, *rows]], tmp_path)
    for image in rows:
        _whole(verdicts[image])
        assert verdicts[image]["identical"], verdicts[image]["notes"]
        assert image.stat().st_size < before / 10

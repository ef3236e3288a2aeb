"""Any bytes as a question, through the real socket and the real client."""

from __future__ import annotations

import os
import random
import shutil
from urllib.parse import quote_from_bytes

import pytest

from tests.conftest import ROOT
from tests.support.daemons import Daemon

HARD = [
    b"what changed?",
    b'"open',
    b"NOT x AND (",
    b"body:evidence NEAR(a b) x^2 parse*",
    b"\xff\xfe\x00\x80",
    b"\xed\xa0\x80",
    b"\0",
    b"'; DROP TABLE fts; --",
    "\u4e2d\u6587".encode() * 2000,
    b"a " * 4000,
    b"(" * 5000,
    b"a/b.c:d-e_f#" * 400,
    b" \t\n",
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """A daemon on the odd transcripts."""
    folder = tmp_path_factory.mktemp("questions")
    root = folder / "projects"
    shutil.copytree(ROOT / "tests" / "data" / "oddities", root)
    with Daemon(folder / "daemon", root) as running:
        running.index()
        yield running


@pytest.mark.timeout(240)
def test_any_bytes_are_a_question_or_a_usage_error(daemon):
    """No text is a fault of the daemon, none hangs; an empty one is the asker's mistake."""
    random.seed(7)
    lengths = [random.randrange(1, 200) for _ in range(400)]
    for question in [*HARD, *(random.randbytes(length) for length in lengths)]:
        reply = daemon.get("/v1/search?q=" + quote_from_bytes(question, safe=""))
        blank = not question.strip(b"\0 \t\r\n")
        assert reply.status == (400 if blank else 200), (question, reply.body[:200])
        if not blank:
            assert reply.json()["took_ms"] < 5000
    assert [event for event in daemon.events() if event["level"] == "error"] == []


@pytest.mark.parametrize("question", [b for b in HARD if b"\0" not in b and len(b) < 5000])
def test_any_argument_of_the_client_is_answered(daemon, question):
    """What a shell can pass is sent as it is; the exit status is 0, or 2 for nothing at all."""
    answer = daemon.client("search", "--json", "--", os.fsdecode(question))
    assert answer.returncode == (0 if question.strip() else 2), answer.stderr
    assert b"Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "name", ["", "/", "..", "a/b", "%2e", "x" * 3000, "a b?c#d", "\udcff", "@1"]
)
def test_any_id_is_not_found_and_nothing_worse(daemon, name):
    """Ids are looked up, never interpreted."""
    for path in ("/v1/blocks/", "/v1/threads/", "/v1/sessions/"):
        reply = daemon.get(path + quote_from_bytes(os.fsencode(name), safe=""))
        assert reply.status in {200, 404, 400}, (path, name, reply.body)
        assert reply.status != 200 or path == "/v1/sessions/"

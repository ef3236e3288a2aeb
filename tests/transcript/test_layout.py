"""Which paths are transcripts, and whose."""

from __future__ import annotations

import pytest

from fabled.transcript.layout import Place, meta_path, place


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("-p/0b1c.jsonl", Place("-p", "0b1c", None)),
        ("-p/.jsonl", Place("-p", "", None)),
        ("-p/agent-12ab34cd.jsonl", Place("-p", None, "12ab34cd")),
        ("-p/S/subagents/agent-a1.jsonl", Place("-p", "S", "a1")),
        ("-p/S/subagents/agent-acompact-1f.jsonl", Place("-p", "S", "acompact-1f")),
        ("-p/S/subagents/workflows/wf_1/agent-a2.jsonl", Place("-p", "S", "a2")),
    ],
)
def test_transcript_path_names_its_folder_session_and_agent(path, expected):
    """Every layout the client ever used is recognised."""
    assert place(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "-p/S/subagents/workflows/wf_1/journal.jsonl",
        "-p/S/tool-results/x.jsonl",
        "-p/0b1c.jsonl.compact.tmp.123.jsonl",
        "-p/memory/MEMORY.md",
        "stray.jsonl",
        "-p/0b1c.json",
    ],
)
def test_other_file_is_no_transcript(path):
    """Journals, results, temporary and stray files are left alone."""
    assert place(path) is None


def test_meta_path_stands_beside_the_agents_file():
    """The client keeps an agent's description under the transcript's own name."""
    assert meta_path("/r/-p/S/subagents/agent-a1.jsonl") == "/r/-p/S/subagents/agent-a1.meta.json"

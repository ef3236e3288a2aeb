"""Measured transcripts: exactly the counts that a tolerant reader must reach."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from fabled.transcript.reader import Found, Reader
from fabled.transcript.records import understand
from fabled.transcript.threads import Placer
from fabled.transcript.veil import Veil
from tests.conftest import ROOT, SHARED
from tests.support.oracle import objects

PROMPT_RULE = 2
ODDITIES = ROOT / "tests" / "data" / "oddities"


def _manifest(folder):
    path = folder / "MANIFEST.json"
    if not path.exists():
        return []
    return [file for file in json.loads(path.read_text())["files"] if "lines" in file]


CASES = [pytest.param(ODDITIES, file, id=file["file"][-60:]) for file in _manifest(ODDITIES)]
CORPUS = [
    pytest.param(SHARED / "corpus", file, id=file["file"][-60:])
    for file in _manifest(SHARED / "corpus")
    if "-derived-oddities" not in file["file"]
] or [
    pytest.param(
        None, None, marks=pytest.mark.skip(reason="needs the corpora in ../shared"), id="-"
    )
]


def read(path):
    """Reader and items of one file."""
    with path.open("rb", buffering=0) as source:
        reader = Reader(source)
        return reader, list(reader)


@pytest.mark.parametrize(("folder", "file"), [*CASES, *CORPUS])
def test_file_gives_the_manifests_counts(folder, file):
    """Lines, records, values, fragments, blank and glued lines, uuids: to the last one."""
    reader, items = read(folder / file["file"])
    counts = reader.counts
    assert (counts.lines, counts.records, counts.values) == (
        file["lines"],
        file["records"],
        file["non_object_values"],
    )
    assert (counts.broken, counts.concatenated, counts.blank) == (
        file["broken_fragments"],
        file["concatenated_lines"],
        file["blank_lines"],
    )
    uuids = Counter(i.envelope.uuid for i in items if isinstance(i, Found) and i.envelope.uuid)
    assert len(uuids) == file["distinct_uuids"]
    assert sum(count > 1 for count in uuids.values()) == file["duplicate_uuids"]


@pytest.mark.parametrize(("folder", "file"), [*CASES, *CORPUS])
def test_file_gives_the_oracles_records(folder, file):
    """Each record's span and type are what the slow and obvious way finds."""
    _, items = read(folder / file["file"])
    data = (folder / file["file"]).read_bytes()
    found = [(i.offset, i.raw or b"", i.envelope.type) for i in items if isinstance(i, Found)]
    expected = [
        (offset, raw, value.get("type") if isinstance(value.get("type"), str) else None)
        for offset, raw, value in objects(data)
    ]
    assert found == expected
    assert all(data[o : o + len(raw)] == raw for o, raw, _ in found)


@pytest.mark.parametrize(("folder", "file"), [*CASES, *CORPUS])
def test_file_gives_the_manifests_prompt_roots(folder, file):
    """Rules 1 and 2 of thread placement reach as many prompts as were measured."""
    if "threads_by_fallback" not in file:
        pytest.skip("not measured for this file")
    _, items = read(folder / file["file"])
    nodes = [
        msgspec.structs.replace(understand(i.envelope, i.offset, Veil(b"")).node, prompt_id=None)
        for i in items
        if isinstance(i, Found)
    ]
    placed = Placer().extend(nodes).new
    keys = {p.key for p in placed if p is not None and p.rule == PROMPT_RULE}
    assert len(keys) == file["threads_by_fallback"]

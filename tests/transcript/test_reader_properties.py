"""Whatever the bytes: nothing raised, nothing lost, nothing reported twice."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabled.transcript.reader import BOM, Counts, Found, Reader

SKIP = " \t\r\0"
PIECES = [
    b'{"type":"user","uuid":"a"}', b'{"type":"user","uuid":"\xe4\xb8\xad"}',
    b'{"type":"x","u":"\xff"}',
    b'{"type":"system","content":"\\ud83d","uuid":1}', b'{"no":"kind"}', b"{}", b"[1,2]", b"null",
    b'"text {"', b"-1.5e3", b"NaN", b"{", b"}", b'{"type":', b'"', b"\\", b"garbage", b"\0\0", b" ",
    b"\t", b"\r", b"\n", b"\n", b"\n", BOM, b"\xff", b"\xe2\x80\xa8", b"\x0b",
    b'{"type":"u","x":{"type":1',
    b'{"type":"user","uuid":"a","uuid":null,"message":{"a":[1,{}]}}',
]  # fmt: skip
contents = st.one_of(
    st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join)
)

strings = st.text(st.characters(exclude_categories=[]), max_size=20)
records = st.fixed_dictionaries(
    {"type": strings},
    optional={
        "uuid": st.one_of(st.none(), strings, st.integers()),
        "isMeta": st.one_of(st.none(), st.booleans(), st.integers(0, 1)),
        "message": st.dictionaries(strings, st.lists(st.floats(), max_size=2), max_size=3),
        "other": st.lists(st.dictionaries(strings, strings, max_size=2), max_size=3),
    },
)
record_lines = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    ),
    records,
    st.booleans(),
)


def read(data, **options):
    """The items, and the reader after the last of them."""
    reader = Reader(io.BytesIO(data), **options)
    return list(reader), reader


def state(reader):
    """What a reader knows when it has read everything."""
    return (reader.counts, reader.settled, reader.settled_line, reader.end, reader.pending)


def shapes(items):
    """What an item is, without the envelope: `Raw` members compare by identity."""
    return [
        (*item[:3], item.raw, item.tail, item.envelope.uuid, item.envelope.type)
        if isinstance(item, Found)
        else item
        for item in items
    ]


def by_the_rules(data):
    """The manifest's counting rules, written down as plainly as possible, and the records."""
    counts, found = Counts(), []
    lines = data.split(b"\n")
    for line in lines if lines[-1] else lines[:-1]:
        text = line.decode("utf-8", "surrogateescape")
        if counts.lines == 0:
            text = text.removeprefix("\ufeff")
        counts.lines += 1
        counts.blank += not text.strip(SKIP)
        held = 0
        while text := text.lstrip(SKIP):
            try:
                value, end = json.JSONDecoder().raw_decode(text)
            except json.JSONDecodeError:
                counts.broken += 1
                text = text[_resync(text) :]
                continue
            held += 1
            counts.records += isinstance(value, dict)
            counts.values += not isinstance(value, dict)
            if isinstance(value, dict):
                found.append(text[:end].encode("utf-8", "surrogateescape"))
            text = text[end:]
        counts.concatenated += held > 1
    return counts, found


def _resync(text):
    for at in range(1, len(text)):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, at)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict) and "type" in value:
            return at
    return len(text)


@settings(max_examples=400)
@given(contents)
@example(b"\xef\xbb\xbf\n")
@example(b'x{"type":1}{"type":')
@example(b'\xff{"type":"\xff"}\xff\n')
def test_reader_any_bytes_counts_and_records_follow_the_rules(data):
    """A plain, slow reading of the rules finds the same."""
    items, reader = read(data)
    counts, found = by_the_rules(data)
    assert reader.counts == counts
    assert [item.raw for item in items if isinstance(item, Found)] == found


@settings(max_examples=400)
@given(contents, st.sampled_from([1, 8, 64, 1 << 25]))
def test_reader_any_bytes_every_byte_is_accounted_for(data, hold):
    """In order, no overlap; between the items only what may stand there."""
    items, reader = read(data, hold=hold)
    at = 0
    gaps = []
    for item in items:
        assert item.offset >= at
        assert item.length > 0
        assert item.line == data.count(b"\n", 0, item.offset)
        gaps.append(data[at : item.offset])
        at = item.offset + item.length
        raw = data[item.offset : at]
        if isinstance(item, Found):
            assert raw[:1] + raw[-1:] == b"{}"
            assert item.raw is None or item.raw == raw
            assert item.tail == (item.offset >= reader.settled)
        elif item.reason == "nul":
            assert not raw.strip(b"\0")
    assert reader.settled == data.rfind(b"\n") + 1
    assert reader.settled_line == data.count(b"\n")
    assert reader.end == len(data)
    rest = data[at:]
    if reader.pending:
        rest = data[at : max(at, reader.settled)]
    gaps.append(rest)
    left = b"".join(gaps)
    if data.startswith(BOM) and (not items or items[0].offset >= len(BOM)):
        left = left.removeprefix(BOM)
    assert not left.strip(b" \t\r\n")


@settings(max_examples=300)
@given(contents, st.integers(1, 64), st.sampled_from([4, 16, 64, 1 << 25]))
def test_reader_any_chunk_size_gives_the_same(data, chunk, hold):
    """How the bytes arrive changes nothing, long lines included."""
    small, one = read(data, chunk=chunk, hold=hold)
    large, other = read(data, hold=hold)
    assert shapes(small) == shapes(large)
    assert state(one) == state(other)


@settings(max_examples=300)
@given(contents, st.integers(0, 80), st.sampled_from([8, 1 << 25]))
def test_reader_continued_where_a_prefix_settled_gives_the_same(data, cut, hold):
    """Reading what was there, later the rest from `settled`, equals reading all at once."""
    early, first = read(data[:cut], hold=hold)
    early = [item for item in early if item.offset < first.settled]
    source = io.BytesIO(data)
    source.seek(first.settled)
    reader = Reader(source, offset=first.settled, line=first.settled_line, hold=hold)
    late = list(reader)
    whole, once = read(data, hold=hold)
    assert shapes(early + late) == shapes(whole)
    assert state(reader)[1:] == state(once)[1:]


@given(st.lists(record_lines, max_size=4))
def test_reader_generated_records_fields_are_what_json_says(lines):
    """On whichever way a line was decoded: members of the wanted type, and no others."""
    items, _ = read(b"".join(line + b"\n" for line in lines))
    assert [item.raw for item in items] == lines
    for item, line in zip(items, lines, strict=True):
        value = json.loads(line.decode("utf-8", "surrogateescape"))
        uuid, meta = value.get("uuid"), value.get("isMeta")
        assert item.envelope.type == value["type"]
        assert item.envelope.uuid == (uuid if isinstance(uuid, str) else None)
        assert item.envelope.is_meta is (meta if isinstance(meta, bool) else None)
        message = bytes(item.envelope.message).decode("utf-8", "surrogateescape") or "null"
        assert repr(json.loads(message)) == repr(value.get("message"))


@given(record_lines, st.integers(1, 64))
def test_reader_one_record_a_line_has_the_same_span_held_or_not(line, chunk):
    """Passing over a line finds what holding it finds."""
    for end in (b"\n", b""):
        held, _ = read(line + end)
        passed, _ = read(line + end, hold=4, chunk=chunk)
        assert [(*item[:3], item.tail) for item in passed] == [
            (*item[:3], item.tail) for item in held
        ]
        for name in ("type", "uuid", "is_meta"):
            assert getattr(passed[0].envelope, name) == getattr(held[0].envelope, name)


@settings(max_examples=200)
@given(st.data())
def test_reader_mutated_real_lines_still_follow_the_rules(shared, data):
    """Bytes cut, doubled, overwritten or glued in lines of real clients."""
    folder = shared / "corpus" / "projects" / "-derived-oddities"
    path = data.draw(st.sampled_from(sorted(folder.glob("*.jsonl"))))
    lines = [line for line in path.read_bytes().split(b"\n") if len(line) < 3000][:40]
    chosen = data.draw(st.lists(st.sampled_from(lines or [b""]), max_size=3))
    text = bytearray(b"\n".join(chosen))
    for _ in range(data.draw(st.integers(0, 4))):
        at, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
        text[at : at + size] = data.draw(
            st.sampled_from([b"", b"\n", b"\0", b"\xff", b'"', b"{", b"}", b"\\", b"\\ud83d",
                             b"NaN", bytes(text[at : at + 2 * size])])
        )  # fmt: skip
    content = bytes(text)
    items, reader = read(content)
    counts, found = by_the_rules(content)
    assert reader.counts == counts
    assert [item.raw for item in items if isinstance(item, Found)] == found
    for item in items:
        if isinstance(item, Found):
            value = json.loads((item.raw or b"").decode("utf-8", "surrogateescape"))
            uuid = value.get("uuid")
            assert item.envelope.uuid == (uuid if isinstance(uuid, str) else None)


@pytest.mark.parametrize("member", [b"unknown", b"uuid", b"message", b"isMeta"])
@given(value=st.lists(st.sampled_from(re.findall(
    rb"\S+", rb'0 1 01 - . 1. .5 e E+ 1e5 true tru false null nul NaN Infinity + 0x1'
    rb' [ ] { } , : "a" "'
)), max_size=6).map(b"".join))  # fmt: skip
def test_reader_fast_way_accepts_nothing_that_json_refuses(member, value):
    """A skipped member is checked as strictly as a wanted one."""
    line = b'{"type":"user","' + member + b'":' + value + b"}"
    items, _ = read(line + b"\n")
    assert [item.raw for item in items if isinstance(item, Found)] == by_the_rules(line)[1]

"""The shallow scanner agrees with the standard library, at any depth and in linear time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabled.transcript import shallow
from fabled.transcript.shallow import scan_object

keys = st.text(max_size=6)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


def encode(value, ascii_only, spaced):
    """JSON text of one of the shapes writers give it."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1 if spaced else None)
    return text.encode("utf-8", "surrogatepass")


def decode(data):
    """What the standard library reads."""
    return json.loads(data.decode("utf-8", "surrogateescape"))


@given(
    members=st.lists(st.tuples(keys, values), max_size=6),
    ascii_only=st.booleans(),
    spaced=st.booleans(),
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
)
def test_scan_object_generated_members_spans_decode_to_the_values(
    members, ascii_only, spaced, before, after
):
    """Keys, order, duplicates and the exact span of every value."""
    inner = [(encode(k, ascii_only, False), encode(v, ascii_only, spaced)) for k, v in members]
    text = b"{" + b" ,\n".join(k + b" :\t" + v for k, v in inner) + b"\r}"
    found = scan_object(before + text + after, len(before))
    assert found is not None
    assert found.end == len(before) + len(text)
    whole = before + text + after
    assert [whole[m.start : m.end] for m in found.members] == [v for _, v in inner]
    assert [m.key for m in found.members] == [decode(k) for k, _ in inner]


grammar = st.lists(
    st.sampled_from(
        [b"{", b"}", b"[", b"]", b",", b":", b'"a"', b'"', b"\\", b"\\u12", b"0", b"01", b"-",
         b"1.", b"1e5", b"1.5E-3", b"tru", b"true", b"null", b"NaN", b"-Infinity", b" ", b"\n",
         b"\x00",
         b"\x0b", b"\xff", b"\xe4\xb8\xad", b'"\\ud83d"', b'"\\x"', b'"\x1f"', b'"k":', b"1"]
    ),
    max_size=12,
).map(b"".join)  # fmt: skip


@given(st.one_of(grammar, grammar.map(lambda inner: b'{"k":' + inner + b"}")))
@example(b'{"k":1,}')
@example(b'{"k":[1,]}')
@example(b'{"k":01}')
@example(b'{"k":1.}')
@example(b'{"k":+1}')
@example(b'{"k" 1}')
@example(b'{"k":"\x7f"}')
@example(b'{"k":[}]}')
@example(b"{,}")
def test_scan_object_arbitrary_tokens_accepts_exactly_what_json_accepts(data):
    """Neither more nor less than `raw_decode`, which ends at the same byte."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        value, end = json.JSONDecoder(object_pairs_hook=tuple).raw_decode(text)
        expected = len(text[:end].encode("utf-8", "surrogateescape")) if data[:1] == b"{" else None
    except json.JSONDecodeError:
        value, expected = None, None
    found = scan_object(data)
    assert (found and found.end) == expected
    if found:
        assert [member.key for member in found.members] == [key for key, _ in value]


@given(st.lists(values, max_size=6), st.booleans())
def test_scan_array_generated_values_spans_decode_to_the_values(items, ascii_only):
    """One exact span a value."""
    inner = [encode(item, ascii_only, False) for item in items]
    text = b"[" + b" , ".join(inner) + b"]"
    found = shallow.scan_array(text + b"x")
    assert found is not None
    assert found.end == len(text)
    assert [text[start:end] for start, end in found.spans] == inner


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b" {}", b'"{}"', b"{", b'{"a"', b'{"a":1'])
def test_scan_object_no_whole_object_there_is_none(data):
    """Only an object that begins right there and is complete."""
    assert scan_object(data) is None


@pytest.mark.parametrize("start", [0, 1, 2, 3, 99])
def test_scan_object_start_past_the_end_is_none(start):
    """An offset outside is an offset where no object begins."""
    assert scan_object(b"", start) is None


def test_scan_object_hundred_thousand_levels_deep_gives_the_members():
    """Depth costs memory, not the stack."""
    deep = b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000
    text = b'{"type":"user","message":' + deep + b',"uuid":"u"}'
    found = scan_object(text)
    assert found is not None
    assert [m.key for m in found.members] == ["type", "message", "uuid"]
    assert text[found.members[1].start : found.members[1].end] == deep


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "data",
    [
        b'{"' + b"a" * 2_000_000,
        b'{"' + b"a" * 2_000_000 + b"\\x",
        b'{"' + b"a\\n" * 700_000 + b"\x01",
        b'{"k":' + b"1" * 2_000_000 + b"x",
        b"{" + b" " * 2_000_000 + b"x",
    ],
)
def test_scan_object_megabytes_that_fail_at_the_end_take_no_time(data):
    """A run that was taken is never taken apart again: one pass, not an exponential search."""
    began = time.perf_counter()
    assert scan_object(data) is None
    assert time.perf_counter() - began < 2

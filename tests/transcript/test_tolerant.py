"""Tolerant decoding: what strict decoders refuse becomes as much as can be told, never an error."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.envelope import Block, Envelope, Message
from fabled.transcript.tolerant import decode_as, decode_list, decode_text, value_at

DEEP = b"[" * 5000 + b"]" * 5000


@pytest.mark.parametrize("kind", [Envelope, Message, Block])
@pytest.mark.parametrize("raw", [b"", b" ", b"[]", b"1", b'"x"', b"null", b"{", b'{"type":"a"}x'])
def test_decode_as_no_object_is_none(raw, kind):
    """Only a whole object makes a struct."""
    assert decode_as(raw, kind) is None


def test_decode_as_absent_raw_is_none():
    """A `Raw` member that the record does not have."""
    assert decode_as(Envelope().message, Message) is None
    assert decode_list(Envelope().message, Block) is None
    assert decode_text(Envelope().message) is None


def test_decode_as_member_of_wrong_type_is_left_out_and_the_others_stay():
    """A uuid that is a number is no uuid; a number is no truth value, nor the reverse."""
    raw = b'{"uuid":5,"type":"user","isMeta":1,"sessionId":true,"isSidechain":true,"cwd":["x"]}'
    found = decode_as(raw, Envelope)
    assert found == Envelope(type="user", is_sidechain=True)


@pytest.mark.parametrize(
    ("raw", "uuid"),
    [
        (b'{"uuid":"a","uuid":"b"}', "b"),
        (b'{"uuid":1,"uuid":"b"}', "b"),
        (b'{"uuid":"a","uuid":1}', None),
        (b'{"uuid":"a","uuid":null}', None),
        (b'{"\\u0075uid":"a"}', "a"),
        (b'{"UUID":"a","Uuid":"b"}', None),
    ],
)
def test_decode_as_duplicate_and_escaped_members_last_one_counts(raw, uuid):
    """As in the standard library, on the fast way and on the tolerant one."""
    for text in (raw, raw[:-1] + b',"cwd":"\\ud83d"}'):
        found = decode_as(text, Envelope)
        assert found is not None
        assert found.uuid == uuid


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'"plain"', "plain"),
        (b' "spaced" ', "spaced"),
        (b'"\\ud83d"', "\ud83d"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"a\xffb"', "a\udcffb"),
        (b'"\xed\xa0\x80"', "\udced\udca0\udc80"),
        (b'"nul \\u0000"', "nul \0"),
        (b"5", None),
        (b"null", None),
        (b'["x"]', None),
        (b'"open', None),
        (b'"a""b"', None),
        (b'"raw \x01"', None),
    ],
)
def test_decode_text_any_bytes_gives_the_text_or_none(raw, text):
    """Lone surrogates and invalid UTF-8 stay in the text as surrogates."""
    assert decode_text(raw) == text
    assert decode_text(msgspec.Raw(raw)) == text


@pytest.mark.parametrize(
    "number", [b"1" * 5000, b"-" + b"9" * 100_000, b"1e400", b"NaN", b"-Infinity"]
)
def test_decode_as_number_no_integer_can_hold_changes_nothing_else(number):
    """The interpreter's limit on digits is not the record's fault."""
    found = decode_as(b'{"uuid":7,"type":"user","content":[' + number + b"]}", Envelope)
    assert found is not None
    assert found.type == "user"
    assert bytes(found.content).startswith(b"[")
    assert value_at(number.decode(), 0)[1:] == (len(number), False)


def test_decode_as_raw_members_of_the_tolerant_way_are_ascii_json():
    """Whatever was in them, they decode again to the same value."""
    found = decode_as(b'{"type":3,"content":["\xff","\\ud83d",{"a":NaN}]}', Envelope)
    assert found is not None
    assert bytes(found.content).isascii()
    assert str(json.loads(bytes(found.content))) == str(["\udcff", "\ud83d", {"a": float("nan")}])


def test_decode_list_mixed_items_keeps_objects_and_texts():
    """Strings become text blocks, objects structs, anything else is left out."""
    raw = b'[{"type":"text","text":"a"},"b",5,null,[1],{"type":5,"text":"c"}]'
    assert decode_list(raw, Block) == [
        Block(type="text", text="a"),
        Block(type="text", text="b"),
        Block(text="c"),
    ]


@pytest.mark.parametrize("raw", [b"{}", b'"x"', b"null", b"1", b"[", b"[1"])
def test_decode_list_no_array_is_none(raw):
    """None, not an empty list: the caller must be able to tell."""
    assert decode_list(raw, Block) is None


def test_decode_as_too_deep_for_json_keeps_scalars_and_bytes():
    """Members outside the deep one are read; the deep one is its bytes."""
    found = decode_as(b'{"type":"user","message":' + DEEP + b',"uuid":"u","cwd":1}', Envelope)
    assert found is not None
    assert (found.type, found.uuid, found.cwd) == ("user", "u", None)
    assert bytes(found.message) == DEEP


def test_decode_list_item_too_deep_for_json_does_not_lose_its_siblings():
    """The text beside a deep tool input stays readable."""
    raw = b'[{"type":"text","text":"hi"},"x",{"type":"tool_use","input":' + DEEP + b"}]"
    found = decode_list(raw, Block)
    assert found is not None
    assert [(block.type, block.text) for block in found] == [
        ("text", "hi"),
        ("text", "x"),
        ("tool_use", None),
    ]
    assert bytes(found[2].input) == DEEP


def test_decode_as_every_depth_around_the_recursion_limit_gives_the_record():
    """Where decoding just fits the stack, encoding again must not be what overflows it."""
    limit = sys.getrecursionlimit()
    for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
        for depth in range(limit - 200, limit + 20):
            value = opened * depth + b"1" + closed * depth
            found = decode_as(b'{"type":"user","uuid":5,"message":' + value + b"}", Envelope)
            assert found is not None, depth
            assert found.type == "user"
            assert bytes(found.message).replace(b" ", b"") == value, depth


@given(st.binary(max_size=80))
def test_decoders_arbitrary_bytes_never_raise(data):
    """Any bytes have an answer."""
    for kind in (Envelope, Message, Block):
        decode_as(data, kind)
        decode_list(data, kind)
    decode_text(data)


@given(st.text('{}[]",:\\u0d8 tn\x01-1.eNaIf', max_size=40), st.integers(0, 40))
def test_value_at_any_text_agrees_with_the_standard_library(text, at):
    """The same value, the same end, the same refusals."""
    try:
        expected = json.JSONDecoder().raw_decode(text, at) if at < len(text) else None
    except json.JSONDecodeError:
        expected = None
    found = value_at(text, at)
    if expected is None:
        assert found.broken
    else:
        assert (repr(found.value), found.end, found.broken) == (
            repr(expected[0]),
            expected[1],
            False,
        )


@given(
    st.integers(900, 1100), st.sampled_from(['"', "\\", "\\u00e9", "tru", "1e", "-Infinity", "x"])
)
def test_value_at_token_across_the_first_window_is_read_whole(length, token):
    """The text is looked at piece by piece; where the pieces end must not show."""
    for text in (
        '{"k":"' + "a" * length + token + '","z":1}y',
        '{"k":"' + "a" * length + '","z":' + token + ',"y":1}y',
        '["' + "a" * length + token,
    ):
        try:
            expected = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError:
            expected = None
        found = value_at(text, 0)
        assert (None if found.broken else (found.value, found.end)) == expected

"""The reader: every record with its exact span, every damage named, nothing fatal."""

from __future__ import annotations

import io
import json
import sys
import time
import tracemalloc
from collections import deque

import pytest

from fabled.model import Damage
from fabled.transcript.envelope import Envelope
from fabled.transcript.reader import BOM, Counts, Found, Reader

A = b'{"type":"user","uuid":"a"}'
B = b'{"type":"user","uuid":"b","cwd":"\xe4\xb8\xad"}'
DEEP = b"[" * 5000 + b"]" * 5000


def read(data, **options):
    """The items as (what, offset, length, line), and the reader after its last item."""
    reader = Reader(io.BytesIO(data), **options)
    items = []
    for item in reader:
        if isinstance(item, Found):
            assert item.raw == data[item.offset : item.offset + item.length]
            items.append(("tail" if item.tail else "found", *item[:3]))
        else:
            items.append((item.reason, *item[:3]))
    return items, reader


@pytest.mark.parametrize(
    ("data", "items", "counts"),
    [
        (b"", [], Counts()),
        (b"\n", [], Counts(lines=1, blank=1)),
        (b" \t\r\n\n", [], Counts(lines=2, blank=2)),
        (A + b"\n", [("found", 0, 26, 0)], Counts(lines=1, records=1)),
        (A + b"\r\n" + A + b"\r\n", [("found", 0, 26, 0), ("found", 28, 26, 1)],
         Counts(lines=2, records=2)),
        (b" \t" + A + b" \r\t\n", [("found", 2, 26, 0)], Counts(lines=1, records=1)),
        (A + B + b" " + A + b"\n", [("found", 0, 26, 0), ("found", 26, 38, 0),
          ("found", 65, 26, 0)],
         Counts(lines=1, records=3, concatenated=1)),
        (BOM + A + b"\n" + BOM + A + b"\n",
         [("found", 3, 26, 0), ("broken", 30, 3, 1), ("found", 33, 26, 1)],
         Counts(lines=2, records=2, broken=1)),
        (b"\0\0\0" + A + b"\0\n", [("nul", 0, 3, 0), ("found", 3, 26, 0), ("nul", 29, 1, 0)],
         Counts(lines=1, records=1)),
        (b"\0\0 \0\n", [("nul", 0, 2, 0), ("nul", 3, 1, 0)], Counts(lines=1, blank=1)),
        (b'[1,{"type":"x"}]\n5\nnull "x"\n{}\n',
         [("value", 0, 16, 0), ("value", 17, 1, 1), ("value", 19, 4, 2), ("value", 24, 3, 2),
          ("found", 28, 2, 3)],
         Counts(lines=4, records=1, values=4, concatenated=1)),
        (b"garbage\n", [("broken", 0, 7, 0)], Counts(lines=1, broken=1)),
        (A[:20] + B + b"\n", [("broken", 0, 20, 0), ("found", 20, 38, 0)],
         Counts(lines=1, records=1, broken=1)),
        (b'x{"a":1}{"type":0}\n', [("broken", 0, 8, 0), ("found", 8, 10, 0)],
         Counts(lines=1, records=1, broken=1)),
        (b'{"message":"cut' + A + b"junk" + A + b"end\n",
         [("broken", 0, 15, 0), ("found", 15, 26, 0), ("broken", 41, 4, 0), ("found", 45, 26, 0),
          ("broken", 71, 3, 0)],
         Counts(lines=1, records=2, broken=3, concatenated=1)),
        (b"\xff\xfe\n" + A + b"\n", [("broken", 0, 2, 0), ("found", 3, 26, 1)],
         Counts(lines=2, records=1, broken=1)),
        (b"\xc2\x85" + A + b"\xe2\x80\xa8\x0b\n", [("broken", 0, 2, 0), ("found", 2, 26, 0),
         ("broken", 28, 4, 0)], Counts(lines=1, records=1, broken=2)),
    ],
)  # fmt: skip
def test_reader_terminated_lines_give_these_items_and_counts(data, items, counts):
    """The counting rules, one case each."""
    found, reader = read(data)
    assert found == items
    assert reader.counts == counts
    assert (reader.settled, reader.settled_line) == (len(data), data.count(b"\n"))
    assert (reader.end, reader.pending) == (len(data), False)


@pytest.mark.parametrize(
    ("tail", "items", "broken", "pending"),
    [
        (A, [("tail", 27, 26, 1)], 0, False),
        (A + B, [("tail", 27, 26, 1), ("tail", 53, 38, 1)], 0, False),
        (A + b"  ", [("tail", 27, 26, 1)], 0, False),
        (A[:-1], [], 1, True),
        (A + B[:9], [("tail", 27, 26, 1)], 1, True),
        (B[:-4], [], 1, True),
        (b"x" + A, [("broken", 27, 1, 1), ("tail", 28, 26, 1)], 1, False),
        (b"  \t", [], 0, False),
        (b"\xef", [], 1, True),
    ],
)
def test_reader_unterminated_last_line_is_tentative_or_pending(tail, items, broken, pending):
    """What decodes is yielded as tail; what does not is a write under way, not damage."""
    data = A + b"\n" + tail
    found, reader = read(data)
    assert found == [("found", 0, 26, 0), *items]
    assert (reader.counts.lines, reader.counts.broken, reader.pending) == (2, broken, pending)
    assert (reader.settled, reader.settled_line, reader.end) == (27, 1, len(data))


@pytest.mark.parametrize(
    ("text", "envelope"),
    [
        (b'{"type":"user","cwd":"\xff"}', Envelope(type="user", cwd="\udcff")),
        (b'{"type":"user","cwd":"\\ud83d"}', Envelope(type="user", cwd="\ud83d")),
        (b'{"type":"user","uuid":7,"x":NaN}', Envelope(type="user")),
        (b'{"type":"user","x":' + b"1" * 6000 + b"}", Envelope(type="user")),
        (b'{"type":"user","x":' + DEEP + b',"uuid":"u"}', Envelope(type="user", uuid="u")),
        (b'{"type":"user","x":1e400,"x":-0}', Envelope(type="user")),
    ],
)
def test_reader_record_that_strict_decoders_refuse_is_one_record(text, envelope):
    """Alone, and again glued to another on the same line."""
    (item,) = Reader(io.BytesIO(text + b"\n"))
    assert isinstance(item, Found)
    assert item.envelope == envelope
    items, _ = read(text + A + text + b"\n")
    ends = len(text), len(text) + len(A)
    assert items == [
        ("found", 0, len(text), 0), ("found", ends[0], len(A), 0), ("found", ends[1], len(text), 0)
    ]  # fmt: skip


@pytest.mark.parametrize("control", [0, 1, 8, 0x1F])
def test_reader_raw_control_character_in_a_string_is_broken(control):
    """Neither decoder takes it, in a wanted member or in a skipped one."""
    for member in (b"uuid", b"unknown"):
        data = b'{"type":"user","' + member + b'":"' + bytes([control]) + b'"}\n'
        assert read(data)[0] == [("broken", 0, len(data) - 1, 0)]


def test_reader_deep_array_is_one_value_and_its_inner_objects_are_no_records():
    """Depth is no damage, and what is inside a value is not beside it."""
    data = b"[" * 5000 + A + b"]" * 5000 + b"\n"
    assert read(data)[0] == [("value", 0, len(data) - 1, 0)]


def test_reader_deep_record_after_garbage_is_found_whatever_its_key_looks_like():
    """`type` may be written with an escape."""
    deep = b'{"\\u0074ype":"user","x":' + DEEP + b"}"
    assert read(b"x" + deep + b"\n")[0] == [("broken", 0, 1, 0), ("found", 1, len(deep), 0)]


@pytest.mark.timeout(10)
def test_reader_torn_deep_record_does_not_hang():
    """An unterminated string behind many levels costs one look, not an exponential search."""
    began = time.perf_counter()
    items, _ = read(
        b'{"type":"user","x":' + b"[" * 2000 + b'"' + b"a" * 100_000 + b"\\x\n" + A + b"\n"
    )
    assert [item[0] for item in items] == ["broken", "found"]
    assert time.perf_counter() - began < 5


def test_reader_record_near_the_recursion_limit_never_raises():
    """At every depth around it: whichever decoder still manages, the record is the same."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 250, limit + 10):
        text = b'{"uuid":5,"type":"user","message":' + b"[" * depth + b"]" * depth + b"}"
        (item,) = Reader(io.BytesIO(text + b"\n"))
        assert isinstance(item, Found), depth
        assert (item.length, item.envelope.type, item.envelope.uuid) == (len(text), "user", None)


def test_reader_resumed_at_an_offset_numbers_lines_and_bytes_from_there():
    """A BOM belongs to the file's beginning only."""
    data = A + b"\n" + A + b"\n"
    source = io.BytesIO(data)
    source.seek(27)
    assert [item[:3] for item in Reader(source, offset=27, line=1)] == [(27, 26, 1)]
    assert [item[3] for item in Reader(io.BytesIO(BOM + b"\n"), offset=9, line=1)] == ["broken"]


HOSTILE = {
    "braces": b"{" * 8_000_000,
    "unclosed objects": b'{"a":' * 250_000,
    "unclosed arrays": b"[" * 1_000_000,
    "unclosed typed objects": b'{"type":[' * 200_000,
    "open keys": b'{"' * 4_000_000,
    "garbage and records": b'x{"type":1}' * 100_000,
    "failing far into the line": b'"' + b"a" * 20_000_000 + b'" x' + b'{"' * 50_000,
    "failing after non-ASCII text": '"\u4e2d'.encode() * 2_000_000 + b'{"' * 50_000,
    "long strings that fail": (b'{"k":"' + b"a" * 5000 + b'"x') * 2000,
    "deep objects glued": (b'{"a":' * 1200 + b"1" + b"}" * 1200) * 500,
    "half objects": b'{"type":"a","b":' * 125_000,
    "quotes": b'"' * 1_500_001,
    "numbers": b"1 " * 400_000,
    "digits": b"1" * 8_000_000,
    "nul": b"\0" * 20_000_000,
    "nul and spaces": b"\0 " * 400_000,
}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", HOSTILE)
def test_reader_hostile_megabytes_on_one_line_take_seconds(name):
    """No line costs more than its length allows, and the next line is read as ever."""
    data = HOSTILE[name] + b"\n" + A + b"\n"
    began = time.process_time()
    (last,) = deque(Reader(io.BytesIO(data)), maxlen=1)
    assert last[:3] == (len(data) - 27, 26, 1)
    assert time.process_time() - began < 30


LONG = b'{"type":"user","skipped":{"uuid":"no"},"x":"%s","cwd":"/\xe4\xb8\xad","n":[1,-2.5e3,true]}'
BARE = len(LONG % b"")
"""Bytes of it around its filler."""


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1 << 20])
@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        (LONG % (b"y" * 200), [("found", 0, BARE + 200)]),
        (b" \t" + LONG % (b'\\"\\u00e9\\\\' * 30) + b"\r ", [("found", 2, BARE + 300)]),
        (LONG % (b"y" * 90) + LONG % (b"\xff" * 90),
         [("found", 0, BARE + 90), ("found", BARE + 90, BARE + 90)]),
        (b"\0" * 200, [("nul", 0, 200)]),
        (b"\0" * 100 + LONG % b"y", [("nul", 0, 100), ("found", 100, BARE + 1)]),
        (b" " * 200, []),
        (b"[" + b"1," * 100 + b"1]", [("value", 0, 203)]),
        (b'"' + b"s" * 100 + b'" 12 {}', [("value", 0, 102), ("value", 103, 2), ("found", 106, 2)]),
        (b'{"type":"a","x":[1}' + b" " * 100, [("broken", 0, 119)]),
        (b'{"type":"a" garbage' + b" " * 100 + b"}", [("broken", 0, 120)]),
        (b'{"type":"a","x":"' + b"y" * 100, [("broken", 0, 117)]),
        (b'{"x":"' + b"y" * 100 + b"\\", [("broken", 0, 107)]),
        (b'{"x":"' + b"y" * 100 + b'\\x"}', [("broken", 0, 110)]),
        (b'{"x":"' + b"y" * 100 + b'\x01"}', [("broken", 0, 109)]),
        (b'{"x":[' + b"1," * 50 + b"]}", [("broken", 0, 108)]),
        (b'{"x":' + b"0" * 100 + b"}", [("broken", 0, 106)]),
        (b"{}" * 20 + b"}" * 40,
         [*(("found", at, 2) for at in range(0, 40, 2)), ("broken", 40, 40)]),
        (b"{}" + b"x" * 100, [("found", 0, 2), ("broken", 2, 100)]),
    ],
)  # fmt: skip
def test_reader_line_too_long_to_hold_is_checked_in_passing(line, pieces, chunk):
    """The same whatever the pieces read; broken means to the end of the line, from its value on."""
    data = line + b"\n" + A + b"\n"
    reader = Reader(io.BytesIO(data), hold=64, chunk=chunk)
    items = list(reader)
    assert [
        (item.reason if isinstance(item, Damage) else "found", *item[:2]) for item in items[:-1]
    ] == pieces
    assert items[-1][:3] == (len(line) + 1, 26, 1)
    assert all(item.raw is None for item in items[:-1] if isinstance(item, Found))
    kinds = [piece[0] for piece in pieces]
    assert reader.counts == Counts(
        lines=2,
        records=kinds.count("found") + 1,
        values=kinds.count("value"),
        broken=kinds.count("broken"),
        concatenated=int(kinds.count("found") + kinds.count("value") > 1),
        blank=int(not set(kinds) - {"nul"}),
    )
    for item in items[:-1]:
        if isinstance(item, Found) and item.length >= BARE:
            assert (item.envelope.cwd, item.envelope.uuid) == ("/\u4e2d", None)


def test_reader_unterminated_line_too_long_to_hold_is_tentative_or_pending():
    """As for any other last line."""
    whole = b'{"type":"user","x":"' + b"y" * 100 + b'"}'
    for tail, found, pending in ((whole, [(27, 122, 1)], False), (whole[:-1], [], True)):
        reader = Reader(io.BytesIO(A + b"\n" + tail), hold=64)
        items = list(reader)
        assert [item[:3] for item in items[1:]] == found
        assert all(isinstance(item, Found) and item.tail for item in items[1:])
        assert (reader.pending, reader.counts.broken, reader.settled) == (pending, int(pending), 27)


def test_reader_long_line_with_repeated_member_last_one_counts():
    """Even when the last one is too big or of another kind to be kept."""
    pad = b'"x":"' + b"y" * 100 + b'",'
    for last, uuid in (
        (b'"b"', "b"),
        (b'{"c":1}', None),
        (b"5", None),
        (b'"' + b"z" * 70_000 + b'"', None),
    ):
        data = b"{" + pad + b'"uuid":"a","\\u0075uid":' + last + b"}\n"
        (item,) = Reader(io.BytesIO(data), hold=64)
        assert isinstance(item, Found)
        assert (item.length, item.envelope.uuid) == (len(data) - 1, uuid)


class Synthetic:
    """A source that makes up its bytes: a head, a filler repeated, an end."""

    def __init__(self, head, filler, times, end):
        self._parts = iter([head, *[filler] * times, end])
        self._rest = b""

    def read(self, size, /):
        while len(self._rest) < size and (part := next(self._parts, b"")):
            self._rest += part
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("filler", [b"a" * (1 << 20), b'{"k":[1,2]},' * 1000, b"[" * 10_000],
                         ids=["base64", "dense", "depth"])  # fmt: skip
def test_reader_three_hundred_megabyte_line_stays_within_memory(filler):
    """Its span is exact, its small members are known, its bytes are never held."""
    dense = filler[:1] == b"{"
    times = {b"a": 300, b"{": 100, b"[": 30_000}[filler[:1]]
    head = b'{"type":"user","uuid":"u","x":' + (
        b"[" if dense else b'"' if filler[:1] == b"a" else b""
    )
    end = (b"1]" if dense else b'"') + b',"cwd":"/c"}'
    length = len(head) + len(filler) * times + len(end)
    tracemalloc.start()
    hold = 1 << 20 if dense else 32 << 20  # brackets are slow to pass over
    reader = Reader(Synthetic(head, filler, times, end + b"\n" + A + b"\n"), hold=hold)
    items = list(reader)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    assert items[-1][:3] == (length + 1, 26, 1)
    if filler[:1] == b"[":
        assert items[0] == Damage(0, length, 0, "broken")
    else:
        assert items[0] == Found(
            0, length, 0, Envelope(type="user", uuid="u", cwd="/c"), None, False
        )


def test_reader_dense_corpus_sized_file_is_read_at_the_promised_speed():
    """Well formed lines stay on the fast way: a fifth of the measured speed is the floor."""
    line = json.dumps({"type": "user", "uuid": "u", "message": {"content": "word " * 400}}).encode()
    data = (line + b"\n") * 10_000
    began = time.perf_counter()
    reader = Reader(io.BytesIO(data))
    assert sum(1 for _ in reader) == 10_000
    assert len(data) / (time.perf_counter() - began) > 60e6

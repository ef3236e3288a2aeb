"""A transcript as records with exact spans, and damage with a name. Nothing is dropped.

Lines end at LF only. Each line is decoded typed and in one go; a line that this
refuses is taken apart tolerantly (`lines`); one too long to hold is passed over in
pieces (`long_line`). Memory is bounded by the longest line that is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from fabled.model import Damage
from fabled.transcript.envelope import Envelope
from fabled.transcript.lines import parse_line
from fabled.transcript.long_line import LongLine
from fabled.transcript.tolerant import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

CHUNK = 512 << 10
HOLD = 32 << 20
BOM = b"\xef\xbb\xbf"
_SKIP = b" \t\r\0"


class Source(Protocol):
    """Bytes in order, from where the reading begins."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; empty at the end."""


class Found(NamedTuple):
    """One JSON object.

    Attributes:
        offset: Of its opening brace in the file.
        length: Bytes from there to its closing brace.
        line: Newlines before it in the file.
        raw: Its bytes; None on a line too long to be held.
        tail: It stands on a last line without newline: more may follow.
    """

    offset: int
    length: int
    line: int
    envelope: Envelope
    raw: bytes | None
    tail: bool


class Counts(msgspec.Struct, gc=False):
    """What was read so far, by the counting rules of the format's measurements."""

    lines: int = 0
    records: int = 0
    values: int = 0
    broken: int = 0
    concatenated: int = 0
    blank: int = 0


class Reader:
    """Iterates over what a source holds, in file order.

    Args:
        source: Positioned at `offset`.
        offset: Where in the file reading begins; the beginning of a line.
        line: Number of that line.
        chunk: Bytes a read.
        hold: Longest line that is held in memory.

    Attributes:
        counts: What was read so far.
        settled: After the last item: just past the last newline.
        settled_line: Number of the line that begins there.
        end: Where the source ended.
        pending: What follows `settled` does not decode to its end: a write under way.
    """

    def __init__(
        self,
        source: Source,
        *,
        offset: int = 0,
        line: int = 0,
        chunk: int = CHUNK,
        hold: int = HOLD,
    ) -> None:
        self._source = source
        self._chunk = chunk
        self._hold = hold
        self._decode = msgspec.json.Decoder(Envelope).decode
        self.counts = Counts()
        self.settled = offset
        self.settled_line = line
        self.end = offset
        self.pending = False

    def __iter__(self) -> Iterator[Found | Damage]:
        """Every record and every damage, in file order."""
        rest = b""
        while data := self._source.read(self._chunk):
            self.end += len(data)
            rest = yield from self._split(rest + data if rest else data, len(rest))
            while len(rest) > self._hold:
                rest = yield from self._long(rest)
                rest = yield from self._split(rest, 0)
        if rest:
            yield from self._line(rest, finished=False)

    def _split(self, data: bytes, searched: int) -> Generator[Found | Damage, None, bytes]:
        """Read the complete lines of the data; returns what follows the last of them."""
        start = 0
        while (stop := data.find(b"\n", max(start, searched))) >= 0:
            # By its length alone, wherever the pieces read happen to end: the same file
            # must give the same items however it grew.
            if stop - start > self._hold:
                passed = LongLine()
                passed.feed(self._after_bom(data[start:stop]))
                yield from self._passed(passed, stop - start, finished=True)
            else:
                yield from self._line(data[start:stop], finished=True)
            start = stop + 1
        return data[start:]

    def _after_bom(self, line: bytes) -> bytes:
        return line.removeprefix(BOM) if self.settled == 0 else line

    def _line(self, line: bytes, *, finished: bool) -> Iterator[Found | Damage]:
        offset, number = self.settled, self.settled_line
        self.counts.lines += 1
        if finished:
            self.settled += len(line) + 1
            self.settled_line += 1
        if offset == 0 and line.startswith(BOM):
            line, offset = line[len(BOM) :], len(BOM)
        body = line.rstrip(b" \t\r")
        if body[:1] == b"{" and body[-1:] == b"}":
            try:
                envelope = self._decode(body)
            except REFUSALS:
                pass  # the tolerant way decides
            else:
                self.counts.records += 1
                yield Found(offset, len(body), number, envelope, body, not finished)
                return
        yield from self._tolerant(line, offset, number, finished=finished)

    def _tolerant(
        self, line: bytes, offset: int, number: int, *, finished: bool
    ) -> Iterator[Found | Damage]:
        counts = self.counts
        if not line.strip(_SKIP):
            counts.blank += 1
        parsed = parse_line(line, finished=finished)
        counts.broken += parsed.broken
        counts.concatenated += parsed.values > 1
        self.pending = parsed.torn is not None
        for start, end, envelope, reason in parsed.pieces:
            if envelope is not None:
                counts.records += 1
                raw = line[start:end]
                yield Found(offset + start, end - start, number, envelope, raw, not finished)
            else:
                counts.values += reason == "value"
                yield Damage(offset + start, end - start, number, reason)

    def _long(self, data: bytes) -> Generator[Found | Damage, None, bytes]:
        """Pass over a line too long to hold; returns what was read beyond it."""
        passed = LongLine()
        passed.feed(self._after_bom(data))
        length, rest, finished = len(data), b"", False
        while not finished and (data := self._source.read(self._chunk)):
            self.end += len(data)
            piece, newline, rest = data.partition(b"\n")
            finished = bool(newline)
            passed.feed(piece)
            length += len(piece)
        yield from self._passed(passed, length, finished=finished)
        return rest

    def _passed(self, passed: LongLine, length: int, *, finished: bool) -> Iterator[Found | Damage]:
        passed.finish()
        offset, number, counts = self.settled, self.settled_line, self.counts
        offset += length - passed.length  # a byte order mark
        if finished:
            self.settled += length + 1
            self.settled_line += 1
        counts.lines += 1
        counts.broken += passed.broken
        counts.concatenated += passed.values > 1
        counts.blank += not passed.values and not passed.broken
        self.pending = passed.broken and not finished
        for start, end, envelope, reason in passed.pieces:
            at, size = offset + start, end - start
            if envelope is not None:
                counts.records += 1
                yield Found(at, size, number, envelope, None, not finished)
            elif finished or reason != "broken":
                counts.values += reason == "value"
                yield Damage(at, size, number, reason)

"""A conversation as text within a budget: words whole as long as they fit, bulk elided first.

What is cut is marked with the id to fetch it by, and nothing is reworded. One token
is estimated as four characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.recall.conversation import BRANCH, SIDECHAIN, Turn
from fabled.recall.dates import iso
from fabled.transcript.sentinel import neutral
from fabled.transcript.text import PROMPT, REPLY, RESULT, THINKING, TOOL, Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.transcript.veil import Veil

CHARS_PER_TOKEN = 4
OVERRUN = 1.5
"""The text is never longer than this times its budget."""

_CUT_ORDER: tuple[tuple[tuple[str, ...], int], ...] = (
    ((RESULT,), 400),
    ((TOOL, THINKING), 200),
    ((RESULT, TOOL, THINKING), 60),
    ((PROMPT, REPLY, "note"), 400),
)
"""What is shortened, in this order, and to how many characters at the least."""


class Rendered(NamedTuple):
    """A thread's text.

    Attributes:
        truncated: Something was cut; each cut names what to fetch.
        records: Ids of the records shown, in order.
    """

    text: str
    truncated: bool
    records: list[str]

    @property
    def tokens(self) -> int:
        """Estimated tokens."""
        return tokens(self.text)


class _Line(NamedTuple):
    head: str
    kind: str
    text: str
    name: str


def tokens(text: str) -> int:
    """The estimate used everywhere: four characters a token."""
    return (len(text) + CHARS_PER_TOKEN - 1) // CHARS_PER_TOKEN


class Room(NamedTuple):
    """How long a text may be, in characters: about `wanted`, never more than `most`."""

    wanted: int
    most: int

    @classmethod
    def of(cls, budget: int, taken: int) -> Room:
        """What a budget in tokens leaves when so many characters are taken already."""
        whole = budget * CHARS_PER_TOKEN
        return cls(max(0, whole - taken), max(0, int(whole * OVERRUN) - taken))


def render(turns: list[Turn], key: str, space: Room, veil: Veil) -> Rendered:
    """The turns as text that fits its room.

    Args:
        turns: In the order to show.
        key: The thread's key, named where whole turns are left out.
        space: The room.
        veil: What is not shown: earlier recalls stand as a stub, secrets not at all.
    """
    lines = [line for turn in turns for line in _lines(turn, veil)]
    room, most = space
    limits = _limits(lines, room)
    pieces = [_cut(line, limits) for line in lines]
    cut = any(len(line.text) > limits.get(line.kind, len(line.text)) for line in lines)
    kept, dropped = _middle_out(pieces, room)
    if dropped:
        gap = f"[{dropped} parts left out - fablectl thread --raw {key}]"
        pieces = [*pieces[:kept], gap, *pieces[kept + dropped :]]
    text = "\n\n".join(pieces)
    if len(text) > most:
        mark = f"\n[truncated - fablectl thread --raw {key}]"
        text = text[: max(0, most - len(mark))] + mark[: most or None]
        cut = True
    names = list(dict.fromkeys(turn.pointer.name for turn in turns))
    return Rendered(text, cut or dropped > 0, names)


def _lines(turn: Turn, veil: Veil) -> Iterable[_Line]:
    name = turn.pointer.name
    if turn.parts is None:
        yield _Line(_head(turn, "record"), RESULT, f"[{turn.pointer.length} bytes]", name)
        return
    last = ""
    for part in turn.parts:
        head = _head(turn, _label(turn, part))
        text = neutral(veil.text(part.text)).strip("\n")
        yield _Line("" if head == last else head, part.kind, text, name)
        last = head


def _label(turn: Turn, part: Part) -> str:
    if part.kind == RESULT:
        return "tool result"
    if part.kind == TOOL:
        return "tool call"
    if part.kind == THINKING:
        return "thinking"
    return {"user": "user", "assistant": "assistant"}.get(turn.pointer.role, turn.pointer.kind)


def _head(turn: Turn, label: str) -> str:
    stamp = iso(turn.pointer.ts_ms)
    when = f" {stamp[:10]} {stamp[11:19]}Z" if stamp else ""
    beside = ""
    if turn.lane == SIDECHAIN:
        beside = f" (sidechain of agent {turn.agent})" if turn.agent else " (sidechain)"
    elif turn.lane == BRANCH:
        beside = " (abandoned branch)"
    return f"## {label}{when}{beside}"


def _limits(lines: list[_Line], room: int) -> dict[str, int]:
    """How many characters a part of each kind may keep, so that all of them fit the room."""
    limits: dict[str, int] = {}
    for kinds, least in _CUT_ORDER:
        if _size(lines, limits) <= room:
            break
        low, high = least, max((len(line.text) for line in lines if line.kind in kinds), default=0)
        while low < high:
            middle = (low + high + 1) // 2
            if _size(lines, {**limits, **dict.fromkeys(kinds, middle)}) <= room:
                low = middle
            else:
                high = middle - 1
        limits.update(dict.fromkeys(kinds, low))
    return limits


def _size(lines: list[_Line], limits: dict[str, int]) -> int:
    return sum(_length(line, limits) for line in lines)


def _length(line: _Line, limits: dict[str, int]) -> int:
    limit = limits.get(line.kind, len(line.text))
    head = len(line.head) + 1 if line.head else 0
    if len(line.text) <= limit:
        return head + len(line.text) + 2
    return head + limit + len(_marker(line)) + 2


def _marker(line: _Line) -> str:
    return f"\n[truncated - fablectl block {line.name}]"


def _cut(line: _Line, limits: dict[str, int]) -> str:
    limit = limits.get(line.kind, len(line.text))
    text = line.text if len(line.text) <= limit else line.text[:limit] + _marker(line)
    return f"{line.head}\n{text}" if line.head else text


def _middle_out(pieces: list[str], room: int) -> tuple[int, int]:
    """How many first pieces to keep and how many after them to leave out.

    The beginning of a thread says what was asked, its end what came of it: two fifths of
    the room go to the first pieces, the rest to the last.
    """
    if sum(len(piece) + 2 for piece in pieces) <= room:
        return len(pieces), 0
    first = _fit(pieces, room * 2 // 5)
    last = _fit(reversed(pieces[first:]), room - room * 2 // 5)
    first, last = max(1, first), max(1, last)
    return first, max(0, len(pieces) - first - last)


def _fit(pieces: Iterable[str], room: int) -> int:
    count = 0
    for piece in pieces:
        room -= len(piece) + 2
        if room < 0:
            break
        count += 1
    return count

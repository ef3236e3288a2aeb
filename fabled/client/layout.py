"""Text in columns of a terminal: what it is safe to show, how wide it is, where to break it."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Everything a terminal obeys instead of showing: escape sequences whole, then any control
# character left over, then the marks that reverse the direction of the text after them.
# A sequence that never ends must not take the rest of the text along: it ends with its line.
_OBEYED = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_LINE_ENDS = re.compile(r"\r\n?")
_BREAKS = re.compile(r"\s+")


def safe(text: str) -> str:
    """The text without anything that a terminal would obey; newlines and tabs stay."""
    return _OBEYED.sub("", _LINE_ENDS.sub("\n", text))


def flat(text: object) -> str:
    """One safe line of whatever a field holds; nothing for None."""
    return "" if text is None else _BREAKS.sub(" ", safe(str(text))).strip()


def cells(text: str) -> int:
    """How many columns the text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _head(text: str, width: int) -> str:
    """As many first characters as fit; one at least, so that a loop over the text ends."""
    used = 0
    for at, char in enumerate(text):
        used += _cell(char)
        if used > width:
            return text[: max(1, at)]
    return text


def fit(text: str, width: int | None) -> str:
    """The text, its end cut off where it is wider than `width`; None is as wide as it takes."""
    if width is None or cells(text) <= width:
        return text
    return _head(text, width - 1).rstrip() + "…" if width > 1 else "…"[:width]


def wrap(text: str, width: int | None) -> list[str]:
    """The text in lines of at most `width` columns, broken at spaces where there are any."""
    if width is None:
        return [text]
    lines = [""]
    for word in text.split(" "):
        rest = word
        while True:
            joined = f"{lines[-1]} {rest}" if lines[-1] else rest
            if cells(joined) <= width:
                lines[-1] = joined
                break
            if lines[-1]:
                lines.append("")
                continue
            part = _head(rest, width)
            lines[-1], rest = part, rest[len(part) :]
            lines.append("")
    return lines if lines[-1] else lines[:-1] or [""]


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[list[str]]:
    """The cells of each row, padded so that columns stand under each other; the last is not.

    Args:
        rows: Heading first, if there is one.
        right: Columns whose cells are pushed to the right.
    """
    if not rows:
        return []
    widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [[_pad(row, at, widths, at in right) for at in range(len(row))] for row in rows]


def _pad(row: Sequence[str], at: int, widths: Sequence[int], right: bool) -> str:
    room = " " * (widths[at] - cells(row[at]))
    if right:
        return room + row[at]
    return row[at] if at == len(row) - 1 else row[at] + room

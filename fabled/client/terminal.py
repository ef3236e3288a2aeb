"""What people see: words made harmless, sizes and times made short, colour for a terminal."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import click

TITLE_WIDTH = 78

_HARMLESS = dict.fromkeys((*range(32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
_HARMLESS.update({ord("\n"): "\n", ord("\t"): "\t", ord("\r"): ""})


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def harmless(text: str) -> str:
    """Transcript text that cannot steer a terminal: control characters are replaced."""
    return text.translate(_HARMLESS)


def line(text: object) -> str:
    """Harmless text on one line."""
    return " ".join(harmless(str(text)).split())


def heading(title: str | None) -> str:
    """A session's title on one line of a terminal."""
    text = line(title or "Untitled")
    return text if len(text) <= TITLE_WIDTH else text[: TITLE_WIDTH - 1].rstrip() + "…"


def out(text: str = "", *, nl: bool = True, **style: Any) -> None:
    """Print a line of data; style shows on a terminal only, and not with NO_COLOR."""
    click.echo(click.style(text, **style) if style else text, nl=nl)


def say(text: str) -> None:
    """Print a message: to standard error, so that data stays data."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace"))


def size(count: float) -> str:
    """Bytes in the unit that fits: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def count(number: int) -> str:
    """A number with separators: 12,345."""
    return f"{number:,}"


def duration(seconds: float) -> str:
    """Seconds in the two largest units: 2 h 5 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(text: str | None) -> str:
    """An ISO time in the local zone, to the minute; a dash when there is none."""
    if not text:
        return "-"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")

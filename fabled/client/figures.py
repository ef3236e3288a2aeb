"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from fabled.client.layout import flat

_UNITS = ("kB", "MB", "GB", "TB", "PB")


def count(number: float | None) -> str:
    """A whole number in groups of three digits."""
    return "?" if number is None else f"{int(number):,}"


def counted(number: float | None, noun: str) -> str:
    """A number of things; the noun is one whose plural takes an s."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def size(octets: float | None) -> str:
    """Bytes in decimal units, with two significant digits at least."""
    if octets is None:
        return "?"
    if octets < 1000:
        return f"{int(octets)} B"
    value, unit = _scaled(octets, _UNITS)
    return f"{value} {unit}"


def magnitude(number: float | None) -> str:
    """A number for which the magnitude is enough: 950, 3.4k, 120k, 1.2M."""
    if number is None:
        return "?"
    if number < 1000:
        return f"{number:.0f}"
    return "".join(_scaled(number, ("k", "M")))


def _scaled(number: float, units: tuple[str, ...]) -> tuple[str, str]:
    """The number in the unit that fits, each unit a thousand of the one before."""
    value = number / 1000
    at = 0
    while value >= 999.5 and at < len(units) - 1:
        value /= 1000
        at += 1
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}", units[at]


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units."""
    if seconds is None:
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def when(stamp: str | None, *, local: bool) -> str:
    """A time to the minute, in the zone of this machine or in UTC; "-" when there is none."""
    if not stamp:
        return "-"
    try:
        then = datetime.fromisoformat(stamp)
        if local:
            return then.astimezone().strftime("%Y-%m-%d %H:%M")
        return then.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
    except (ValueError, OverflowError):
        return flat(stamp)  # not a time that a calendar has: as it is, made harmless


def day(stamp: str | None, *, local: bool) -> str:
    """The date of a time."""
    return when(stamp, local=local)[:10]

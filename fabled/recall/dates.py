"""`--since` and `--until`: an ISO date or time, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from fabled.errors import UsageError

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
ALLOWED = "an ISO date or time, today, yesterday, or how long ago: 90m, 24h, 7d, 2w"


def moment(text: str, now_ms: int, *, end: bool = False) -> int:
    """The UTC epoch milliseconds of what was typed; times without zone are UTC.

    Args:
        text: As typed.
        now_ms: The present, for what is relative to it.
        end: A bare day means its end, so that `--until` includes it.

    Raises:
        UsageError: It is none of the forms allowed.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    word = text.strip().lower()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"today": today, "yesterday": today - timedelta(days=1)}
    ago = _AGO.fullmatch(word)
    if word == "now":
        return now_ms
    if ago is not None:
        try:
            then = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            return 0
        return _ms(then)
    if word in days:
        return _ms(days[word] + timedelta(days=1 if end else 0))
    try:
        then = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is no date: allowed is {ALLOWED}") from None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    if end and re.fullmatch(r"\d{4}-?\d\d-?\d\d", text.strip()):
        then = _next_day(then)
    return _ms(then)


def _next_day(then: datetime) -> datetime:
    try:
        return then + timedelta(days=1)
    except OverflowError:
        return then


def _ms(then: datetime) -> int:
    return max(0, int(then.timestamp() * 1000))


def iso(ms: int | None) -> str | None:
    """ISO 8601 UTC with milliseconds; None stays None."""
    if ms is None:
        return None
    then = datetime.fromtimestamp(ms / 1000, UTC)
    return then.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"

"""`--since` and `--until` in the forms people type."""

from __future__ import annotations

import pytest

from fabled.errors import UsageError
from fabled.recall.dates import iso, moment

NOW = 1_793_534_400_000  # 2026-11-01T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-10-31", "2026-10-31T00:00:00.000Z"),
        ("2026-10-31T08:30", "2026-10-31T08:30:00.000Z"),
        ("2026-10-31T08:30:00+02:00", "2026-10-31T06:30:00.000Z"),
        ("today", "2026-11-01T00:00:00.000Z"),
        ("yesterday", "2026-10-31T00:00:00.000Z"),
        ("90m", "2026-11-01T10:30:00.000Z"),
        ("2w", "2026-10-18T12:00:00.000Z"),
        ("now", "2026-11-01T12:00:00.000Z"),
        ("999999w", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_typed_date_is_understood(text, expected):
    """ISO dates and times, days by name, and how long ago."""
    assert iso(moment(text, NOW)) == expected


def test_until_a_day_includes_that_day():
    """A bare day as an end is the end of that day."""
    assert iso(moment("2026-10-31", NOW, end=True)) == "2026-11-01T00:00:00.000Z"


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "7 parsecs", "\ud800"])
def test_anything_else_is_a_usage_error(text):
    """What is no date is said to be none, with what is allowed."""
    with pytest.raises(UsageError, match="allowed is"):
        moment(text, NOW)

"""Query parameters, checked once at the door."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import UsageError
from fabled.model import Filter
from fabled.protocol import (
    CARD_TYPES,
    DEFAULT_BUDGET,
    DEFAULT_RESULTS,
    KINDS,
    LEVELS,
    MAX_BUDGET,
    MAX_QUERY_CHARS,
    MAX_RESULTS,
    SORTS,
)
from fabled.recall.dates import moment

if TYPE_CHECKING:
    from collections.abc import Mapping


FACETS = ("operative", "target", "concept")
"""Kinds of terms that a search can be restricted to, by the names of their parameters."""


class Asked(NamedTuple):
    """One search or recall as asked for.

    Attributes:
        cut: The query was longer than `MAX_QUERY_CHARS`; only its beginning is used.
        session: As typed; it is looked up with the search.
    """

    query: str
    cut: bool
    limit: int
    budget: int
    level: str
    sort: str
    session: str | None
    wanted: Filter


def search_asked(given: Mapping[str, str], now_ms: int) -> Asked:
    """Read the parameters of `/v1/search` and `/v1/recall`.

    Raises:
        UsageError: One of them is missing or has a value that is not allowed.
    """
    query = given.get("q", given.get("query", ""))
    if not query.strip("\0 \t\r\n"):
        raise UsageError("the query is empty", hint="Give a word to look for.")
    kind = one_of(given, "kind", KINDS, "")
    wanted = Filter(
        project=given.get("project") or None,
        since_ms=moment(given["since"], now_ms) if given.get("since") else None,
        until_ms=moment(given["until"], now_ms, end=True) if given.get("until") else None,
        side=None if not kind else kind == "subagent",
        terms=tuple((name, given[name]) for name in FACETS if given.get(name)),
        type=one_of(given, "type", CARD_TYPES, "") or None,
    )
    return Asked(
        query=query[:MAX_QUERY_CHARS],
        cut=len(query) > MAX_QUERY_CHARS,
        limit=number(given, "n", DEFAULT_RESULTS, 1, MAX_RESULTS),
        budget=number(given, "budget", DEFAULT_BUDGET, 100, MAX_BUDGET),
        level=one_of(given, "level", LEVELS, "thread"),
        sort=one_of(given, "sort", SORTS, "relevance"),
        session=given.get("session"),
        wanted=wanted,
    )


def number(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        UsageError: It is none, or out of bounds.
    """
    text = given.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
        raise UsageError(f"{name} = {text[:40]!r}: allowed is a number from {least} to {most}")
    return int(text)


def flag(given: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """A parameter that is 1 or 0.

    Raises:
        UsageError: It is neither.
    """
    text = given.get(name)
    if text is None:
        return default
    if text not in {"0", "1"}:
        raise UsageError(f"{name} = {text[:40]!r}: allowed is 0 or 1")
    return text == "1"


def one_of(given: Mapping[str, str], name: str, words: tuple[str, ...], default: str) -> str:
    """A parameter that is one of a few words.

    Raises:
        UsageError: It is another.
    """
    text = given.get(name) or default
    if text and text not in words:
        raise UsageError(f"{name} = {text[:40]!r}: allowed is {', '.join(words)}")
    return text

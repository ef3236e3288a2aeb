"""Search results as a person reads them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fabled.client.figures import counted, day, magnitude, size, when
from fabled.client.layout import cells, fit, flat, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fabled.client.terminal import Screen

_INDENT = "   "
_ROLE_COLUMNS = 10
_WORD = re.compile(r"\w+")


def ids(value: Mapping[str, Any], level: str) -> Iterator[str]:
    """The ids of what the results stand for, best first."""
    for result in value["results"]:
        yield _id(result, level)


def _id(result: Mapping[str, Any], level: str) -> str:
    return str(result["records"][0]["uuid"] if level == "record" else result[level])


def show_results(screen: Screen, value: Mapping[str, Any], question: str, level: str) -> None:
    """Each result with its title, the id to paste, where and when, and its snippets."""
    words = {word.lower() for word in _WORD.findall(question)}
    for number, result in enumerate(value["results"], 1):
        if number > 1:
            screen.line()
        _show(screen, number, result, words, level)


def _show(
    screen: Screen, number: int, result: Mapping[str, Any], words: set[str], level: str
) -> None:
    mark = f"{number}. "
    room = None if screen.columns is None else screen.columns - len(mark)
    title = fit(flat(result["title"]) or "Untitled session", room)
    screen.line(screen.paint(mark, "dim") + screen.paint(title, "bold"))
    screen.line(_INDENT + screen.paint(flat(_id(result, level)), "cyan"))
    for line in wrap(_facts(screen, result), _within(screen)):
        screen.line(_INDENT + screen.paint(line, "dim"))
    for record in result["records"]:
        _show_record(screen, record, words)


def _facts(screen: Screen, result: Mapping[str, Any]) -> str:
    project = flat(result["project"]).rstrip("/").rpartition("/")[2] or "no project"
    facts = [
        project,
        when(result["last_ts"], local=screen.terminal),
        counted(result["turns"], "turn"),
        f"~{magnitude(result['est_tokens'])} tokens",
    ]
    if result.get("vanished"):
        facts.append("deleted by the client")
    return " · ".join(facts)


def _show_record(screen: Screen, record: Mapping[str, Any], words: set[str]) -> None:
    snippet = flat(record["snippet"])
    if not snippet:
        return
    role = fit(flat(record["role"]) or "record", _ROLE_COLUMNS)
    head = _INDENT + role + " " * (_ROLE_COLUMNS - cells(role)) + " "
    for at, line in enumerate(wrap(snippet, _within(screen, len(head) - len(_INDENT)))):
        lead = screen.paint(head, "dim") if at == 0 else " " * len(head)
        screen.line(lead + _marked(screen, line, words))


def _within(screen: Screen, more: int = 0) -> int | None:
    return None if screen.columns is None else screen.columns - len(_INDENT) - more


def _marked(screen: Screen, line: str, words: set[str]) -> str:
    """The line with the words of the question standing out; its text is the same."""
    if not screen.colour:
        return line

    def stand_out(found: re.Match[str]) -> str:
        word = found[0]
        return screen.paint(word, "bold", "yellow") if word.lower() in words else word

    return _WORD.sub(stand_out, line)


def scope_of(value: Mapping[str, Any]) -> str:
    """What was searched and what the index does not know yet, as one sentence without its dot."""
    parts: list[str] = []
    searched = value.get("searched")
    if searched:
        parts.append(
            f"searched {counted(searched['threads'], 'thread')} in"
            f" {counted(searched['sessions'], 'session')}{_dates(searched)}"
        )
    if value.get("approximate"):
        parts.append("only the newest matches were compared")
    fresh = value.get("freshness") or {}
    if fresh.get("pending_files"):
        files = counted(fresh["pending_files"], "file")
        parts.append(f"{files} ({size(fresh['pending_bytes'])}) not indexed yet")
    if value.get("results"):
        took = f" in {value['took_ms']:.0f} ms" if "took_ms" in value else ""
        parts.insert(0, f"{counted(len(value['results']), 'result')}{took}")
    return "; ".join(parts)


def _dates(searched: Mapping[str, Any]) -> str:
    if not searched.get("from"):
        return ""
    first, last = (day(searched[end], local=False) for end in ("from", "to"))
    return f" of {first}" if first == last else f" from {first} to {last}"

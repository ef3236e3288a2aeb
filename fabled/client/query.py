"""`search`, `thread`, `block` and `recall`: from a question to exact words."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, exclusive, json_option, named
from fabled.client.results import ids, scope_of, show_results
from fabled.errors import UsageError
from fabled.protocol import (
    BLOCKS,
    CARD_TYPES,
    DEFAULT_BUDGET,
    DEFAULT_RESULTS,
    KINDS,
    LEVELS,
    RECALL,
    SEARCH,
    SORTS,
    THREADS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_words = click.argument("words", metavar="QUERY...", nargs=-1, type=click.UNPROCESSED)
_text = click.option(
    "--query", "text", metavar="TEXT", help="The same as QUERY, for text that begins with '-'."
)
_budget = click.option(
    "--budget",
    metavar="TOKENS",
    default=str(DEFAULT_BUDGET),
    show_default=True,
    help="About how many tokens the text may have.",
)
_FILTERS = (
    click.option("--project", metavar="P", help="Only this project: its folder, or the last part."),
    click.option("--session", metavar="S", help="Only this session; the beginning of its id does."),
    click.option("--since", metavar="D", help="Not before: 2026-11-30, 24h, 7d, 2w, yesterday ..."),
    click.option("--until", metavar="D", help="Not after; the same forms, a bare day included."),
)


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.command(epilog="Example: fablectl search --project fabled --since 7d why sqlite")
@_words
@_text
@click.option(
    "-n", "number", metavar="N", default=str(DEFAULT_RESULTS), show_default=True, help="Results."
)
@_filters
@click.option("--kind", type=click.Choice(KINDS), help="Only what people or what subagents did.")
@click.option("--operative", metavar="V", help="Only threads in which this was done: a verb.")
@click.option("--target", metavar="T", help="Only threads that name this path or identifier.")
@click.option("--concept", metavar="C", help="Only threads that are about this; see: terms.")
@click.option("--type", type=click.Choice(CARD_TYPES), help="Only threads whose card is of a type.")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default=LEVELS[0],
    show_default=True,
    help="What a result is.",
)
@click.option(
    "--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True, help="Best first by."
)
@click.option("--ids", "only_ids", is_flag=True, help="Print only ids of the level, one a line.")
@json_option
@click.pass_obj
def search(
    run: Run,
    /,
    *,
    words: tuple[str, ...],
    text: str | None,
    number: str,
    level: str,
    only_ids: bool,
    as_json: bool,
    **given: str | None,
) -> None:
    """Find threads, sessions or records by what was said in them.

    QUERY is plain words, never syntax.
    """
    exclusive("--ids", "--json", both=only_ids and as_json)
    question = _question(words, text)
    answer = run.daemon.ask(SEARCH, q=question, n=number, level=level, **given)
    screen = run.screen
    if as_json:
        screen.json(answer)
        return
    if only_ids:
        for name in ids(answer.value, level):
            screen.text(name + "\n")
    else:
        show_results(screen, answer.value, question, level)
    if not answer.value["results"]:
        screen.say(f"Nothing found: {scope_of(answer.value)}.")
    elif not only_ids:
        screen.say(f"{scope_of(answer.value)}.")


@click.command(epilog="Example: fablectl recall --budget 4000 why did we choose sqlite")
@_words
@_text
@_filters
@_budget
@json_option
@click.pass_obj
def recall(
    run: Run, /, *, words: tuple[str, ...], text: str | None, as_json: bool, **given: str | None
) -> None:
    """Print the best threads for a question, packed into one budget.

    This is what an agent pastes: verbatim text in a wrapper that says where it is from.
    """
    answer = run.daemon.ask(RECALL, q=_question(words, text), **given)
    if as_json:
        run.screen.json(answer)
    elif answer.value["text"]:
        run.screen.text(answer.value["text"])
    else:
        run.screen.say("Nothing found that answers this.")
    if not as_json:
        _warn_of_pending(run, answer.value)


@click.command(epilog="Example: fablectl thread 5f0c1d9e --budget 2000")
@click.argument("name", metavar="THREAD", type=click.UNPROCESSED)
@_budget
@click.option("--raw", is_flag=True, help="Print the records' exact bytes, one a line, instead.")
@click.option("--no-sentinel", is_flag=True, help="Leave out the wrapper that marks recalled text.")
@json_option
@click.pass_obj
def thread(
    run: Run, *, name: str, budget: str, raw: bool, no_sentinel: bool, as_json: bool
) -> None:
    """Print a thread's turns, verbatim.

    THREAD is its id, any unambiguous beginning of it, or the uuid of a record in it.
    Where the budget is too small, what is cut names the record to fetch.
    """
    exclusive("--raw", "--json", both=raw and as_json)
    path = THREADS + named("thread", name)
    if raw:
        for piece in run.daemon.exact(path, raw=1):
            run.screen.raw(piece)
        return
    answer = run.daemon.ask(path, budget=budget, sentinel="0" if no_sentinel else None)
    if as_json:
        run.screen.json(answer)
        return
    run.screen.text(answer.value["text"])
    _warn_of_pending(run, answer.value)


@click.command(epilog="Example: fablectl block 7b8a2c1e-0c5f-4e0b-9a77-3f1f6f2f9d10 > record.json")
@click.argument("name", metavar="UUID", type=click.UNPROCESSED)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object that holds the bytes: as text, or else as base64.",
)
@click.pass_obj
def block(run: Run, *, name: str, as_json: bool) -> None:
    """Print one record's bytes, exactly as they are in the transcript, nothing added."""
    pieces = run.daemon.exact(BLOCKS + named("record", name))
    if as_json:
        run.screen.value(_wrapped(name, b"".join(pieces)))
        return
    for piece in pieces:
        run.screen.raw(piece)


def _wrapped(name: str, data: bytes) -> dict[str, Any]:
    try:
        text, coded = data.decode("utf-8"), None
    except UnicodeDecodeError:
        text, coded = None, base64.b64encode(data).decode("ascii")
    return {"uuid": name, "bytes": len(data), "text": text, "base64": coded}


def _question(words: tuple[str, ...], text: str | None) -> str:
    question = " ".join([*words, *([text] if text else [])])
    if not question.strip():
        raise UsageError("the query is empty", hint="Give a word to look for.")
    return question


def _warn_of_pending(run: Run, value: dict[str, Any]) -> None:
    sentence = scope_of({"freshness": value.get("freshness")})
    if sentence:
        run.screen.say(f"{sentence}.")

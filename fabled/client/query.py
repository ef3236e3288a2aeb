"""`search`, `thread`, `block`, `recall`: questions and their verbatim answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fabled.client import terminal
from fabled.client.http import daemon, segment
from fabled.protocol import (
    BLOCKS,
    DEFAULT_BUDGET,
    DEFAULT_RESULTS,
    KINDS,
    LEVELS,
    MAX_BUDGET,
    MAX_RESULTS,
    RECALL,
    SEARCH,
    SORTS,
    THREADS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabled.client.http import Reply

Options = dict[str, Any]


def _question(command: Callable[..., None]) -> Callable[..., None]:
    """The words of a question and what restricts it, alike for search and recall."""
    for option in (
        click.argument("words", metavar="QUERY...", nargs=-1),
        click.option("--query", "text", help="The question, also when it begins with a dash."),
        click.option("--project", help="A working folder, or the end of its path."),
        click.option("--session", help="A session's id, or its beginning."),
        click.option("--since", help="Only from here on: 2026-11-30, yesterday, 7d, 24h."),
        click.option("--until", help="Only up to here, a named day included."),
        click.option("--kind", type=click.Choice(KINDS), help="Only main or subagents' records."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object."),
    ):
        command = option(command)
    return command


def _text(words: tuple[str, ...], text: str | None) -> str:
    said = " ".join([*words, *([text] if text is not None else [])])
    if not said.strip():
        raise click.UsageError("Give words to look for.")
    return said


@click.command(epilog="Example: fablectl search --since 30d why sqlite")
@_question
@click.option(
    "-n",
    "limit",
    type=click.IntRange(1, MAX_RESULTS),
    default=DEFAULT_RESULTS,
    show_default=True,
    help="Results at most.",
)
@click.option(
    "--level", type=click.Choice(LEVELS), default="thread", show_default=True, help="What to rank."
)
@click.option("--sort", type=click.Choice(SORTS), default="relevance", show_default=True)
@click.option("--ids", is_flag=True, help="Only ids of the level, best first, one a line.")
@click.pass_context
def search(
    ctx: click.Context, /, words: tuple[str, ...], text: str | None, limit: int, **given: Any
) -> None:
    """Find threads, sessions or records by words, best first.

    Any text will do: nothing in it is query syntax. A thread is one prompt and
    everything it caused.
    """
    query = _filters(given) | {
        "q": _text(words, text),
        "n": limit,
        "level": given["level"],
        "sort": given["sort"],
    }
    found = daemon(ctx).get(SEARCH, query)
    if given["ids"]:
        for result in found["results"]:
            terminal.out(_id(result, given["level"]))
    elif given["as_json"]:
        terminal.print_json(found)
    else:
        _show_results(found)


def _filters(given: Options) -> Options:
    return {name: given[name] for name in ("project", "session", "since", "until", "kind")}


def _id(result: Options, level: str) -> str:
    if level == "record":
        return str(result["records"][0]["uuid"])
    return str(result[level])


def _show_results(found: Options) -> None:
    for result in found["results"]:
        terminal.out(terminal.heading(result["title"]), bold=True)
        facts = [
            terminal.moment(result["first_ts"]),
            terminal.line(result["project"] or "-"),
            f"{result['turns']} turns",
            f"~{terminal.count(result['est_tokens'])} tokens",
        ]
        terminal.out(f"  {' · '.join(facts)}", dim=True)
        terminal.out(f"  fablectl thread {terminal.line(result['thread'])}", fg="cyan")
        for record in result["records"]:
            words = record["snippet"]
            shown = "(its file changed; ask again)" if words is None else terminal.line(words)
            terminal.out(f"    {record['role']}: {shown}")
        terminal.out()
    _say_rest(found)


def _say_rest(found: Options) -> None:
    searched, fresh = found["searched"], found["freshness"]
    if not found["results"]:
        terminal.say(f"Nothing found in {terminal.count(searched['records'])} records.")
    if found["approximate"]:
        terminal.say("The question was cut or took too long: there may be better results.")
    if fresh["pending_files"]:
        size = terminal.size(fresh["pending_bytes"])
        terminal.say(f"{fresh['pending_files']} files ({size}) are not read yet.")


@click.command(epilog="Example: fablectl thread 4f9c1a --budget 2000")
@click.argument("thread")
@click.option(
    "--budget",
    type=click.IntRange(100, MAX_BUDGET),
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Tokens, four characters each.",
)
@click.option("--raw", is_flag=True, help="The records themselves, byte for byte, as JSONL.")
@click.option("--no-sentinel", is_flag=True, help="Leave the mark round the text away.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def thread(
    ctx: click.Context, thread: str, budget: int, *, raw: bool, no_sentinel: bool, as_json: bool
) -> None:
    """Show one thread's turns within a budget.

    THREAD is a thread's id, an unambiguous beginning of one, or the uuid of a record in
    it. What is left out is marked with the command that fetches it.
    """
    path = THREADS + segment(thread)
    if raw:
        with daemon(ctx).open("GET", path, {"raw": True}) as reply:
            _copy(reply)
        return
    query: Options = {"budget": budget, "sentinel": "0" if no_sentinel else None}
    found = daemon(ctx).get(path, query)
    if as_json:
        terminal.print_json(found)
    else:
        _show_text(found["text"])


def _show_text(text: str) -> None:
    shown = terminal.harmless(text) if terminal.on_terminal() else text
    click.echo(shown.encode("utf-8", "replace"))


def _copy(reply: Reply) -> None:
    """Exactly the bytes of the reply, nothing added, to standard output."""
    for piece in reply.pieces():
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@click.command(epilog="Example: fablectl block 0f7c2f5e-9a53-4b1c-8f0e-2d1f6a7b8c9d > record.json")
@click.argument("uuid")
@click.pass_context
def block(ctx: click.Context, uuid: str) -> None:
    """Print one record's exact bytes, nothing added.

    A record without uuid is named by its file and offset, as search shows it.
    """
    with daemon(ctx).open("GET", BLOCKS + segment(uuid)) as reply:
        _copy(reply)


@click.command(epilog="Example: fablectl recall --budget 4000 how did we fix the login race")
@_question
@click.option(
    "--budget",
    type=click.IntRange(100, MAX_BUDGET),
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Tokens for all threads together.",
)
@click.pass_context
def recall(
    ctx: click.Context, /, words: tuple[str, ...], text: str | None, budget: int, **given: Any
) -> None:
    """Pack the best threads for a question into one budget: what an agent pastes."""
    query = _filters(given) | {"q": _text(words, text), "budget": budget}
    found = daemon(ctx).get(RECALL, query)
    if given["as_json"]:
        terminal.print_json(found)
    elif found["threads"]:
        _show_text(found["text"])
    else:
        terminal.say("Nothing found.")

"""`terms` and `cited`: what there is to search for, and who recalled what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, json_option, named
from fabled.client.figures import counted, when
from fabled.client.layout import fit, flat, table
from fabled.protocol import CITED, TERM_KINDS, TERMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabled.client.terminal import Screen

DEFAULT = 50


@click.command(epilog="Example: fablectl terms --kind target --prefix src/")
@click.argument("name", metavar="[THREAD]", required=False, type=click.UNPROCESSED)
@click.option("--kind", type=click.Choice(TERM_KINDS), help="Only terms of this kind.")
@click.option("--prefix", metavar="P", help="Only terms that begin so, in any letter case.")
@click.option(
    "-n", "number", metavar="N", default=str(DEFAULT), show_default=True, help="How many at most."
)
@json_option
@click.pass_obj
def terms(
    run: Run, *, name: str | None, kind: str | None, prefix: str | None, number: str, as_json: bool
) -> None:
    """Browse the vocabulary of the history, or of one thread.

    Terms are derived from the words themselves: operatives (what was done), targets (to
    which path or identifier), concepts (what it was about) and wikilinks. Any of them can
    restrict a search: search --target PATH.
    """
    path = TERMS if name is None else f"{TERMS}/{named('thread', name)}"
    answer = run.daemon.ask(path, kind=kind, prefix=prefix, n=number)
    if as_json:
        run.screen.json(answer)
        return
    rows = answer.value["terms"]
    if not rows:
        run.screen.say("No term fits.")
    else:
        _show_terms(run.screen, rows, one_thread=name is not None)
    waiting = answer.value["freshness"].get("pending_threads")
    if waiting:
        run.screen.say(f"{counted(waiting, 'thread')} not looked at yet.")


def _show_terms(screen: Screen, rows: Sequence[Mapping[str, Any]], *, one_thread: bool) -> None:
    head = ["TIMES" if one_thread else "THREADS", "KIND", "TERM"]
    cells = [
        [str(row["n"] if one_thread else row["threads"]), row["kind"], flat(row["text"])]
        for row in rows
    ]
    lines = table([head, *cells], right=(0,))
    for at, (count, kind, term) in enumerate(lines):
        if at == 0:
            screen.line(screen.paint(f"{count}  {kind}  {term}".rstrip(), "dim"))
        else:
            room = None if screen.columns is None else screen.columns - len(count) - len(kind) - 4
            shown = fit(term.rstrip(), room)
            screen.line(f"{count}  {screen.paint(kind, 'dim')}  {screen.paint(shown, 'cyan')}")


@click.command(epilog="Example: fablectl cited 5f0c1d9e")
@click.argument("name", metavar="THREAD", type=click.UNPROCESSED)
@json_option
@click.pass_obj
def cited(run: Run, *, name: str, as_json: bool) -> None:
    """Show which turns recalled a thread, and what it recalled itself."""
    answer = run.daemon.ask(CITED + named("thread", name))
    if as_json:
        run.screen.json(answer)
        return
    value = answer.value
    if not value["cited_by"] and not value["cites"]:
        run.screen.say(f"Nothing recalled {flat(value['thread'])}, and it recalled nothing.")
        return
    _show_citations(run.screen, "Recalled by", value["cited_by"], "thread")
    _show_citations(run.screen, "Recalls", value["cites"], "ref")


def _show_citations(
    screen: Screen, title: str, rows: Sequence[Mapping[str, Any]], which: str
) -> None:
    if not rows:
        return
    screen.line(screen.paint(title, "bold"))
    for row in rows:
        stamp = when(row["ts"], local=screen.terminal)
        gone = "" if row["known"] else "  (not in the index any more)"
        screen.line(f"  {stamp}  {screen.paint(flat(row[which]), 'cyan')}{gone}")
        screen.line(screen.paint(f"      in record {flat(row['record'])}", "dim"))

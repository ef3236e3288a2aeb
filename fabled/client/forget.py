"""`forget`: a session or thread leaves Map and Vault for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, json_option
from fabled.client.figures import counted, size
from fabled.client.layout import flat
from fabled.errors import UsageError
from fabled.protocol import FORGET

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(epilog="Example: fablectl forget 5f0c1d9e --dry-run")
@click.argument("name", metavar="SESSION|THREAD", type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--live", is_flag=True, help="Take a thread out of the live transcript too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def forget(run: Run, *, name: str, dry_run: bool, live: bool, yes: bool, as_json: bool) -> None:
    """Remove a session or thread from Map and Vault for good.

    A tombstone keeps it from being indexed again. The live transcript is not touched,
    unless --live takes a thread out of it, the way a prune does; a whole one is never deleted.
    """
    if not name.strip():
        raise UsageError("the id is empty", hint="Copy one from: fablectl search")
    wanted = 1 if live else None
    answer = run.daemon.post(FORGET, name=name, dry_run=1, live=wanted)
    if not dry_run:
        if not yes:
            _ask(run, answer.value)
        answer = run.daemon.post(FORGET, name=name, live=wanted)
    if as_json:
        run.screen.json(answer)
        return
    run.screen.say(
        ("Forgot " if answer.value["applied"] else "Would forget ") + _what(answer.value)
    )
    if answer.value["live"] == "untouched":
        applied = "is as it was; it is" if answer.value["applied"] else "stays as it is, and is"
        run.screen.say(f"The live transcript {applied} not read or archived any more.")


def _what(value: Mapping[str, Any]) -> str:
    return (
        f"{flat(value['kind'])} {flat(value['name'])}: {counted(value['records'], 'record')},"
        f" {counted(value['generations'], 'generation')}, {size(value['bytes'])}."
    )


def _ask(run: Run, value: Mapping[str, Any]) -> None:
    """Raises `UsageError` when nobody can answer, `click.Abort` when the answer is no."""
    if not (sys.stdin is not None and sys.stdin.isatty() and run.screen.progress):
        raise UsageError("forgetting cannot be taken back", hint="Say --yes to do it unasked.")
    run.screen.say("This will forget " + _what(value) + " It cannot be taken back.")
    if click.prompt("Type yes to go on", default="no", err=True) != "yes":
        raise click.Abort

"""`index`: ask for a pass, and wait for it if wanted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from fabled.client import terminal
from fabled.client.http import daemon, error
from fabled.errors import DaemonUnreachable
from fabled.protocol import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.client.http import Reply

Step = dict[str, Any]


@click.command(epilog="Example: fablectl index --wait")
@click.option("--wait", is_flag=True, help="Return when all that is there now is searchable.")
@click.option("--rebuild", is_flag=True, help="Build the Map anew and swap it in.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def index(ctx: click.Context, *, wait: bool, rebuild: bool, as_json: bool) -> None:
    """Ask for a pass over the transcripts.

    The daemon sees changes by itself; this is for those who cannot wait a moment.
    """
    query = {"wait": wait, "rebuild": rebuild}
    with daemon(ctx).open("POST", INDEX, query, patient=wait) as reply:
        last = _follow(reply) if wait else reply.json()
    if as_json:
        terminal.print_json(last)
    elif wait:
        terminal.say(
            f"All is searchable: {terminal.count(last['files'])} files read,"
            f" {terminal.size(last['bytes'])}, in {last['took_ms'] / 1000:.1f} s."
        )
    else:
        terminal.say("Asked. See: fablectl status")


def _follow(reply: Reply) -> Step:
    show, end = _bar() if terminal.on_terminal() else (lambda _step: None, lambda: None)
    last: Step = {}
    try:
        for step in _steps(reply):
            last = step
            show(step)
    finally:
        end()
    if last.get("step") != "done":
        raise DaemonUnreachable("the daemon ended before the pass was complete")
    return last


def _steps(reply: Reply) -> Iterator[Step]:
    for line in reply.lines():
        step = json.loads(line)
        if "error" in step:
            raise error(step)
        yield step


def _bar() -> tuple[Callable[[Step], None], Callable[[], None]]:
    """A progress bar: how to show a step on it, and how to end it."""
    from rich import progress  # noqa: PLC0415 - only a terminal pays for rich

    bar = progress.Progress(
        progress.TextColumn("reading"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        transient=True,
    )
    task = bar.add_task("reading", total=None)
    bar.start()

    def show(step: Step) -> None:
        if step["step"] == "progress" and step["total_bytes"]:
            bar.update(task, completed=step["done_bytes"], total=step["total_bytes"])

    return show, bar.stop

"""`index`: ask for a pass, and perhaps wait for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, json_option
from fabled.client.figures import counted, duration, size
from fabled.errors import DaemonUnreachable
from fabled.protocol import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fabled.client.asking import Answer


@click.command(epilog="Example: fablectl index --wait")
@click.option("--wait", is_flag=True, help="Return when all that is there now can be searched.")
@click.option(
    "--rebuild",
    is_flag=True,
    help="Build the Map anew from transcripts and Vault, then swap it in.",
)
@json_option
@click.pass_obj
def index(run: Run, *, wait: bool, rebuild: bool, as_json: bool) -> None:
    """Ask the daemon to look at every transcript again.

    It does so by itself; ask when you do not want to wait for that.
    """
    again = 1 if rebuild else None
    if wait:
        answer = _followed(run, again, drawn=run.screen.progress and not as_json)
    else:
        answer = run.daemon.post(INDEX, rebuild=again)
    if as_json:
        run.screen.json(answer)
        return
    if wait:
        run.screen.say(_summary(answer.value, rebuilt=rebuild))
        refused = answer.value.get("refused", 0)
        if refused:
            run.screen.say(f"{counted(refused, 'file')} cannot be read; see: fablectl status")
    else:
        run.screen.say("Asked; see: fablectl status")


def _summary(done: Mapping[str, Any], *, rebuilt: bool) -> str:
    took = duration(done["took_ms"] / 1000)
    if rebuilt:
        return f"Rebuilt the Map in {took}."
    if not done["files"]:
        return f"Nothing new, checked in {took}."
    files, records = counted(done["files"], "file"), counted(done["records"], "record")
    return f"Indexed {files}, {records}, {size(done['bytes'])} in {took}."


def _followed(run: Run, rebuild: int | None, *, drawn: bool) -> Answer:
    with progress(run, "indexing") if drawn else contextlib.nullcontext(hide) as show:
        for step in run.daemon.steps(INDEX, wait=1, rebuild=rebuild):
            if step.value.get("step") == "done":
                return step
            show(step.value)
    raise DaemonUnreachable("the daemon ended before its work was done")


def hide(_step: Mapping[str, Any]) -> None:
    """Progress is for terminals."""


@contextlib.contextmanager
def progress(run: Run, verb: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A bar on standard error from the first step with bytes on; gone at the end."""
    with contextlib.ExitStack() as stack:
        drawing: list[Callable[[Mapping[str, Any]], None]] = []

        def show(step: Mapping[str, Any]) -> None:
            if not step.get("total_bytes"):
                return
            if not drawing:
                drawing.append(stack.enter_context(_bar(run, verb)))
            drawing[0](step)

        yield show


@contextlib.contextmanager
def _bar(run: Run, verb: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    from rich.console import Console  # noqa: PLC0415 - for a terminal only: it is slow to load
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=True, no_color=not run.screen.may_colour, highlight=False)
    columns = (
        TextColumn(verb),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[said]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, said="")

        def show(step: Mapping[str, Any]) -> None:
            done, total, eta = step["done_bytes"], step["total_bytes"], step.get("eta_s")
            said = f"{size(done)} of {size(total)}"
            said += f", {counted(step['files'], 'file')} waiting" if "files" in step else ""
            said += "" if eta is None else f", {duration(eta)} left"
            bar.update(task, completed=done, total=total, said=said)

        yield show

"""`status`: is it alive, what has it done, what is pending, what is at risk."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fabled.client.asking import Run, json_option
from fabled.client.figures import count, counted, day, duration, size, when
from fabled.client.layout import fit, flat
from fabled.errors import FabledError
from fabled.protocol import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fabled.client.terminal import Screen

REFRESH_S = 1.0
_LABEL = 10
_BAR = 24
_AT_RISK_SHOWN = 5
_STATES = {"idle": "green", "indexing": "yellow", "starting": "yellow", "draining": "red"}
_WATCHED = {"events": "watched", "polling": "polled", "absent": "not there yet"}


class _Line(NamedTuple):
    label: str
    text: str
    style: str = ""


@click.command(epilog="Example: fablectl status --watch")
@click.option("--watch", is_flag=True, help="Refresh each second until Ctrl-C.")
@json_option
@click.pass_obj
def status(run: Run, *, watch: bool, as_json: bool) -> None:
    """Show what the daemon is doing and what it has done.

    With --watch, and not on a terminal, a line of JSON each second.
    """
    if watch and run.screen.terminal and not as_json:
        _watch(run)
    elif watch:
        _stream(run)
    else:
        answer = run.daemon.ask(STATUS)
        if as_json:
            run.screen.json(answer)
        else:
            for line in dashboard(run.screen, answer.value):
                run.screen.line(line)


def _stream(run: Run) -> None:
    pause = threading.Event()
    while True:
        run.screen.raw(run.daemon.ask(STATUS).raw.strip(b"\n") + b"\n")
        run.screen.flush()
        pause.wait(REFRESH_S)


def _watch(run: Run) -> None:
    from rich.console import Console  # noqa: PLC0415 - for a terminal only: it is slow to load
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    pause = threading.Event()
    console = Console(width=run.screen.columns, no_color=not run.screen.colour, highlight=False)

    def shown() -> Text:
        return Text.from_ansi("\n".join(_present(run)), no_wrap=True, overflow="crop")

    run.daemon.ask(STATUS)  # a daemon that is not there at all is an error, later it is a state
    with Live(shown(), console=console, auto_refresh=False) as live:
        while True:
            pause.wait(REFRESH_S)
            live.update(shown(), refresh=True)


def _present(run: Run) -> list[str]:
    try:
        return list(dashboard(run.screen, run.daemon.ask(STATUS).value))
    except FabledError as fault:
        return [run.screen.paint(flat(fault.message), "red"), flat(fault.hint)]


def dashboard(screen: Screen, value: Mapping[str, Any]) -> Iterator[str]:
    """The status as aligned lines, each as wide as the screen at most."""
    state = flat(value["state"])
    yield (
        screen.paint(f"fabled {flat(value['version'])}", "bold")
        + "  "
        + screen.paint(state, _STATES.get(state, "bold"))
        + f"  pid {value['pid']}, up {duration(value['uptime_s'])}, protocol {value['protocol']}"
    )
    for line in _lines(screen, value):
        room = None if screen.columns is None else screen.columns - _LABEL
        text = fit(line.text, room)
        shown = screen.paint(text, line.style) if line.style else text
        yield f"{screen.paint(line.label.ljust(_LABEL), 'dim')}{shown}"


def _lines(screen: Screen, value: Mapping[str, Any]) -> Iterator[_Line]:
    indexed = value["map"]
    yield _Line(
        "indexed",
        f"{counted(indexed['files'], 'file')}, {counted(indexed['records'], 'record')},"
        f" {counted(indexed['threads'], 'thread')}, {counted(indexed['sessions'], 'session')},"
        f" {size(indexed['bytes'])}",
    )
    yield _pending(value["pending"])
    if value["progress"]:
        yield _progress(screen, value["progress"])
    yield _Line("process", f"{size(value['rss_bytes'])} memory, {duration(value['cpu_s'])} of CPU")
    yield from _roots(value)
    yield from _kept(screen, value)
    yield from _jobs(screen, value["jobs"])
    yield from _at_risk(screen, value["at_risk"])
    for warning in value["warnings"]:
        yield _Line("warning", flat(warning), "yellow")


def _pending(pending: Mapping[str, Any]) -> _Line:
    if not pending["files"]:
        return _Line("pending", "nothing")
    files = f"{counted(pending['files'], 'file')}, {size(pending['bytes'])}"
    return _Line("pending", f"{files}, {duration(pending['lag_s'])} behind", "yellow")


def _progress(screen: Screen, progress: Mapping[str, Any]) -> _Line:
    done, total = progress["done_bytes"] or 0, progress["total_bytes"] or 0
    share = min(1.0, done / total) if total else 0.0
    full = int(share * _BAR)
    bar = "█" * full + "░" * (_BAR - full) if screen.terminal else ""
    eta = progress["eta_s"]
    left = "" if eta is None else f", {duration(eta)} left"
    return _Line("progress", f"{bar} {share:4.0%}  {size(done)} of {size(total)}{left}".lstrip())


def _roots(value: Mapping[str, Any]) -> Iterator[_Line]:
    for at, root in enumerate(value.get("roots") or []):
        mode = flat(root["watched"]) if root["present"] else "absent"
        style = "" if mode == "events" else "yellow"
        text = f"{_WATCHED.get(mode, mode)}: {flat(root['path'])}"
        yield _Line("" if at else "roots", text, style)


def _kept(screen: Screen, value: Mapping[str, Any]) -> Iterator[_Line]:
    vault, prune = value["vault"], value["prune"]
    held = f"{counted(vault['generations'], 'generation')}, {size(vault['bytes'])}"
    if vault["raw_bytes"]:
        held += f" for {size(vault['raw_bytes'])}"
    yield _Line("vault", f"{held}, {size(vault['unsealed_bytes'])} not sealed")
    last = prune["last"]
    if not prune["count"]:
        yield _Line("prune", "none yet")
        return
    at = f", last {when(last, local=screen.terminal)}" if isinstance(last, str) else ""
    yield _Line("prune", f"{count(prune['count'])}, saved {size(prune['saved_bytes'])}{at}")


def _jobs(screen: Screen, jobs: list[Mapping[str, Any]]) -> Iterator[_Line]:
    for at, job in enumerate(jobs):
        local = screen.terminal
        said = [flat(job["name"])]
        if job["last_run"]:
            result = flat(job["last_result"])
            said.append(f"last {when(job['last_run'], local=local)}{f' {result}' * bool(result)}")
        if job["next_run"]:
            said.append(f"next {when(job['next_run'], local=local)}")
        yield _Line("" if at else "jobs", ", ".join(said))


def _at_risk(screen: Screen, rows: list[Mapping[str, Any]]) -> Iterator[_Line]:
    if not rows:
        return
    open_rows = [row for row in rows if not row.get("sealed")]
    style = "yellow" if open_rows else ""
    yield _Line(
        "at risk",
        f"{counted(len(rows), 'session')} the client will delete within 7 days,"
        f" {count(len(open_rows))} of them not sealed",
        style,
    )
    for row in rows[:_AT_RISK_SHOWN]:
        due = day(row.get("deleted_from"), local=screen.terminal)
        sealed = "sealed" if row.get("sealed") else "not sealed"
        title = flat(row.get("title")) or "Untitled session"
        yield _Line("", f"{flat(row.get('session'))[:8]} from {due}, {sealed}: {title}")
    if len(rows) > _AT_RISK_SHOWN:
        yield _Line("", f"and {len(rows) - _AT_RISK_SHOWN} more, see: fablectl status --json")

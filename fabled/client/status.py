"""`status`: one look at the daemon, or a look each second."""

from __future__ import annotations

import json
from typing import Any

import click

from fabled.client import terminal
from fabled.client.http import Daemon, daemon
from fabled.protocol import STATUS

BAR = 30
RISKS_SHOWN = 10
REFRESH_S = 1.0


@click.command(epilog="Example: fablectl status --watch")
@click.option("--watch", is_flag=True, help="Again each second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def status(ctx: click.Context, *, watch: bool, as_json: bool) -> None:
    """Is it alive, what has it done, what is pending, what is at risk."""
    asked = daemon(ctx)
    if watch:
        _watch(asked, as_json=as_json)
    elif as_json:
        terminal.print_json(asked.get(STATUS))
    else:
        terminal.out("\n".join(view(asked.get(STATUS))))


def _watch(asked: Daemon, *, as_json: bool) -> None:
    from threading import Event  # noqa: PLC0415 - only --watch waits

    never = Event()
    if as_json or not terminal.on_terminal():
        while True:
            click.echo(json.dumps(asked.get(STATUS)))
            never.wait(REFRESH_S)
    from rich.live import Live  # noqa: PLC0415 - only a terminal pays for rich
    from rich.text import Text  # noqa: PLC0415

    def shown() -> Text:
        return Text.from_ansi("\n".join(view(asked.get(STATUS))))

    with Live(shown(), auto_refresh=False, screen=False) as live:
        while not never.wait(REFRESH_S):
            live.update(shown(), refresh=True)


def view(said: dict[str, Any]) -> list[str]:
    """The status for people, line by line."""
    pending, held, vault, prune = said["pending"], said["map"], said["vault"], said["prune"]
    count = terminal.count
    lines = [
        _row(
            "fabled",
            f"{said['version']}, {click.style(said['state'], bold=True)}, "
            f"process {said['pid']}, up {terminal.duration(said['uptime_s'])}",
        ),
        _row(
            "indexed",
            f"{count(held['records'])} records, {count(held['threads'])} threads, "
            f"{count(held['sessions'])} sessions, {count(held['files'])} files, "
            f"{terminal.size(held['bytes'])}",
        ),
        _row(
            "pending",
            "nothing"
            if not pending["files"]
            else f"{count(pending['files'])} files, {terminal.size(pending['bytes'])}, "
            f"for {terminal.duration(pending['lag_s'])}",
        ),
    ]
    if said["progress"]:
        lines.append(_row("progress", _progress(said["progress"])))
    lines.append(
        _row(
            "vault",
            f"{count(vault['generations'])} generations, {terminal.size(vault['bytes'])}; "
            f"{terminal.size(vault['unsealed_bytes'])} not sealed",
        )
    )
    if prune["count"]:
        lines.append(
            _row("prune", f"{prune['count']} prunes, {terminal.size(prune['saved_bytes'])} saved")
        )
    lines.append(
        _row(
            "uses",
            f"{terminal.size(said['rss_bytes'])} memory, {said['cpu_s']:.1f} s processor time",
        )
    )
    lines += [
        _row("watches", f"{terminal.line(root['path'])} ({root['watched']})")
        for root in said["roots"]
    ]
    lines += [_row("job", _job(job)) for job in said["jobs"]]
    lines += [click.style(_row("at risk", text), fg="yellow") for text in _risks(said["at_risk"])]
    warnings = [terminal.line(text) for text in said["warnings"]]
    return lines + [click.style(_row("warning", text), fg="yellow") for text in warnings]


def _job(job: dict[str, Any]) -> str:
    last = "not yet"
    if job["last_run"]:
        last = f"{terminal.moment(job['last_run'])} {terminal.line(job['last_result'] or '')}"
    return f"{job['name']}: last {last}, next {terminal.moment(job['next_run'])}"


def _row(name: str, text: str) -> str:
    return f"{name:<9} {text}"


def _progress(progress: dict[str, Any]) -> str:
    total = progress["total_bytes"] or 1
    share = min(1.0, progress["done_bytes"] / total)
    full = int(share * BAR)
    eta = progress["eta_s"]
    left = "" if eta is None else f", {terminal.duration(eta)} left"
    return f"[{'#' * full}{'.' * (BAR - full)}] {share:.0%} of {terminal.size(total)}{left}"


def _risks(rows: list[dict[str, Any]]) -> list[str]:
    shown = [_risk(row) for row in rows[:RISKS_SHOWN]]
    more = len(rows) - RISKS_SHOWN
    return shown + ([f"and {more} more sessions"] if more > 0 else [])


def _risk(row: dict[str, Any]) -> str:
    when = terminal.moment(row["deleted_from"])
    sealed = "sealed" if row["sealed"] else "not sealed"
    return f"the client deletes {terminal.line(row['session'])} from {when} on ({sealed})"

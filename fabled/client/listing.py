"""`sessions` and `session`: what there is."""

from __future__ import annotations

from typing import Any

import click

from fabled.client import terminal
from fabled.client.http import daemon, segment
from fabled.protocol import SESSIONS

DAMAGE_SHOWN = 20


@click.command(epilog="Example: fablectl sessions --project my-app")
@click.option("--project", help="A working folder, or the end of its path.")
@click.option("--vanished", is_flag=True, help="Only sessions whose live file is gone.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def sessions(ctx: click.Context, project: str | None, *, vanished: bool, as_json: bool) -> None:
    """List sessions, the latest first."""
    found = daemon(ctx).get(SESSIONS, {"project": project, "vanished": vanished})
    if as_json:
        terminal.print_json(found)
        return
    for row in found["sessions"]:
        _show_row(row)
    if not found["sessions"]:
        terminal.say("No sessions.")


def _show_row(row: dict[str, Any]) -> None:
    gone = "  (live file gone)" if row["vanished"] else ""
    terminal.out(f"{terminal.heading(row['title'])}{gone}", bold=True)
    facts = [
        terminal.moment(row["last_ts"]),
        terminal.line(row["project"] or "-"),
        f"{row['threads']} threads",
        f"{terminal.count(row['records'])} records",
        terminal.size(row["bytes"]),
    ]
    terminal.out(f"  {' · '.join(facts)}", dim=True)
    terminal.out(f"  {terminal.line(row['session'])}", fg="cyan")


@click.command(epilog="Example: fablectl session 3f2a9c")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def session(ctx: click.Context, session: str, *, as_json: bool) -> None:
    """Show one session: its threads, files and damage.

    SESSION is an id as `sessions` shows it, or an unambiguous beginning of one.
    """
    found = daemon(ctx).get(f"{SESSIONS}/{segment(session)}")
    if as_json:
        terminal.print_json(found)
        return
    _show_row(found["session"])
    terminal.out("\nThreads", bold=True)
    for row in found["threads"]:
        terminal.out(f"  {terminal.moment(row['first_ts'])}  {row['turns']:>5} turns  ", nl=False)
        terminal.out(terminal.line(row["title"] or "-")[:100])
        terminal.out(f"    fablectl thread {terminal.line(row['thread'])}", fg="cyan")
    terminal.out("\nFiles", bold=True)
    for row in found["files"]:
        facts = f"{terminal.size(row['bytes'])}, {terminal.count(row['records'])} records"
        terminal.out(f"  {row['kind']:<8}  {facts:<28}  {terminal.line(row['path'])}")
    _show_damage(found["damage"])


def _show_damage(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    terminal.out("\nDamage (kept in the file, not searchable)", bold=True)
    for row in rows[:DAMAGE_SHOWN]:
        where = f"line {row['line'] + 1}, bytes {row['offset']} to {row['offset'] + row['length']}"
        terminal.out(f"  {row['reason']:<7} {where}  {terminal.line(row['path'])}")
    if len(rows) > DAMAGE_SHOWN:
        terminal.say(f"{len(rows) - DAMAGE_SHOWN} more; all of them with --json.")

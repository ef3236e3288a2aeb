"""`prune` and `undo`: make a live transcript lean, and take that back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, json_option
from fabled.client.figures import count, counted, size
from fabled.client.layout import fit, flat, table
from fabled.client.vault import absolute
from fabled.errors import DaemonUnreachable, UsageError, from_wire
from fabled.protocol import PRUNE, UNDO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabled.client.terminal import Screen


@click.command(epilog="Example: fablectl prune 5f0c1d9e --dry-run")
@click.argument("names", metavar="[SESSION|PATH]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--level",
    type=click.Choice(("transparent", "lean")),
    help="transparent: only what the client does not send; lean: also old bulk.",
)
@click.option(
    "--mode",
    type=click.Choice(("resume", "extract")),
    help="resume keeps compaction walls; extract removes them and links what they cut.",
)
@click.option("--keep-prompts", metavar="K", help="The last K prompts stay whole (lean).")
@click.option("--dry-run", is_flag=True, help="Only show what it would save.")
@click.option("--output", metavar="FILE", help="Write the pruned image there; touch nothing else.")
@json_option
@click.pass_obj
def prune(
    run: Run,
    /,
    *,
    names: tuple[str, ...],
    dry_run: bool,
    output: str | None,
    as_json: bool,
    **given: str | None,
) -> int:
    """Take out of live transcripts what is archived and not needed to resume.

    Everything is sealed, verified and searchable before a byte goes; `fablectl undo` takes
    it back. A session at work, or open for writing, is refused.
    """
    if output is not None and len(names) != 1:
        raise UsageError("--output needs exactly one session", hint="Name the session.")
    sessions = tuple(absolute(name) for name in names)
    where = None if output is None else str(Path(output).expanduser().absolute())
    found = _followed(run, session=sessions, dry_run=1 if dry_run else None, output=where, **given)
    if as_json:
        run.screen.value({"sessions": found})
    else:
        _show(run.screen, found, dry_run=dry_run, output=where)
    refused = [one["refused"] for one in found if one["refused"]]
    if names and refused and len(refused) == len(found):
        return from_wire(refused[0]["code"], flat(refused[0]["message"]), "").exit_status
    return 0


def _followed(run: Run, **given: Any) -> list[dict[str, Any]]:
    for step in run.daemon.steps(PRUNE, **given):
        if step.value.get("step") == "done":
            return list(step.value["sessions"])
    raise DaemonUnreachable("the daemon ended before its work was done")


def _show(
    screen: Screen, found: Sequence[Mapping[str, Any]], *, dry_run: bool, output: str | None
) -> None:
    refused = [one for one in found if one["refused"]]
    for one in found:
        if not one["refused"]:
            _show_session(screen, one)
    for one in refused if len(found) < 10 else ():
        screen.line(
            f"{screen.paint(flat(one['session']), 'cyan')}  {screen.paint('left alone', 'yellow')}"
        )
        screen.line(f"  {flat(one['refused']['message'])}")
        screen.line(f"  {screen.paint(flat(one['refused']['hint']), 'dim')}")
    if len(found) >= 10 and refused:
        screen.say(f"{counted(len(refused), 'session')} left alone; --json says why.")
    done = [one for one in found if not one["refused"]]
    saved = sum(one["before_bytes"] - one["after_bytes"] for one in done)
    verb = "Would save" if dry_run or output else "Saved"
    end = f"; the image is {output}" if output and done else ""
    screen.say(f"{verb} {size(saved)} in {counted(len(done), 'session')}{end}.")


def _show_session(screen: Screen, one: Mapping[str, Any]) -> None:
    before, after = one["before_bytes"], one["after_bytes"]
    share = f"{100 * (before - after) / before:.0f}%" if before else "0%"
    name = screen.paint(flat(one["session"]), "cyan")
    state = "pruned" if one["applied"] else "not touched"
    screen.line(f"{name}  {flat(one['level'])}, {flat(one['mode'])}, {state}")
    rows = [
        [flat(rule["rule"]), counted(rule["records"], "record"), size(rule["bytes"])]
        for rule in one["rules"]
    ]
    rows.append(["in all", f"{size(before)} -> {size(after)}", f"-{share}"])
    for cells in table(rows, right=(1, 2)):
        screen.line(fit("  " + "  ".join(cells).rstrip(), screen.columns))


@click.command(epilog="Example: fablectl undo 5f0c1d9e")
@click.argument("name", metavar="SESSION", type=click.UNPROCESSED)
@json_option
@click.pass_obj
def undo(run: Run, *, name: str, as_json: bool) -> None:
    """Take back the last prune of a session; what was appended since stays.

    A session whose prune was taken back is not pruned by itself again.
    """
    answer = run.daemon.post(UNDO, session=absolute(name))
    if as_json:
        run.screen.json(answer)
        return
    value = answer.value
    run.screen.say(
        f"{flat(value['path'])} is back at {size(value['after_bytes'])};"
        f" {count(value['kept_bytes'])} bytes appended since the prune are kept."
    )

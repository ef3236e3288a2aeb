"""`events`: what was sealed, pruned, taken back, restored, forgotten, and what vanished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, json_option
from fabled.client.figures import when
from fabled.client.layout import fit, flat
from fabled.protocol import EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabled.client.terminal import Screen

_SHOWN = 50
_STYLES = {
    "damaged": "red",
    "mass_deletion": "red",
    "vanished": "yellow",
    "declined": "yellow",
    "forgotten": "yellow",
    "pruned": "green",
    "restored": "green",
}
_ID = 12
_EVENT = 13


@click.command(epilog="Example: fablectl events --follow")
@click.option("--follow", is_flag=True, help="Go on with each new event, until Ctrl-C.")
@click.option("--session", metavar="S", help="Only of this session.")
@click.option("-n", "number", metavar="N", help=f"The last N; {_SHOWN} when omitted, 0: all.")
@json_option
@click.pass_obj
def events(
    run: Run, *, follow: bool, session: str | None, number: str | None, as_json: bool
) -> None:
    """Print the audit log, oldest first.

    With --follow --json, one object a line.
    """
    wanted = str(_SHOWN) if number is None else number
    if follow:
        for line in run.daemon.lines(EVENTS, follow=1, n=wanted, session=session):
            if "event" not in line.value:
                continue
            if as_json:
                run.screen.raw(line.raw.strip(b"\n") + b"\n")
            else:
                _show(run.screen, line.value)
            run.screen.flush()
        return
    answer = run.daemon.ask(EVENTS, n=wanted, session=session)
    if as_json:
        run.screen.json(answer)
        return
    for event in answer.value["events"]:
        _show(run.screen, event)
    if not answer.value["events"]:
        run.screen.say("Nothing has happened yet.")


def _show(screen: Screen, event: Mapping[str, Any]) -> None:
    name = flat(event["event"])
    stamp = when(event["ts"], local=screen.terminal)
    facts = ", ".join(f"{flat(key)} {flat(value)}" for key, value in event["detail"].items())
    session = flat(event["session"])[: _ID if screen.terminal else None]
    rest = f"{session or '-'}  {facts}"
    head = f"{stamp}  {name.ljust(_EVENT)}  "
    room = None if screen.columns is None else max(1, screen.columns - len(head))
    painted = screen.paint(name.ljust(_EVENT), _STYLES.get(name, "cyan"))
    screen.line(f"{screen.paint(stamp, 'dim')}  {painted}  {fit(rest, room)}".rstrip())

"""`service`: the daemon as a service of the user's own service manager."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from fabled import config
from fabled.client import managers, units
from fabled.client.asking import Run, json_option
from fabled.errors import NotFound, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from fabled.client.managers import Manager, Plan
    from fabled.client.terminal import Screen

_dry = click.option("--dry-run", is_flag=True, help="Print every file and command; do nothing.")


@click.group(epilog="Example: fablectl service install --dry-run")
def service() -> None:
    """Run the daemon as a service: a systemd user unit, or a launchd agent on macOS.

    Nothing outside of its own service file is changed.
    """


@service.command(epilog="Example: fablectl service install")
@_dry
@json_option
@click.pass_obj
def install(run: Run, *, dry_run: bool, as_json: bool) -> None:
    """Write the service file, enable it and start it; again after an upgrade does no harm."""
    manager, home = _manager(run)
    what = units.program(sys.executable, run.daemon.environ, home, run.daemon.file)
    _do(run, manager, manager.install(what), dry_run=dry_run, as_json=as_json)
    if not dry_run and not as_json:
        state = manager.state()
        run.screen.say(f"Installed: {state.active}. See: fablectl service status")
        if state.hint:
            run.screen.say(state.hint)


@service.command(epilog="Example: fablectl service uninstall")
@_dry
@json_option
@click.pass_obj
def uninstall(run: Run, *, dry_run: bool, as_json: bool) -> None:
    """Stop it and remove the service file. Data and configuration stay."""
    manager, home = _manager(run)
    _do(run, manager, manager.uninstall(), dry_run=dry_run, as_json=as_json)
    if not dry_run and not as_json:
        run.screen.say(f"Uninstalled. Everything it kept is still in {home}")


def _verb(verb: str, words: str) -> None:
    @service.command(name=verb, help=words, epilog=f"Example: fablectl service {verb}")
    @_dry
    @json_option
    @click.pass_obj
    def command(run: Run, *, dry_run: bool, as_json: bool) -> None:
        manager, _ = _manager(run)
        _do(run, manager, manager.order(verb), dry_run=dry_run, as_json=as_json)


_verb("start", "Start the installed service.")
_verb("stop", "Stop it until it is started again.")
_verb("restart", "Stop it and start it again, for instance after an upgrade.")


@service.command(epilog="Example: fablectl service status")
@json_option
@click.pass_obj
def status(run: Run, *, as_json: bool) -> None:
    """Say whether it is installed and running, and what stands in its way."""
    manager, _ = _manager(run)
    state = manager.state()
    problem = moved(state.interpreter)
    said: dict[str, Any] = {
        "manager": state.manager,
        "installed": state.file is not None,
        "file": None if state.file is None else str(state.file),
        "active": state.active,
        "pid": state.pid,
        "problem": problem,
        "hint": state.hint,
    }
    if as_json:
        run.screen.value(said)
        return
    if state.file is None:
        run.screen.line("not installed")
        run.screen.say("Install it with: fablectl service install")
        return
    pid = f", pid {state.pid}" if state.pid else ""
    run.screen.line(f"{state.active}{pid}  ({state.manager}, {state.file})")
    for line in filter(None, (problem, state.hint)):
        run.screen.say(line)


@service.command(epilog="Example: fablectl service logs -f")
@click.option("-n", "number", type=click.IntRange(1), default=50, show_default=True, help="Lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come.")
@click.pass_obj
def logs(run: Run, *, number: int, follow: bool) -> None:
    """Show the service's log."""
    manager, _ = _manager(run)
    command = manager.logs(number, follow=follow)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), dict(run.daemon.environ))  # noqa: S606 - no shell
    except OSError as fault:
        raise NotFound(f"cannot run {command[0]}: {fault.strerror}") from fault


def moved(interpreter: str | None) -> str | None:
    """What is wrong with the program that the installed service starts."""
    if interpreter is None or interpreter == sys.executable:
        return None
    if not os.access(interpreter, os.X_OK):
        return (
            f"The service starts {interpreter}, which is gone: the environment was moved or"
            " removed. Mend it with: fablectl service install"
        )
    return f"The service starts {interpreter}, not this installation ({sys.executable})."


def _manager(run: Run) -> tuple[Manager, Path]:
    home = config.places(run.daemon.environ, run.daemon.file).home
    return managers.of(sys.platform, run.daemon.environ, home), home


def _do(run: Run, manager: Manager, plan: Plan, *, dry_run: bool, as_json: bool) -> None:
    if dry_run and not as_json:
        _show(run.screen, plan)
        run.screen.say("Nothing was done.")
    elif not dry_run:
        manager.check()
        if not plan.write and not plan.remove and manager.state().file is None:
            raise UsageError("it is not installed", hint="Run: fablectl service install")
        managers.carry_out(plan, run.daemon.environ)
    if as_json:
        run.screen.value(
            {
                "write": {str(path): text for path, text in plan.write.items()},
                "remove": [str(path) for path in plan.remove],
                "commands": [list(command) for command in plan.commands],
                "applied": not dry_run,
            }
        )


def _show(screen: Screen, plan: Plan) -> None:
    for path, text in plan.write.items():
        screen.line(screen.paint(f"Write {path}:", "bold"))
        for line in text.splitlines():
            screen.line(f"  {line}".rstrip())
    for path in plan.remove:
        screen.line(f"Remove {path}")
    for command in plan.commands:
        screen.line(f"Run: {units.lines(command)}")

"""`fablectl`: the entry, the list of commands, and where errors become an exit status.

A command's module is imported when it is called: the others are not paid for.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from fabled import __version__
from fabled.client.asking import Daemon, Run
from fabled.client.terminal import ReaderLeft, Screen, silence, standard
from fabled.config import environment
from fabled.errors import FabledError, InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPLETE = "_FABLECTL_COMPLETE"
INTERRUPTED = 130

COMMANDS = {
    "status": "status",
    "index": "index",
    "search": "query",
    "recall": "query",
    "thread": "query",
    "block": "query",
    "sessions": "listing",
    "session": "listing",
    "terms": "knowledge",
    "cited": "knowledge",
    "cards": "cards",
    "prune": "prune",
    "undo": "prune",
    "handoff": "handoff",
    "vault": "vault",
    "forget": "forget",
    "events": "events",
    "doctor": "doctor",
    "service": "service",
    "mcp": "mcp",
    "integrate": "integrate",
    "config": "configuration",
    "completion": "completion",
}
"""Command -> the module of this package that has it."""


class Commands(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of `COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        del ctx
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        return cast("click.Command", getattr(import_module(f"fabled.client.{module}"), cmd_name))


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: fablectl search why sqlite",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file, instead of the one that FABLED_CONFIG names.",
)
@click.version_option(__version__, prog_name="fablectl")
@click.pass_context
def fablectl(context: click.Context, file: Path | None) -> None:
    """Ask the fabled daemon: search and recall what was said to Claude Code."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(UsageError.exit_status)
    environ = environment()
    context.obj = Run(Daemon(environ, file), cast("Screen", context.obj))


def main() -> int:
    """Run the command line; the exit status of the interface."""
    arguments = sys.argv[1:]
    screen = standard(environment())
    try:
        return _run(arguments, screen)
    except ReaderLeft:
        silence(sys.stdout, sys.stderr)
        return 0
    except KeyboardInterrupt:
        silence(sys.stdout, sys.stderr)
        return INTERRUPTED


def _run(arguments: Sequence[str], screen: Screen) -> int:
    try:
        status = fablectl.main(
            arguments,
            prog_name="fablectl",
            complete_var=COMPLETE,
            standalone_mode=False,
            obj=screen,
        )
        screen.flush()
    except (ReaderLeft, KeyboardInterrupt):
        raise
    except click.Abort:
        return INTERRUPTED
    except FabledError as fault:
        error = fault
    except click.UsageError as fault:
        where = fault.ctx.command_path if fault.ctx else "fablectl"
        error = UsageError(_sentence(fault), hint=f"Run: {where} --help")
    except Exception as fault:  # noqa: BLE001 - the border: a person reads this, not a traceback
        error = InternalError(
            f"{type(fault).__name__}: {fault}", hint="Report it with this message and the command."
        )
    else:
        return status if isinstance(status, int) else 0
    return _report(error, screen, as_json=_wants_json(arguments))


def _sentence(fault: click.UsageError) -> str:
    text = fault.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _wants_json(arguments: Sequence[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _report(fault: FabledError, screen: Screen, *, as_json: bool) -> int:
    try:
        screen.flush()
    except FabledError:  # standard output itself is what failed
        silence(sys.stdout)
    if as_json:
        error = {"code": fault.code, "message": fault.message, "hint": fault.hint}
        said = json.dumps({"error": error})
    else:
        said = f"fablectl: {fault.message}\n{fault.hint}"
    screen.say(said)
    return fault.exit_status


if __name__ == "__main__":
    sys.exit(main())

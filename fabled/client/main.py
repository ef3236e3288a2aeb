"""`fablectl`: the commands, each imported when it is asked for."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import click

from fabled import __version__
from fabled.errors import FabledError

COMMANDS = {
    "status": ("status", "Is it alive, what has it done, what is pending, what is at risk."),
    "index": ("index", "Ask for a pass over the transcripts."),
    "search": ("query", "Find threads, sessions or records by words."),
    "thread": ("query", "Show one thread's turns within a budget."),
    "block": ("query", "Print one record's exact bytes."),
    "recall": ("query", "Pack the best threads for a question into one budget."),
    "sessions": ("listing", "List sessions, the latest first."),
    "session": ("listing", "Show one session: threads, files, damage."),
    "config": ("configuration", "Show and check settings and places."),
    "completion": ("completion", "Print the completion script of a shell."),
}
"""Command -> the module that has it, and its line in `--help`."""


class Commands(click.Group):
    """Imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"fabled.client.{COMMANDS[cmd_name][0]}")
        found: click.Command = getattr(module, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.command(cls=Commands, epilog="Example: fablectl search why did we drop the cache")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Configuration file to use instead of the default.",
)
@click.version_option(__version__, prog_name="fablectl")
@click.pass_context
def cli(ctx: click.Context, file: Path | None) -> None:
    """Ask fabled, the memory of Claude Code.

    The daemon has to run; start it with: fabled
    """
    ctx.obj = file


def main() -> None:
    """Run the client; every way out has an exit status of the interface."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as fault:
        fault.show()
        sys.exit(fault.exit_code)
    except FabledError as fault:
        _report(fault)
        sys.exit(fault.exit_status)
    except BrokenPipeError:
        # Whoever read our output has left; what cannot be flushed is nobody's loss.
        sys.stdout = None
        sys.exit(0)


def _report(fault: FabledError) -> None:
    if "--json" in sys.argv:
        said = {"code": fault.code, "message": fault.message, "hint": fault.hint}
        click.echo(json.dumps({"error": said}), err=True)
        return
    click.echo(f"fablectl: {fault.message}", err=True)
    if fault.hint:
        click.echo(fault.hint, err=True)


if __name__ == "__main__":
    main()

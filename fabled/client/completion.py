"""`completion`: the script that teaches a shell our commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from fabled.errors import UsageError

if TYPE_CHECKING:
    from fabled.client.asking import Run

VARIABLE = "_FABLECTL_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="Example: fablectl completion bash > ~/.local/share/bash-completion/completions/fablectl"
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"there is no completion for {shell}")
    program = context.find_root()
    script = kind(program.command, {}, "fablectl", VARIABLE).source()
    run: Run = context.obj
    run.screen.raw(script.encode())

"""`completion`: the script that completes fablectl's commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog='Example: eval "$(fablectl completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell, to be sourced by it."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "fablectl", "_FABLECTL_COMPLETE")
    click.echo(script.source())

"""`fabled`: the daemon in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabled import __version__, config
from fabled.errors import FabledError

if TYPE_CHECKING:
    from fabled.config import Settings


@click.command(epilog="Example: fabled --log-level debug")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Configuration file; the default is shown by: fablectl config path",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is logged to stderr; wins over the configuration.",
)
@click.option(
    "--log-file",
    type=click.Path(path_type=Path),
    help="Log to this file instead of stderr; it is rotated at 5 MB, three old ones are kept.",
)
@click.version_option(__version__, prog_name="fabled")
def main(file: Path | None, log_level: str | None, log_file: Path | None) -> None:
    """Watch Claude Code transcripts, index them, and answer fablectl.

    Runs in the foreground until SIGTERM or SIGINT; a second signal does not wait for
    running requests. SIGHUP reloads the configuration.
    """
    try:
        _run(file, log_level, log_file)
    except FabledError as fault:
        click.echo(f"fabled: {fault.message}\n{fault.hint}", err=True)
        sys.exit(fault.exit_status)


def _run(file: Path | None, log_level: str | None, log_file: Path | None) -> None:
    # Imported here, so that --help and a wrong configuration answer at once.
    from fabled.daemon import lifecycle, log  # noqa: PLC0415
    from fabled.system import real  # noqa: PLC0415

    def load() -> Settings:
        settings = config.load(config.environment(), file)
        return settings.override("log.level", log_level, "--log-level") if log_level else settings

    settings = load()
    system = real()
    system.processes.settle_in()
    level = settings.text("log.level")
    if log_file is None:
        log.configure(level, sys.stderr)
    else:
        log.configure_file(level, log_file)
    lifecycle.run(settings, system, load)


if __name__ == "__main__":
    main()

"""`config show|path|check`: settings and where they come from; needs no daemon."""

from __future__ import annotations

import click

from fabled import config as settings
from fabled.client import terminal


def _load(ctx: click.Context) -> settings.Settings:
    return settings.load(settings.environment(), ctx.find_root().obj)


@click.group(epilog="Example: fablectl config show")
def config() -> None:
    """Show and check settings and places."""


@config.command(epilog="Example: fablectl config show --json")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def show(ctx: click.Context, *, as_json: bool) -> None:
    """Effective settings, each with its source."""
    found = _load(ctx)
    places = found.places
    rows: dict[str, tuple[object, str]] = {
        "projects": ([str(root) for root in found.projects], found.sources["projects"])
    }
    rows |= {key: (value, found.sources[key]) for key, value in found.values.items()}
    if as_json:
        terminal.print_json(
            {
                "places": {
                    "home": str(places.home),
                    "config": str(places.config),
                    "socket": str(places.socket),
                },
                "settings": {
                    key: {"value": value, "source": source} for key, (value, source) in rows.items()
                },
            }
        )
        return
    terminal.out(f"home    {places.home}\nconfig  {places.config}\nsocket  {places.socket}\n")
    for key, (value, source) in rows.items():
        text = ", ".join(value) if isinstance(value, list) else _toml(value)
        terminal.out(f"{key:<20} {text}  ({source})")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


@config.command(epilog="Example: $EDITOR $(fablectl config path)")
@click.pass_context
def path(ctx: click.Context) -> None:
    """The configuration file's path, whether or not it exists."""
    terminal.out(str(settings.places(settings.environment(), ctx.find_root().obj).config))


@config.command(epilog="Example: fablectl config check")
@click.pass_context
def check(ctx: click.Context) -> None:
    """Read the configuration and say whether it is right."""
    found = _load(ctx)
    terminal.say(f"{found.places.config}: nothing wrong.")

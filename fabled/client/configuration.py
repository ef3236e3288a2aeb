"""`config`: the effective settings, where they are from, and whether they are right."""

from __future__ import annotations

import json
from typing import Any

import click

from fabled import config as settings
from fabled.client.asking import Run, json_option
from fabled.client.layout import flat, table


@click.group("config", epilog="Example: fablectl config show", no_args_is_help=False)
def config() -> None:
    """Show and check the settings; works without a daemon."""


@config.command(epilog="Example: fablectl config show --json")
@json_option
@click.pass_obj
def show(run: Run, *, as_json: bool) -> None:
    """Print every effective setting and what set it."""
    found = _effective(run)
    if as_json:
        run.screen.value(found)
        return
    rows = [
        *([name, flat(where), ""] for name, where in found["places"].items()),
        *(
            [key, flat(_toml(row["value"])), row["source"]]
            for key, row in found["settings"].items()
        ),
    ]
    for key, value, source in table([["SETTING", "VALUE", "SOURCE"], *rows]):
        style = ("dim",) if key.startswith("SETTING") else ()
        painted = source if style else run.screen.paint(source, "dim")
        run.screen.line(run.screen.paint(f"{key}  {value}  {painted}".rstrip(), *style))


@config.command(epilog='Example: $EDITOR "$(fablectl config path)"')
@json_option
@click.pass_obj
def path(run: Run, *, as_json: bool) -> None:
    """Print where the configuration file is, or would be."""
    where = settings.places(run.daemon.environ, run.daemon.file)
    if as_json:
        run.screen.value({"config": str(where.config)})
    else:
        run.screen.text(f"{where.config}\n")


@config.command(epilog="Example: fablectl --config new.toml config check")
@json_option
@click.pass_obj
def check(run: Run, *, as_json: bool) -> None:
    """Say whether the daemon would start with these settings; exit 7 if not."""
    where = _effective(run)["places"]["config"]
    if as_json:
        run.screen.value({"config": where, "ok": True})
    else:
        run.screen.say(f"{where} is right.")


def _effective(run: Run) -> dict[str, Any]:
    loaded = settings.load(run.daemon.environ, run.daemon.file)
    values: dict[str, Any] = {"projects": [str(root) for root in loaded.projects], **loaded.values}
    return {
        "places": {
            "home": str(loaded.places.home),
            "config": str(loaded.places.config),
            "socket": str(loaded.places.socket),
        },
        "settings": {
            key: {"value": value, "source": loaded.sources[key]} for key, value in values.items()
        },
    }


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

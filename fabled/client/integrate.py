"""`integrate`: what fabled offers to Claude Code, installed by the client's own commands."""

from __future__ import annotations

import json
import shutil
import subprocess  # noqa: TID251 - runs the client's own plugin commands, shown beforehand
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from fabled import config
from fabled.client.asking import Run, json_option
from fabled.errors import AccessDenied, ClientRefused, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabled.client.terminal import Screen

NAME = "fabled@fabled"
SHOWN = 600
RUN_S = 120


class Change(NamedTuple):
    """What is done, in order: files below a folder, then commands. And how it is taken back."""

    folder: Path
    files: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]
    undo: str


@click.group(epilog="Example: fablectl integrate claude-code --dry-run")
def integrate() -> None:
    """Connect fabled with the programs that use it."""


@integrate.command(name="claude-code", epilog="Example: fablectl integrate claude-code --dry-run")
@click.option("--dry-run", is_flag=True, help="Print every file and command, and do nothing.")
@click.option("--remove", is_flag=True, help="Take it out again.")
@json_option
@click.pass_obj
def claude_code(run: Run, *, dry_run: bool, remove: bool, as_json: bool) -> None:
    """Install the Claude Code plugin: the MCP server, a skill, and hooks that only notify.

    The plugin's files go into fabled's home; everything else is done by the client's own
    `claude plugin` commands, which are printed first.
    """
    home = config.places(run.daemon.environ, run.daemon.file).home
    change = _removal(home) if remove else _installation(home)
    if not as_json:
        _show(run.screen, change)
    if not dry_run:
        _apply(run.screen, change, quiet=as_json)
    if as_json:
        said = {
            "folder": str(change.folder),
            "files": sorted(change.files),
            "commands": [list(command) for command in change.commands],
            "undo": change.undo,
            "applied": not dry_run,
        }
        run.screen.value(said)
    elif dry_run:
        run.screen.say("Nothing was done.")
    else:
        run.screen.say(f"Done. To take it back: {change.undo}")


def _installation(home: Path) -> Change:
    folder = home / "integrations" / "claude-code"
    add = ("claude", "plugin", "marketplace", "add", str(folder))
    install = ("claude", "plugin", "install", NAME)
    return Change(folder, _files(), (add, install), "fablectl integrate claude-code --remove")


def _removal(home: Path) -> Change:
    folder = home / "integrations" / "claude-code"
    uninstall = ("claude", "plugin", "uninstall", NAME)
    forget = ("claude", "plugin", "marketplace", "remove", "fabled")
    return Change(folder, {}, (uninstall, forget), "fablectl integrate claude-code")


def _files() -> dict[str, str]:
    """The plugin as it is installed: programs by their absolute paths.

    The client may have another PATH than the shell that installs it.
    """
    source = _source()
    found = {
        str(path.relative_to(source)): path.read_text(encoding="utf-8")
        for path in sorted(source.rglob("*"))
        if path.is_file()
    }
    server = {"command": _program("fablectl"), "args": ["mcp"]}
    found[".mcp.json"] = json.dumps({"mcpServers": {"fabled": server}}, indent=2) + "\n"
    hook = f'"{sys.executable}" -I -m fabled.client.hook'
    hooks = found["hooks/hooks.json"].replace('"fablectl-hook"', json.dumps(hook))
    return {**found, "hooks/hooks.json": hooks}


def _source() -> Path:
    """The plugin's files: in the installed package, or beside it in a clone."""
    package = Path(__file__).parent.parent
    for place in (package / "integrations", package.parent / "integrations"):
        if (place / "claude-code").is_dir():
            return place / "claude-code"
    raise NotFound("the plugin's files are not installed", hint="Install fabled again.")


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def _show(screen: Screen, change: Change) -> None:
    if change.files:
        screen.line(f"Write {len(change.files)} files below {change.folder}:")
        for name in sorted(change.files):
            screen.line(f"  {name}")
    else:
        screen.line(f"Remove {change.folder}")
    for command in change.commands:
        screen.line("Run: " + " ".join(command))


def _apply(screen: Screen, change: Change, *, quiet: bool) -> None:
    program = shutil.which("claude")
    if program is None:
        raise NotFound(
            "there is no program claude on the PATH; nothing was done",
            hint="Install Claude Code first, or run the printed commands where it is.",
        )
    if change.files:
        _write(change)
    for command in change.commands:
        said = _run((program, *command[1:]))
        if not quiet and said:
            screen.say(said)
    if not change.files and change.folder.is_dir():
        shutil.rmtree(change.folder)


def _write(change: Change) -> None:
    try:
        for name, text in change.files.items():
            path = change.folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise AccessDenied(f"cannot write below {change.folder}: {fault.strerror}") from fault


def _run(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and nothing in it comes from outside
            command, capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise ClientRefused(f"{' '.join(command)}: {fault}") from fault
    said = (done.stdout + done.stderr).strip()[-SHOWN:]
    if done.returncode != 0:
        raise ClientRefused(f"{' '.join(command)} ended with status {done.returncode}: {said}")
    return said

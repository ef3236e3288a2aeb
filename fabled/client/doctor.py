"""`doctor`: is everything as it should be, and what to do where it is not."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

import click

from fabled import __version__, config
from fabled.client import managers
from fabled.client.asking import Run, json_option
from fabled.client.layout import flat, wrap
from fabled.client.service import moved
from fabled.errors import FabledError
from fabled.protocol import DOCTOR, STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fabled.client.terminal import Screen

Finding = dict[str, Any]
_MARKS = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "error": ("wrong", "red")}


@click.command(epilog="Example: fablectl doctor")
@json_option
@click.pass_obj
def doctor(run: Run, *, as_json: bool) -> int:
    """Check the installation, the daemon and its surroundings; exit 1 if something is wrong.

    Each finding comes with its fix.
    """
    found = [*_here(run), *_daemon(run)]
    wrong = sum(one["level"] == "error" for one in found)
    if as_json:
        run.screen.value({"ok": not wrong, "findings": found})
    else:
        for one in found:
            _show(run.screen, one)
        looks = sum(one["level"] == "warning" for one in found)
        run.screen.say(f"{wrong} wrong, {looks} to look at, {len(found) - wrong - looks} fine.")
    return 1 if wrong else 0


def _finding(check: str, level: str, message: str, fix: str | None = None) -> Finding:
    return {"check": check, "level": level, "message": message, "fix": fix}


def _here(run: Run) -> Iterator[Finding]:
    """What can be seen without the daemon."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield _finding("version", "ok", f"fabled {__version__} on Python {python}")
    try:
        settings = config.load(run.daemon.environ, run.daemon.file)
    except FabledError as fault:
        yield _finding("configuration", "error", fault.message, fault.hint)
        return
    yield _finding("configuration", "ok", f"{settings.places.config} is fine, or not there")
    yield from _socket(settings.places.socket)
    yield _service(run, settings.places.home)


def _socket(path: Path) -> Iterator[Finding]:
    try:
        found = path.lstat()
    except FileNotFoundError:
        yield _finding("socket", "warning", f"there is no socket {path}", "Start the daemon.")
        return
    except OSError as fault:
        fix = "Check the permissions of its folders."
        yield _finding("socket", "error", f"{path}: {fault.strerror}", fix)
        return
    if not stat.S_ISSOCK(found.st_mode):
        fix = "Move that file away, or set FABLED_SOCKET to another path."
        yield _finding("socket", "error", f"{path} is no socket", fix)
    elif found.st_uid != os.geteuid() or found.st_mode & 0o077:
        fix = f"Remove {path} and restart the daemon."
        yield _finding("socket", "error", f"{path} is open to others, or another user's", fix)
    else:
        yield _finding("socket", "ok", f"{path} is private")


def _service(run: Run, home: Path) -> Finding:
    manager = managers.of(sys.platform, run.daemon.environ, home)
    try:
        manager.check()
    except FabledError as fault:
        return _finding("service", "warning", fault.message, fault.hint)
    state = manager.state()
    if state.file is None:
        fix = "Install it with: fablectl service install"
        return _finding("service", "warning", "the daemon is not installed as a service", fix)
    problem = moved(state.interpreter)
    if problem:
        return _finding("service", "error", problem, "Run: fablectl service install")
    if state.active not in {"active", "running"}:
        fix = "Run: fablectl service start; then see: fablectl service logs"
        return _finding("service", "error", f"the service is {state.active}", fix)
    if state.hint:
        return _finding("service", "warning", "the service ends at logout", state.hint)
    return _finding("service", "ok", f"the service is {state.active}")


def _daemon(run: Run) -> Iterator[Finding]:
    """What the daemon says of itself."""
    try:
        status = run.daemon.ask(STATUS).value
        theirs = run.daemon.ask(DOCTOR).value["findings"]
    except FabledError as fault:
        yield _finding("daemon", "error", fault.message, fault.hint)
        return
    if status["version"] != __version__:
        message = f"the daemon is {status['version']}, this program is {__version__}"
        yield _finding("daemon", "warning", message, "Run: fablectl service restart")
    else:
        uptime = f"pid {status['pid']}, up {status['uptime_s']:.0f} s"
        yield _finding("daemon", "ok", f"it answers: {status['state']}, {uptime}")
    yield from theirs


def _show(screen: Screen, one: Finding) -> None:
    word, colour = _MARKS.get(one["level"], ("?", "red"))
    head = f"{word:<6}{one['check']:<15}"
    room = None if screen.columns is None else screen.columns - len(head)
    lines = [*wrap(flat(one["message"]), room)]
    if one["fix"] and one["level"] != "ok":
        lines += wrap(f"-> {flat(one['fix'])}", room)
    first = screen.paint(f"{word:<6}", colour) + f"{one['check']:<15}"
    for at, line in enumerate(lines):
        screen.line((" " * len(head) if at else first) + line)

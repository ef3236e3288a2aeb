"""Service files, filled in: a systemd user unit, a launchd agent. Pure: text in, text out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from fabled.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNIT = "fable.service"
LABEL = "dev.fabled.daemon"
PASSED_ON = (
    "CLAUDE_CONFIG_DIR",
    "FABLED_CONFIG",
    "FABLED_HOME",
    "FABLED_PROJECTS",
    "FABLED_SOCKET",
    "PATH",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)
"""What a service manager does not know of the environment that installs."""


class Program(NamedTuple):
    """What the service runs.

    Attributes:
        command: The interpreter of this installation, by its own path: an upgrade in place
            keeps it, and `doctor` says when it is gone.
        environment: What has to be passed on.
        home: fabled's home.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    home: str


def program(interpreter: str, environ: Mapping[str, str], home: Path, file: Path | None) -> Program:
    """What a service of this installation runs."""
    more = ("--config", str(file.absolute())) if file is not None else ()
    passed = {name: environ[name] for name in PASSED_ON if environ.get(name)}
    return Program((interpreter, "-m", "fabled.daemon.main", *more), passed, str(home))


def template(name: str) -> str:
    """A service file as it is shipped: in the installed package, or beside it in a clone.

    Raises:
        NotFound: The installation is incomplete.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "service", package.parent / "service"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise NotFound(f"the service file {name} is not installed", hint="Install fabled again.")


def systemd(what: Program) -> str:
    """The user unit. Quoting: systemd.service(5), "COMMAND LINES", and systemd.syntax(7)."""
    environment = "\n".join(
        f'Environment="{_in_quotes(f"{name}={value}")}"'
        for name, value in sorted(what.environment.items())
    )
    command = " ".join(f'"{_in_quotes(part).replace("$", "$$")}"' for part in what.command)
    text = template(UNIT).replace("@COMMAND@", command)
    return text.replace("@ENVIRONMENT@", environment or "# nothing of the environment is needed")


def _in_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def launchd(what: Program) -> str:
    """The agent. Keys: launchd.plist(5)."""
    log = f"{what.home}/log/fabled.log"
    arguments = [*what.command, "--log-file", log]
    values = {
        "@LABEL@": LABEL,
        "@ARGUMENTS@": "\n".join(f"    <string>{escape(one)}</string>" for one in arguments),
        "@ENVIRONMENT@": "\n".join(
            f"    <key>{escape(name)}</key>\n    <string>{escape(value)}</string>"
            for name, value in sorted(what.environment.items())
        ),
        "@HOME@": escape(what.home),
    }
    text = template("launchd.plist")
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def interpreter_in(text: str) -> str | None:
    """The program that an installed systemd unit starts."""
    for line in text.splitlines():
        if line.startswith('ExecStart="'):
            return line.removeprefix('ExecStart="').partition('"')[0].replace("%%", "%")
    return None


def lines(command: Sequence[str]) -> str:
    """A command as a person would type it."""
    return " ".join(f"'{part}'" if " " in part else part for part in command)

"""Service managers: what each has to be told, and how it is asked.

Everything is first a plan - files and commands - that can be shown instead of done.
"""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - runs the manager's own commands, shown beforehand on request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fabled.client import units
from fabled.errors import AccessDenied, NoServiceManager, ServiceFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN_S = 90


class Plan(NamedTuple):
    """Files to write, files to remove, commands to run, in this order.

    Attributes:
        lenient: Commands whose failure does not matter: what they end is not there.
    """

    write: Mapping[Path, str]
    remove: tuple[Path, ...]
    commands: tuple[tuple[str, ...], ...]
    lenient: tuple[tuple[str, ...], ...] = ()


class State(NamedTuple):
    """A service as its manager sees it.

    Attributes:
        file: Its service file, if it is installed.
        interpreter: What that file starts.
        hint: Something that the user should know, with the command for it.
    """

    manager: str
    file: Path | None
    active: str
    pid: int | None
    interpreter: str | None
    hint: str | None


class Manager(Protocol):
    """One kind of service manager."""

    name: str

    def check(self) -> None:
        """Raise `NoServiceManager` when it cannot be used here."""

    def install(self, what: units.Program) -> Plan:
        """Write the service file, enable and start it; a running one is started anew."""

    def uninstall(self) -> Plan:
        """Stop, disable, remove the service file."""

    def order(self, verb: str) -> Plan:
        """start, stop or restart."""

    def state(self) -> State:
        """How it is."""

    def logs(self, number: int, *, follow: bool) -> tuple[str, ...]:
        """The command that shows its log."""


class Systemd:
    """The user's own systemd.

    Args:
        environ: The process's environment.
    """

    name = "systemd"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
        self.file = Path(base) / "systemd" / "user" / units.UNIT

    def check(self) -> None:
        """Raise `NoServiceManager` when no user manager answers."""
        if shutil.which("systemctl", path=self._environ.get("PATH")) is None:
            raise NoServiceManager("there is no systemctl here")
        said = run(("systemctl", "--user", "show-environment"), self._environ)
        if said.returncode != 0:
            why = (said.stderr or said.stdout).strip().splitlines()
            raise NoServiceManager(f"no systemd of this user answers: {why[-1] if why else '?'}")

    def install(self, what: units.Program) -> Plan:
        """The unit, and the commands that make it the running one."""
        return Plan(
            {self.file: units.systemd(what)},
            (),
            (
                _systemctl("daemon-reload"),
                _systemctl("enable", units.UNIT),
                _systemctl("restart", units.UNIT),
            ),
        )

    def uninstall(self) -> Plan:
        """Disable first: it needs the file."""
        disable = _systemctl("disable", "--now", units.UNIT)
        reload = _systemctl("daemon-reload")
        forget = _systemctl("reset-failed", units.UNIT)
        return Plan({}, (self.file,), (disable, reload, forget), lenient=(disable, forget))

    def order(self, verb: str) -> Plan:
        """One verb of systemctl."""
        return Plan({}, (), (_systemctl(verb, units.UNIT),))

    def state(self) -> State:
        """As `systemctl show` says."""
        there = self.file if self.file.is_file() else None
        said = run((*_systemctl("show", units.UNIT), "-p", "ActiveState,MainPID"), self._environ)
        found = dict(line.split("=", 1) for line in said.stdout.splitlines() if "=" in line)
        pid = int(found.get("MainPID", "0") or 0) or None
        text = there.read_text(encoding="utf-8") if there else ""
        active = found.get("ActiveState", "unknown")
        return State(self.name, there, active, pid, units.interpreter_in(text), self._linger())

    def _linger(self) -> str | None:
        user = self._environ.get("USER") or str(os.getuid())
        said = run(("loginctl", "show-user", user, "-p", "Linger"), self._environ)
        if said.returncode == 0 and "Linger=no" in said.stdout:
            return "It ends when you log out. To let it run on: loginctl enable-linger"
        return None

    def logs(self, number: int, *, follow: bool) -> tuple[str, ...]:
        """Journalctl of the unit."""
        more = ("-f",) if follow else ()
        return ("journalctl", "--user", "-u", units.UNIT, "-n", str(number), "--no-pager", *more)


class Launchd:
    """The user's launchd agents (macOS).

    Args:
        environ: The process's environment.
        home: fabled's home, where its log is.
    """

    name = "launchd"

    def __init__(self, environ: Mapping[str, str], home: Path) -> None:
        self._environ = environ
        self._home = home
        agents = Path(environ.get("HOME", "")) / "Library" / "LaunchAgents"
        self.file = agents / f"{units.LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{units.LABEL}"

    def check(self) -> None:
        """Raise `NoServiceManager` when launchctl is not there."""
        if shutil.which("launchctl", path=self._environ.get("PATH")) is None:
            raise NoServiceManager("there is no launchctl here")

    def install(self, what: units.Program) -> Plan:
        """The agent; one that is loaded is unloaded first, or its old form would stay."""
        out = ("launchctl", "bootout", self._target)
        return Plan(
            {self.file: units.launchd(what)},
            (),
            (
                out,
                ("launchctl", "enable", self._target),
                ("launchctl", "bootstrap", self._domain, str(self.file)),
            ),
            lenient=(out,),
        )

    def uninstall(self) -> Plan:
        """Unload, and remove the file."""
        out = ("launchctl", "bootout", self._target)
        return Plan({}, (self.file,), (out,), lenient=(out,))

    def order(self, verb: str) -> Plan:
        """KeepAlive restarts it after a failure only: a clean end is an end."""
        command = {
            "start": ("launchctl", "kickstart", self._target),
            "stop": ("launchctl", "kill", "SIGTERM", self._target),
            "restart": ("launchctl", "kickstart", "-k", self._target),
        }[verb]
        return Plan({}, (), (command,))

    def state(self) -> State:
        """As `launchctl print` says."""
        there = self.file if self.file.is_file() else None
        said = run(("launchctl", "print", self._target), self._environ)
        pid = _after(said.stdout, "pid = ")
        active = _after(said.stdout, "state = ") or "unknown"
        number = int(pid) if pid and pid.isdigit() else None
        return State(self.name, there, active, number, None, None)

    def logs(self, number: int, *, follow: bool) -> tuple[str, ...]:
        """The log file that the agent writes."""
        more = ("-F",) if follow else ()
        return ("tail", "-n", str(number), *more, f"{self._home}/log/fabled.log")


def of(platform: str, environ: Mapping[str, str], home: Path) -> Manager:
    """The manager of a platform."""
    return Launchd(environ, home) if platform == "darwin" else Systemd(environ)


def carry_out(plan: Plan, environ: Mapping[str, str]) -> None:
    """Do what a plan says.

    Raises:
        AccessDenied: A file cannot be written or removed.
        ServiceFailed: A command failed; what was written before stays.
    """
    try:
        for path, text in plan.write.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
        for command in plan.commands:
            if "daemon-reload" in command:
                _remove(plan.remove)  # the manager is to see that they are gone
            done = run(command, environ)
            if done.returncode != 0 and command not in plan.lenient:
                said = (done.stderr or done.stdout).strip()[-400:]
                raise ServiceFailed(f"{units.lines(command)}: {said}")
        _remove(plan.remove)
    except OSError as fault:
        raise AccessDenied(f"{fault.filename}: {fault.strerror}") from fault


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def run(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a manager's command; what it said, whatever its status."""
    try:
        return subprocess.run(  # noqa: S603 - no shell, and nothing in it comes from outside
            list(command),
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(list(command), 127, "", f"no program {command[0]}")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(command), 124, "", f"not within {RUN_S} s")


def _systemctl(*words: str) -> tuple[str, ...]:
    return ("systemctl", "--user", *words)


def _after(text: str, mark: str) -> str | None:
    for line in text.splitlines():
        if line.strip().startswith(mark):
            return line.strip().removeprefix(mark)
    return None

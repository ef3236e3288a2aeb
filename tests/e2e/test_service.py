"""The daemon as a service: unit and plist, a real user manager, the notify protocol."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabled.client import managers, units
from fabled.daemon.notify import Manager
from fabled.daemon.vitality import Vitality
from fabled.errors import NoServiceManager
from fabled.map.db import Snapshots
from fabled.system import real
from tests.e2e.test_vault import daemon
from tests.support.daemons import CLIENT, Daemon
from tests.support.maps import Library
from tests.support.transcripts import prompt
from tests.support.user_manager import UserManager, cannot
from tests.support.waiting import until

LAUNCHD_KEYS = {
    "Label",
    "ProgramArguments",
    "EnvironmentVariables",
    "RunAtLoad",
    "KeepAlive",
    "ThrottleInterval",
    "ExitTimeOut",
    "ProcessType",
    "LowPriorityIO",
    "Nice",
    "Umask",
    "SoftResourceLimits",
    "StandardOutPath",
    "StandardErrorPath",
}
"""Keys of launchd.plist(5) that are used."""

ODD = {"HOME": "/home/a b", "FABLED_HOME": '/data/100% "x"/\\y', "PATH": "/usr/bin"}


def _program(environ=ODD, home="/data/h"):
    return units.program("/opt/my env/bin/python", environ, Path(home), None)


@pytest.fixture
def environment(tmp_path):
    """Scratch folders only, and something to index."""
    (tmp_path / "claude" / "projects" / "-p").mkdir(parents=True)
    (tmp_path / "claude" / "projects" / "-p" / "s1.jsonl").write_bytes(prompt("a", None, "wombat"))
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "FABLED_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_installed_unit_is_valid_and_reports_its_exposure(tmp_path):
    """systemd-analyze has nothing to say against it, odd paths and all."""
    python = Path(sys.executable)
    what = units.program(str(python), {**ODD, "PATH": os.environ["PATH"]}, Path("/x y"), None)
    unit = tmp_path / units.UNIT
    unit.write_text(units.systemd(what))
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}
    verify = ["systemd-analyze", "verify", "--user", str(unit)]
    done = subprocess.run(verify, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    security = ["systemd-analyze", "security", "--offline=true", "--user", str(unit)]
    done = subprocess.run(security, env=env, capture_output=True, text=True, check=False)
    assert "Overall exposure level" in done.stdout
    print(done.stdout.splitlines()[-1])


def test_unit_quotes_what_it_is_given():
    """Blanks, quotes, per cents, backslashes; and the interpreter is found again in it."""
    text = units.systemd(_program())
    assert '"FABLED_HOME=/data/100%% \\"x\\"/\\\\y"' in text
    assert units.interpreter_in(text) == "/opt/my env/bin/python"
    assert "@" not in text.replace("@system-service", "").partition("[Unit]")[2]


def test_plist_parses_and_every_key_is_a_documented_one():
    """What launchd reads is what was meant."""
    found = plistlib.loads(units.launchd(_program(home="/data/<h>")).encode())
    assert set(found) == LAUNCHD_KEYS
    assert found["ProgramArguments"] == [
        "/opt/my env/bin/python",
        "-m",
        "fabled.daemon.main",
        "--log-file",
        "/data/<h>/log/fabled.log",
    ]
    assert found["EnvironmentVariables"]["FABLED_HOME"] == ODD["FABLED_HOME"]
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["Umask"] == 0o077
    assert found["ProcessType"] == "Background"


def test_launchd_is_told_by_its_documented_verbs(tmp_path):
    """A stand-in for launchctl notes what it is asked: macOS itself was never run."""
    program = tmp_path / "launchctl"
    program.write_text(
        '#!/bin/sh\necho "$@" >> "$HOME/asked"\n'
        '[ "$1" = print ] && printf "\\tstate = running\\n\\tpid = 77\\n"\n'
        '[ "$1" = bootout ] && exit 3\nexit 0\n'
    )
    program.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    there = managers.of("darwin", environ, tmp_path / "home")
    there.check()
    what = units.program(sys.executable, environ, tmp_path / "home", None)
    managers.carry_out(there.install(what), environ)
    agent = tmp_path / "Library" / "LaunchAgents" / "dev.fabled.daemon.plist"
    assert agent.exists()
    assert there.state()[:4] == ("launchd", agent, "running", 77)
    for verb in ("start", "stop", "restart"):
        managers.carry_out(there.order(verb), environ)
    managers.carry_out(there.uninstall(), environ)
    assert not agent.exists()
    target = f"gui/{os.getuid()}/dev.fabled.daemon"
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"bootout {target}",
        f"enable {target}",
        f"bootstrap gui/{os.getuid()} {agent}",
        f"print {target}",
        f"kickstart {target}",
        f"kill SIGTERM {target}",
        f"kickstart -k {target}",
        f"bootout {target}",
    ]
    assert there.logs(5, follow=True)[0] == "tail"


def test_without_a_manager_the_words_are_clear(tmp_path, environment):
    """No bus, no systemctl: refused, with what to do instead; nothing is written."""
    bare = {**environment, "PATH": str(tmp_path)}
    with pytest.raises(NoServiceManager):
        managers.of("linux", bare, tmp_path).check()
    done = subprocess.run(
        [*CLIENT, "service", "install"],
        env={**environment, "XDG_RUNTIME_DIR": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "fabled" in done.stderr
    assert not (tmp_path / ".config").exists()


def test_dry_run_prints_files_and_commands_and_does_nothing(tmp_path, environment):
    """As text and as JSON."""
    command = [*CLIENT, "service", "install", "--dry-run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "[Service]" in done.stdout
    assert "Run: systemctl --user daemon-reload" in done.stdout
    done = subprocess.run(
        [*command, "--json"], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["applied"] is False
    assert not (tmp_path / ".config").exists()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_real_user_manager_installs_restarts_and_uninstalls_it(tmp_path, environment):
    """A systemd of our own: READY, status, a crash, a reload, restart, install again, uninstall."""
    reason = cannot()
    if reason is not None:
        pytest.skip(reason)

    with UserManager(tmp_path, environment) as manager:

        def fablectl(*command):
            status, out, err = manager.run(*CLIENT, *command)
            assert status == 0, (command, out, err)
            return out

        def state():
            return json.loads(fablectl("service", "status", "--json"))

        fablectl("service", "install")
        first = state()
        assert first["active"] == "active", (tmp_path / "systemd.log").read_text()
        assert first["problem"] is None
        assert json.loads(fablectl("status", "--json"))["pid"] == first["pid"]
        shown = manager.run("systemctl", "--user", "show", units.UNIT, "-p", "StatusText")[1]
        assert shown.startswith("StatusText=")
        assert shown.strip() != "StatusText="
        os.kill(first["pid"], 9)
        until(lambda: (s := state())["active"] == "active" and s["pid"] not in (first["pid"], None))
        second = state()["pid"]
        assert manager.run("systemctl", "--user", "reload", units.UNIT)[0] == 0
        fablectl("service", "install")
        assert state()["pid"] != second
        fablectl("service", "restart")
        fablectl("search", "wombat")
        assert "wombat" in fablectl("search", "--json", "wombat")
        checks = json.loads(manager.run(*CLIENT, "doctor", "--json")[1])["findings"]
        (service,) = [one for one in checks if one["check"] == "service"]
        assert service["level"] in {"ok", "warning"}
        _stop_start_and_uninstall(fablectl, state)
        left = {path.name for path in (tmp_path / ".config").rglob("*")}
        assert units.UNIT not in left
        assert (tmp_path / "home" / "map.db").exists()


def _stop_start_and_uninstall(fablectl, state):
    fablectl("service", "stop")
    assert state()["active"] == "inactive"
    fablectl("service", "start")
    assert state()["active"] == "active"
    unit = Path(state()["file"])
    fablectl("service", "uninstall")
    assert not unit.exists()
    assert state()["installed"] is False


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_moved_environment_is_diagnosed(tmp_path, environment):
    """A unit that starts a program that is gone: said by status and by doctor."""
    unit = tmp_path / ".config" / "systemd" / "user" / units.UNIT
    unit.parent.mkdir(parents=True)
    what = units.program("/gone/bin/python", environment, tmp_path / "home", None)
    unit.write_text(units.systemd(what))
    done = subprocess.run(
        [*CLIENT, "service", "status", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "/gone/bin/python" in json.loads(done.stdout)["problem"]


class Listening:
    """A service manager's socket; what it heard."""

    def __init__(self, path):
        self.path = str(path)
        self.heard = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self):
        while data := self._socket.recv(4096):
            self.heard.append(data.decode())

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.path)
        self._thread.join()
        self._socket.close()


@pytest.fixture
def manager(tmp_path):
    """Listening."""
    made = Listening(tmp_path / "notify")
    yield made
    made.close()


def test_daemon_speaks_the_notify_protocol(tmp_path, manager):
    """READY only when the socket answers, signs of life, RELOADING and READY, STOPPING."""
    root = tmp_path / "claude" / "projects"
    root.mkdir(parents=True)
    there = daemon(
        tmp_path,
        root,
        NOTIFY_SOCKET=manager.path,
        WATCHDOG_USEC="300000",
        wait=False,
    )
    until(lambda: "READY=1" in manager.heard)
    assert there.answers()
    until(lambda: manager.heard.count("WATCHDOG=1") > 3)
    assert any(one.startswith("STATUS=") for one in manager.heard)
    there.process.send_signal(1)
    until(lambda: any(one.startswith("RELOADING=1\nMONOTONIC_USEC=") for one in manager.heard))
    until(lambda: manager.heard.count("READY=1") == 2)
    assert there.stop() == 0
    assert manager.heard[-1] == "STOPPING=1"


def test_changed_configuration_is_taken_up_without_a_signal(tmp_path, manager):
    """The reconcile sees the file's change; a wrong one is told, and changes nothing."""
    root = tmp_path / "claude" / "projects"
    root.mkdir(parents=True)
    with daemon(tmp_path, root, "[index]\nreconcile = 1\n", NOTIFY_SOCKET=manager.path) as there:
        (tmp_path / "config.toml").write_text("[index]\nreconcile = 1\nnonsense = 3\n")
        until(lambda: any("nonsense" in one for one in there.status()["warnings"]), 20)
        (tmp_path / "config.toml").write_text("[index]\nreconcile = 1\n")
        until(lambda: not any("nonsense" in one for one in there.status()["warnings"]), 20)


class Pulse:
    """A writer whose pulse the test sets."""

    def __init__(self):
        self.since = None

    def busy_since(self):
        return self.since


def test_watchdog_starves_when_the_writer_hangs_or_the_map_is_gone(tmp_path):
    """Busy for long is no trouble; for too long it is; a Map that does not answer is."""
    (tmp_path / "projects").mkdir()
    clock, pulse = real().clock, Pulse()
    with Library(tmp_path, tmp_path / "projects") as library:
        vitality = Vitality(clock, library.snapshots, pulse, hung_s=60)
        assert vitality.trouble() is None
        pulse.since = clock.monotonic_s() - 50
        assert vitality.trouble() is None
        pulse.since = clock.monotonic_s() - 61
        assert "writer" in (vitality.trouble() or "")
        pulse.since = None
        gone = Vitality(clock, Snapshots(str(tmp_path / "nothing.db")), pulse)
        assert "Map" in (gone.trouble() or "")


def test_watchdog_of_another_process_is_not_fed(tmp_path, manager):
    """WATCHDOG_PID names whom it is for; without a manager nothing is sent anywhere."""
    meant = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    assert Manager(meant, 2).watchdog_s == 0
    assert Manager({**meant, "WATCHDOG_PID": "2"}, 2).watchdog_s == 1
    assert Manager({"WATCHDOG_USEC": "5"}, 2).watchdog_s == 0
    Manager({}, 2).ready()
    Manager({"NOTIFY_SOCKET": str(tmp_path / "none")}, 2).ready()


def test_log_file_is_private_and_rotated(tmp_path):
    """For managers that keep no log: JSON lines in a file of ours."""
    root = tmp_path / "claude" / "projects"
    root.mkdir(parents=True)
    log = tmp_path / "log" / "fabled.log"
    with Daemon(tmp_path / "run", root, options=("--log-file", str(log))):
        pass
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert {"ready", "stopping"} <= set(events)
    assert log.stat().st_mode & 0o777 == 0o600


def test_doctor_finds_what_is_wrong_and_says_what_to_do(tmp_path):
    """Fine: exit 0. A damaged generation, a retention of 0 days, no daemon: exit 1, each a fix."""
    root = tmp_path / "claude" / "projects"
    (root / "-p").mkdir(parents=True)
    (root / "-p" / "s1.jsonl").write_bytes(prompt("a", None, "wombat"))
    with daemon(tmp_path, root, "[archive]\nenabled = false\n") as there:
        there.index()
        done = there.client("doctor", "--json")
        found = json.loads(done.stdout)
        assert done.returncode == 0, found
        assert {one["check"] for one in found["findings"]} >= {
            "version", "configuration", "socket", "service", "daemon", "map", "sqlite", "vault",
            "disk", "projects", "retention", "archive", "jobs", "clock",
        }  # fmt: skip
        (root.parent / "settings.json").write_text('{"cleanupPeriodDays": 0}')
        done = there.client("doctor", "--json")
        found = json.loads(done.stdout)["findings"]
        assert done.returncode == 1
        (wrong,) = [one for one in found if one["level"] == "error"]
        assert wrong["check"] == "retention"
        assert wrong["fix"]
        assert b"wrong" in there.client("doctor").stdout
    done = there.client("doctor", "--json")
    assert done.returncode == 1
    assert [o["check"] for o in json.loads(done.stdout)["findings"] if o["level"] == "error"] == [
        "daemon"
    ]

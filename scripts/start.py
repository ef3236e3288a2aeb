"""Starts the daemon for `scripts/run`, shows the first pass, and says how to ask.

The daemon stays in the foreground: Ctrl-C stops it. With `--demo` everything happens
in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
USAGE = "usage: scripts/run [--demo]"
QUESTION = "why does the cache forget"


def main() -> int:
    """Run the daemon, or the demonstration."""
    root, *options = sys.argv[1:]
    if options not in ([], ["--demo"]):
        print(USAGE, file=sys.stderr)
        return 2
    if not options:
        return run(dict(os.environ))
    with tempfile.TemporaryDirectory(prefix="fabled-demo-") as folder:
        return demonstrate(Path(folder), Path(root) / "scripts" / "sample")


def run(environment: dict[str, str]) -> int:
    """The daemon on the user's own transcripts, until Ctrl-C."""
    daemon = start(environment)
    try:
        if wait_until_answering(daemon, environment):
            fablectl(environment, "index", "--wait")
            explain(json.loads(ask(environment, "status", "--json")))
        return daemon.wait()
    except KeyboardInterrupt:
        return daemon.wait()
    except subprocess.CalledProcessError as fault:
        return fault.returncode  # fablectl has said why
    finally:
        stop(daemon)


def explain(status: dict[str, Any]) -> None:
    """Where it looks, what it has, and how to ask."""
    for root in status["roots"]:
        missing = "" if root["present"] else " (not there yet; waiting for it)"
        print(f"Watching {root['path']}{missing}")
    if not status["map"]["files"]:
        print("No transcripts there so far: they are read as soon as Claude Code writes them.")
    print("\nAsk from another terminal:")
    for command in ("search WHAT YOU REMEMBER", "status", "--help"):
        print(f"  {BIN / 'fablectl'} {command}")
    print("\nCtrl-C stops the daemon.", flush=True)


def demonstrate(folder: Path, sample: Path) -> int:
    """The daemon on the sample: a search, a thread and a block, then the end."""
    projects = folder / "claude" / "projects"
    shutil.copytree(sample, projects)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FABLED_")}
    environment = kept | {
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "FABLED_HOME": str(folder / "home"),
        "FABLED_CONFIG": "",
    }
    daemon = start(environment, "--log-level", "warning")
    try:
        if not wait_until_answering(daemon, environment):
            return daemon.wait()
        show(environment, "index", "--wait")
        show(environment, "status")
        show(environment, "search", "-n", "2", *QUESTION.split())
        thread = ask(environment, "search", "--ids", "-n", "1", *QUESTION.split()).strip()
        show(environment, "thread", thread, "--budget", "400")
        record = ask(environment, "search", "--ids", "--level", "record", "-n", "1", QUESTION)
        show(environment, "block", record.strip())
        print("\n\nThat was the demonstration; nothing of it is left behind.")
        print("Start it on your own transcripts with: scripts/run")
        return 0
    finally:
        stop(daemon)


def start(environment: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    """The daemon as a child that gets Ctrl-C with us."""
    return subprocess.Popen([BIN / "fabled", *options], env=environment)


def wait_until_answering(daemon: subprocess.Popen[bytes], environment: dict[str, str]) -> bool:
    """False when the daemon ended instead; it has said why."""
    while daemon.poll() is None:
        asked = subprocess.run(
            [BIN / "fablectl", "status", "--json"],
            env=environment,
            capture_output=True,
            check=False,
        )
        if asked.returncode == 0:
            return True
        try:
            daemon.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    return False


def show(environment: dict[str, str], *command: str) -> None:
    """A command and what it prints."""
    print(f"\n$ fablectl {' '.join(command)}", flush=True)
    fablectl(environment, *command)


def fablectl(environment: dict[str, str], *command: str) -> None:
    """Run the client on our own terminal."""
    subprocess.run([BIN / "fablectl", *command], env=environment, check=True)


def ask(environment: dict[str, str], *command: str) -> str:
    """What the client prints."""
    asked = subprocess.run(
        [BIN / "fablectl", *command], env=environment, stdout=subprocess.PIPE, check=True
    )
    return asked.stdout.decode("utf-8", "replace")


def stop(daemon: subprocess.Popen[bytes]) -> None:
    """End the daemon; it drains first."""
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()


if __name__ == "__main__":
    sys.exit(main())

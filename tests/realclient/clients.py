"""Where real clients are kept, and what is needed to run one. Standard library only.

A client is the program that people use; `scripts/realclient` fetches it. It only ever runs
in namespaces of its own: no network but loopback, a scratch home, a scripted API.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = "@anthropic-ai/claude-code"
VERSIONS = ("2.1.332", "2.1.112", "2.0.77")
"""The newest one that was measured, and one of each older line that left fixtures."""

FIXTURES = {
    "2.1.332": ("2.1.332", "2.1.332-tui"),
    "2.1.112": ("2.1.112",),
    "2.0.77": ("2.0.77",),
}
"""The fixture folders that each client wrote."""


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """FABLED_REALCLIENT, else `fabled/realclient` in the user's own cache folder."""
    named = environment.get("FABLED_REALCLIENT")
    if named:
        return Path(named)
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fabled" / "realclient"


FOLDER = default_folder()
"""Read when the tests are imported, before each of them gets a home of its own."""


def modules(version: str, folder: Path) -> Path:
    """Where npm puts the package of a version."""
    return folder / version / "node_modules" / PACKAGE.split("/", maxsplit=1)[0]


def program(version: str, folder: Path = FOLDER) -> Path | None:
    """The client's program: a native binary, or for older lines a script; None when absent."""
    place = modules(version, folder)
    native = sorted(place.glob("claude-code-*/claude"), key=lambda path: len(str(path)))
    script = place / "claude-code" / "cli.js"
    found = native[0] if native else script
    return found if found.is_file() else None


def cannot_run() -> str | None:
    """Why no client can be run here; None when one can."""
    if os.geteuid() != 0:
        return "needs root: a real client runs in namespaces of its own"
    for tool in ("unshare", "ip", "mount"):
        if not shutil.which(tool):
            return f"needs {tool}: a real client runs in namespaces of its own"
    tried = subprocess.run(
        ["unshare", "-n", "-m", "-u", "true"], capture_output=True, check=False, text=True
    )
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


def cannot_run_version(version: str, folder: Path = FOLDER) -> str | None:
    """Why this version cannot be run; None when it can."""
    found = program(version, folder)
    if found is None:
        return f"client {version} is not in {folder}; fetch it with scripts/realclient"
    if found.suffix == ".js" and not shutil.which("node"):
        return f"client {version} needs node"
    return cannot_run()

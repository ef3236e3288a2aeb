"""Fetches real clients with npm, each version into a folder of its own; see scripts/realclient."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.realclient import clients

PATIENCE_S = 900
LAST_LINES = 12


def main() -> int:
    """Fetch what is missing; 0 when every wanted client is there."""
    asked = _arguments()
    folder = Path(asked.into).expanduser().absolute()
    failed = [version for version in asked.versions if not _present(version, folder)]
    if failed and not shutil.which("npm"):
        _say(f"npm is not installed, so these clients cannot be fetched: {', '.join(failed)}")
        return 1
    for version in list(failed):
        _say(f"Fetching {clients.PACKAGE} {version} ...")
        fault = _fetch(version, folder)
        if fault is None:
            failed.remove(version)
        else:
            _say(f"{version} is not there: {fault}")
    for version in asked.versions:
        if _present(version, folder):
            print(f"{version}\t{clients.program(version, folder)}")
            _warn(version, folder)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/realclient",
        description="Fetch the real clients that tests/realclient runs.",
        epilog="Example: scripts/realclient --into /tmp/clients 2.1.332",
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(clients.VERSIONS))
    parser.add_argument("--into", default=str(clients.default_folder()), metavar="FOLDER")
    return parser.parse_args()


def _present(version: str, folder: Path) -> bool:
    """Whether that very version is there, whole."""
    about = clients.modules(version, folder) / "claude-code" / "package.json"
    try:
        said = json.loads(about.read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError):
        return False
    return said == version and clients.program(version, folder) is not None


def _fetch(version: str, folder: Path) -> str | None:
    """Install one version; what is wrong, or None."""
    place = folder / version
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        return f"{place} cannot be made: {fault.strerror}"
    command = ["npm", "install", "--prefix", str(place), "--ignore-scripts", "--no-audit"]
    command += ["--no-fund", "--fetch-retries=1", "--save-exact", f"{clients.PACKAGE}@{version}"]
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"npm did not end within {PATIENCE_S} s; is the network there?"
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-LAST_LINES:])
        if "ETARGET" in said or "E404" in said:
            return f"npm knows no such version\n{said}"
        return f"npm failed; is the network there?\n{said}"
    if not _present(version, folder):
        return f"npm put no client for this platform into {place}"
    return None


def _warn(version: str, folder: Path) -> None:
    """Say what the tests will still miss."""
    reason = clients.cannot_run_version(version, folder)
    if reason is not None:
        _say(f"{version} is there, but the tests will skip it: {reason}")
    elif folder != clients.default_folder():
        _say(f"The tests find {version} with: FABLED_REALCLIENT={folder}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

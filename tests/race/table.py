"""The table that scripts/race prints: every writer, with and without kills and leases."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.race.experiment import experiment, interpreter
from tests.race.writers import STYLES

COLUMNS = (
    "style", "kills", "replaced", "deferred", "wrote", "lost", "torn", "twice", "reordered",
    "closed_ms", "slowest_ms",
)  # fmt: skip


def runs():
    """What is run, in order."""
    for style in STYLES:
        yield "leases", style, {}
    for style in ("oac", "held"):
        yield "leases, killed", style, {"kills": True}
    if os.geteuid() == 0 and interpreter(65534) is not None:
        yield "leases, uid 65534", "oac", {"uid": 65534}
    for style in ("oac", "oacgap", "held"):
        yield "portable", style, {"portable": True}


def main(seconds):
    """Run everything; exit 1 if a record was lost."""
    print(f"{'how':18}" + "".join(f"{name:>11}" for name in COLUMNS), flush=True)
    lost = 0
    for how, style, more in runs():
        folder = tempfile.mkdtemp(prefix="race-")
        Path(folder).chmod(0o755)
        try:
            found = experiment(Path(folder) / "x", style, seconds, **more)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        lost += found["lost"]
        cells = [found.get(name, 0) for name in COLUMNS]
        shown = [round(cell, 1) if isinstance(cell, float) else cell for cell in cells]
        print(f"{how:18}" + "".join(f"{cell:>11}" for cell in shown), flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

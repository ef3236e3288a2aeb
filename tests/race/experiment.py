"""Writers against a pruner, with and without SIGKILLs; what was lost, torn or reordered."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.race.pruner import Pruner
from tests.race.writers import size_of

HERE = Path(__file__).parent
TOP = HERE.parent.parent
KILL_S = (0.3, 0.9)


def interpreter(uid):
    """A Python that this user may run, and the path it needs; None when there is none."""
    for program in (sys.executable, "/usr/bin/python3"):
        command = [program, "-c", "import msgspec, fabled"]
        done = (
            subprocess.run(
                command, user=uid or None, env=_environment("/"), capture_output=True, check=False
            )
            if _may_run(program, uid)
            else None
        )
        if done is not None and done.returncode == 0:
            return program
    return None


def _may_run(program, uid):
    try:
        subprocess.run([program, "-c", ""], user=uid or None, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _environment(folder):
    packages = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join([str(TOP), *packages])
    return {**os.environ, "HOME": str(folder), "PYTHONPATH": path}


def _start(folder, uid, *command):
    return subprocess.Popen(
        [interpreter(uid) or sys.executable, *map(str, command)],
        user=uid or None,
        group=uid or None,
        extra_groups=[] if uid else None,
        env=_environment(folder),
        cwd="/",
    )


def experiment(folder, style, seconds, *, kills=False, uid=0, writers=2, portable=False):
    """Run it; the counts as a dict. Nothing outside the folder is touched."""
    folder = Path(folder)
    live = folder / "projects" / "p" / "live.jsonl"
    live.parent.mkdir(parents=True)
    if uid:
        for path in (folder, folder / "projects", live.parent):
            os.chown(path, uid, uid)
    started = [
        _start(folder, uid, HERE / "writers.py", live, n, style, seconds, folder / f"w{n}")
        for n in range(writers)
    ]
    while not live.exists():
        time.sleep(0.01)
    rng, killed, runs = random.Random(7), 0, 0
    totals: dict[str, float] = {}
    end = time.monotonic() + seconds + 0.5
    while time.monotonic() < end:
        out = folder / f"p{runs}"
        more = ["portable"] if portable else []
        pruner = _start(
            folder, uid, "-m", "tests.race.pruner", folder, end - time.monotonic(), out, *more
        )
        if kills:
            time.sleep(rng.uniform(*KILL_S))
            pruner.kill()
            killed += 1
        pruner.wait()
        _add(totals, out)
        runs += 1
    for writer in started:
        writer.wait()
    last = Pruner(folder, portable=portable)
    last.recover()
    last.follower.close()
    last.recover()
    return {"style": style, "kills": killed, **totals, **_judge(folder, live, writers)}


def _add(totals, out):
    try:
        counts = json.loads(out.read_text())
    except (OSError, ValueError):
        return
    for key, value in counts.items():
        most = max(totals.get(key, 0), value)
        totals[key] = most if key == "closed_ms" else totals.get(key, 0) + value


def _judge(folder, live, writers):
    seen, torn, order, twice = set(), 0, 0, 0
    sealed = sorted((folder / "vault").rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    for path in [*sealed, live]:
        last: dict[int, int] = {}
        here = set()
        for line in path.read_bytes().splitlines():
            try:
                value = json.loads(line)
                key = (value["a"], value["n"])
            except (ValueError, KeyError):
                torn += path == live or path.name.startswith("v0")
                continue
            if path == live:
                twice += key in here
                order += key not in here and key[1] < last.get(key[0], -1)
            here.add(key)
            last[key[0]] = max(key[1], last.get(key[0], -1))
            seen.add(key)
    wrote = lost = lost_bytes = 0
    slowest = 0.0
    for number in range(writers):
        said = json.loads((folder / f"w{number}").read_text())
        wrote += said["n"]
        slowest = max(slowest, said["slowest"])
        missing = [n for n in range(said["n"]) if (number, n) not in seen]
        lost += len(missing)
        lost_bytes += sum(map(size_of, missing))
    return {
        "wrote": wrote,
        "lost": lost,
        "lost_bytes": lost_bytes,
        "torn": torn,
        "twice": twice,
        "reordered": order,
        "slowest_ms": round(slowest * 1000, 1),
    }

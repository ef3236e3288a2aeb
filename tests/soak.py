"""The soak behind scripts/soak: see there. Everything it makes is in a temporary folder."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from http import HTTPStatus
from pathlib import Path

from tests.support.daemons import Daemon
from tests.support.transcripts import line, prompt, reply, tool_call, tool_result, uid

PROJECTS, SESSIONS = 20, 15
CONFIG = """
[archive]
quiet = 2
[prune]
quiet = 2
min_bytes = 30000
min_gain = 0.05
[index]
reconcile = 5
"""
SAMPLE_S, DISTURB_S, SEARCHABLE_S = 5.0, 20.0, 60.0
FULL_BYTES = 256 << 20


class World:
    """The transcripts, and everything that was ever completely written into them."""

    def __init__(self, root, rng):
        self.root = Path(root)
        self.rng = rng
        self.number = 0
        self.longest: dict[str, bytes] = {}
        self.latest: dict[Path, tuple[str, str]] = {}
        self.counts = dict.fromkeys(("appends", "rewrites", "deletions", "queries"), 0)
        for project in range(PROJECTS):
            for session in range(SESSIONS):
                self.append(self.root / f"-p{project}" / f"s{project}x{session}.jsonl")

    def append(self, path):
        """One exchange more: a prompt with a word of its own, a tool call and its answer."""
        self.number += 1
        n, word = f"{self.number:06x}", f"marker{self.number}"
        bulk = self.rng.randrange(200, 4000)
        records = [
            prompt(n + "a", None, f"{word} please"),
            tool_call(n + "b", n + "a", f"toolu_{n}", "make check"),
            tool_result(n + "c", n + "b", f"toolu_{n}", "x" * bulk, result={"stdout": "x" * bulk}),
            line({"type": "api-request-blob", "id": n, "data": "y" * bulk}),
            reply(n + "d", n + "c", f"done {word}"),
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"".join(records))
        for record, name in zip(records, ("a", "b", "c", "", "d"), strict=True):
            if name:
                self.longest[uid(n + name)] = record.rstrip(b"\n")
        self.latest[path] = (word, uid(n + "a"))
        self.counts["appends"] += 1

    def step(self):
        """Something that a client, or somebody, does."""
        path = self.rng.choice(list(self.latest))
        what = self.rng.random()
        if what < 0.97 or not path.exists():
            self.append(path)
        elif what < 0.985:
            data = path.read_bytes()
            fresh = path.with_suffix(".tmp")
            fresh.write_bytes(data)
            fresh.replace(path)
            self.counts["rewrites"] += 1
        else:
            self._delete(path)

    def _delete(self, path):
        """As the client's cleanup does, but only what is sealed: the rest would be lost for all."""
        sealed = self.sealed(path)
        if sealed:
            path.unlink()
            self.counts["deletions"] += 1

    sealed = staticmethod(lambda _path: False)


class Soak:
    """One run."""

    def __init__(self, folder, minutes):
        self.folder = Path(folder)
        self.rng = random.Random(7)
        self.end = time.monotonic() + minutes * 60
        self.root = self.folder / "projects"
        self.config = self.folder / "config.toml"
        self.config.write_text(CONFIG)
        self.world = World(self.root, self.rng)
        self.world.sealed = self._sealed
        self.samples: list[tuple[float, int, int, int]] = []
        self.disturbed: dict[str, int] = {}
        self.slowest = 0.0
        self.daemon = self._start()

    def _start(self):
        return Daemon(self.folder / "run", self.root, FABLED_CONFIG=str(self.config))

    def _sealed(self, path):
        """Whether the Vault has the file to its last byte, as the daemon says."""
        reply_ = self.daemon.get(f"/v1/sessions/{path.stem}")
        if reply_.status != HTTPStatus.OK:
            return False
        session = reply_.json()["session"]
        size = path.stat().st_size
        return session["unsealed_bytes"] == 0 and session["sealed_bytes"] >= size

    def run(self):
        """Until the time is over; the figures."""
        sampled = disturbed = time.monotonic()
        kinds = [self._stopped, self._killed, self._overflowed, self._full, self._bursts]
        while time.monotonic() < self.end:
            self.world.step()
            if self.rng.random() < 0.05:
                self._query()
            now = time.monotonic()
            if now - sampled > SAMPLE_S:
                sampled = now
                self._sample()
            if now - disturbed > DISTURB_S:
                disturbed = now
                kind = kinds[sum(self.disturbed.values()) % len(kinds)]
                kind()
                name = kind.__name__.strip("_")
                self.disturbed[name] = self.disturbed.get(name, 0) + 1
                self._all_searchable()
            time.sleep(self.rng.random() * 0.02)
        self._all_searchable()
        return self._figures()

    def _query(self):
        word, _ = self.world.latest[self.rng.choice(list(self.world.latest))]
        self.daemon.search(word, n=3)
        self.world.counts["queries"] += 1

    def _sample(self):
        pid = self.daemon.process.pid
        status = Path(f"/proc/{pid}/status").read_text()
        found = dict(row.split(":", 1) for row in status.splitlines() if ":" in row)
        rss, threads = int(found["VmRSS"].split()[0]) * 1024, int(found["Threads"])
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        self.samples.append((time.monotonic(), rss, threads, fds))

    # --- disturbances ---

    def _stopped(self):
        """SIGSTOP, a few seconds of appends, SIGCONT: a machine that slept."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            self.world.append(self.rng.choice(list(self.world.latest)))
            time.sleep(0.01)
        self.daemon.process.send_signal(signal.SIGCONT)

    def _killed(self):
        """SIGKILL in the middle of everything, appends while nobody looks, a new start."""
        self.daemon.kill()
        for _ in range(50):
            self.world.append(self.rng.choice(list(self.world.latest)))
        self.daemon = self._start()

    def _overflowed(self):
        """More events than the kernel's queue holds, while the daemon does not read them."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        noise = self.root / "-p0" / "noise.txt"
        for _ in range(20_000):
            noise.touch()
            noise.unlink()
        self.world.append(self.rng.choice(list(self.world.latest)))
        self.daemon.process.send_signal(signal.SIGCONT)

    def _full(self):
        """Its disk fills up while transcripts go on, and is free again after a while."""
        filler = self.folder / "run" / "home" / "filler"
        if not os.path.ismount(self.folder / "run"):
            return
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * (1 << 20))
                    file.flush()
            except OSError:
                pass
        for _ in range(40):
            self.world.append(self.rng.choice(list(self.world.latest)))
            time.sleep(0.05)
        filler.unlink()

    def _bursts(self):
        """Every transcript grows at once."""
        for path in list(self.world.latest):
            self.world.append(path)

    def _all_searchable(self):
        """The latest word of every transcript is found, each by its record."""
        began = time.monotonic()
        for path, (word, uuid) in list(self.world.latest.items()):
            while True:
                assert self.daemon.process.poll() is None, self.daemon.log.read_text()[-3000:]
                found = self.daemon.search(word, n=3, level="record")["results"]
                if any(one["records"][0]["uuid"] == uuid for one in found):
                    break
                late = time.monotonic() - began
                assert late < SEARCHABLE_S, f"{word} of {path} is not found after {late:.0f} s"
                time.sleep(0.05)
        self.slowest = max(self.slowest, time.monotonic() - began)

    # --- the end ---

    def _figures(self):
        self.daemon.index()
        status = self.daemon.status()
        lost = [uuid for uuid, raw in self.world.longest.items() if not self._is(uuid, raw)]
        verify = json.loads(self.daemon.client("vault", "verify", "--json").stdout or b"{}")
        kinds = self._errors()
        self.daemon.stop()
        return {
            **self.world.counts,
            "records": len(self.world.longest),
            "lost": len(lost),
            "disturbances": self.disturbed,
            "slowest_until_all_searchable_s": round(self.slowest, 1),
            "prunes": status["prune"]["count"],
            "generations": status["vault"]["generations"],
            "damaged": verify.get("damaged"),
            "errors_logged": kinds,
            **self._flatness(),
        }

    def _errors(self):
        """What kinds of error were logged; the log is on the disk that was full, and lost lines."""
        kinds = set()
        for row in self.daemon.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                said = json.loads(row)
                if said.get("level") == "error":
                    kinds.add(str(said.get("event")))
        return sorted(kinds)

    def _is(self, uuid, raw):
        reply_ = self.daemon.block(uuid)
        return reply_.status == HTTPStatus.OK and reply_.body == raw

    def _flatness(self):
        """Medians of the second and of the last quarter of the time."""
        count = len(self.samples)
        early, late = self.samples[count // 4 : count // 2], self.samples[-(count // 4) or -1 :]

        def middle(rows, at):
            return sorted(row[at] for row in rows)[len(rows) // 2] if rows else 0

        return {
            "rss_mb": [round(middle(rows, 1) / 1e6, 1) for rows in (early, late)],
            "rss_mb_most": round(max((row[1] for row in self.samples), default=0) / 1e6, 1),
            "threads": [middle(rows, 2) for rows in (early, late)],
            "descriptors": [middle(rows, 3) for rows in (early, late)],
        }


def main(minutes):
    """Run it; the exit status is 1 when something was lost or damaged."""
    with tempfile.TemporaryDirectory(prefix="fabled-soak-") as folder:
        run = Path(folder) / "run"
        run.mkdir()
        small = os.geteuid() == 0 and shutil.which("mount")
        mounted = (
            small
            and not subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "soak", str(run)], check=False
            ).returncode
        )
        try:
            figures = Soak(folder, minutes).run()
        finally:
            if mounted:
                subprocess.run(["umount", "-l", str(run)], check=False)
    print(json.dumps(figures, indent=1))
    return 1 if figures["lost"] or figures["damaged"] else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

"""A process that replaces one live file as fast as it can, through the product's own door.

    pruner.py FOLDER SECONDS OUT [portable]

It seals the snapshot into a Vault, keeps the newest lines and drops the rest: the protocol
is the prune's, the decision a simple one. OUT gets its counts.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from fabled.errors import FabledError, FileBusy, FileChanged
from fabled.prune.apply import about
from fabled.prune.door import Door
from fabled.prune.following import Follower
from fabled.prune.orders import Order, snapshot
from fabled.prune.recovery import recover, sealed
from fabled.system import System, real
from fabled.system.files import PosixFiles
from fabled.system.opened import PosixNewFile
from fabled.vault.store import Vault
from fabled.vault.values import Origin

KEEP = 150


class NoLeaseFile(PosixNewFile):
    """On a file system that knows no leases."""

    __slots__ = ()

    def knows_leases(self):
        return False


class NoLeases(PosixFiles):
    """A file system that knows no leases."""

    def leases(self, folder):
        return False

    def create(self, target, *, mode=0o600, label=None):
        made = super().create(target, mode=mode, label=label)
        return NoLeaseFile(made.path, made.fd, made._effects, made._about)


class Pruner:
    """Replaces `FOLDER/projects/p/live.jsonl`."""

    def __init__(self, folder, *, portable=False):
        there = real()
        there.processes.settle_in()
        files = NoLeases() if portable else PosixFiles()
        self.system = System(files, there.clock, there.processes)
        self.folder = Path(folder)
        self.origin = Origin(str(self.folder / "projects"), "p/live.jsonl")
        self.vault = Vault(files, there.clock, str(self.folder / "vault"), "none")
        self.pending = str(self.folder / "pending")
        self.follower = Follower(self.system)
        self.door = Door(self.system, self.pending, self.follower)
        self.counts = {"replaced": 0, "deferred": 0, "late": 0, "tail": 0, "recovered": 0}
        self.closed = 0.0

    def recover(self):
        for found in recover(self.system, self.pending, self.follower, sealed(self.vault)):
            self.counts["recovered"] += found.carried > 0

    def once(self):
        files = self.system.files
        live = files.open_live(self.origin.live)
        shot = snapshot(live, self.origin.live)
        if not live.lease():  # as the eligibility check does: no work while somebody writes
            live.close()
            self.counts["deferred"] += 1
            time.sleep(0.002)
            return
        live.unlease()
        lines = live.pread(0, shot.size).splitlines(keepends=True)
        kept = b"".join(lines[-KEEP:])
        kept_whole = self.vault.seal(self.origin, live, shot.size, "before a prune")
        order = Order(
            pieces=iter([kept]),
            length=len(kept),
            examine=lambda _new: None,
            tail_fits=lambda _tail: True,
            before=lambda _new: None,
            original=lambda: self.vault.image(kept_whole),
            note=about(self.origin, kept_whole),
        )
        try:
            done = self.door.replace(live, shot, order)
        except (FileBusy, FileChanged):
            self.counts["deferred"] += 1
            return
        self.counts["replaced"] += 1
        self.counts["late"] += done.late
        self.counts["tail"] += done.tail
        self.closed = max(self.closed, done.closed_s)

    def run(self, seconds, out):
        end = time.monotonic() + seconds
        self.recover()
        while time.monotonic() < end:
            try:
                self.once()
                self.follower.look()
                self.counts["followed"] = self.follower.late_bytes
            except FabledError as fault:
                if fault.code != "not_found":
                    raise
            Path(out).write_text(json.dumps({**self.counts, "closed_ms": self.closed * 1000}))
            time.sleep(0.001)


if __name__ == "__main__":
    Pruner(sys.argv[1], portable=sys.argv[4:] == ["portable"]).run(float(sys.argv[2]), sys.argv[3])

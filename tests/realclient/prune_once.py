"""Prune one transcript through the product's own protocol, whoever is writing to it.

    prune_once.py [--home FOLDER] [--level LEVEL] PATH     one prune; its end is a restart
    prune_once.py --loop ...                               until standard input ends

What the daemon asks before (is it quiet, is its client at work) is left out; everything from
the snapshot on is the product: backup, gate, check, door, follower, recovery. In a loop, what
was pruned is taken back when there is nothing more to gain, so that there always is
something to replace. Prints its counts as a line of JSON, in a loop after each change.

As a pruner for race_replace.py:  --command 'python3 prune_once.py --home FOLDER {path}'
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from fabled.errors import FabledError, NothingToGain
from fabled.map import fidelity
from fabled.prune import apply
from fabled.prune.door import Door
from fabled.prune.following import Follower
from fabled.prune.recovery import recover, sealed, verdict
from fabled.prune.values import LEVELS, Options
from fabled.system import real
from fabled.vault.store import Vault
from fabled.vault.values import Origin
from tests.support.maps import KEY, Library

PAUSE_S = 0.001


class Hand:
    """Prunes and takes back one live file; everything of its own lies in `home`."""

    def __init__(self, path, home, level):
        self.system = real()
        self.system.processes.settle_in()
        home.mkdir(parents=True, exist_ok=True)
        root = path.parent.parent
        self.origin = Origin(str(root), f"{path.parent.name}/{path.name}")
        self.options = Options(level, "resume", 1, KEY)
        self.vault = Vault(self.system.files, self.system.clock, str(home / "vault"), "none")
        self.library = Library(home, root, self.vault)
        self.follower = Follower(self.system)
        self.pending = str(home / "pending")
        door = Door(self.system, self.pending, self.follower)
        self.bench = apply.Bench(self.system, self.vault, door, self._indexed, lambda _path: None)
        self.counts: Counter[str] = Counter()
        self.longest_s = 0.0
        self._undone: set[int] = set()

    def _indexed(self, generation):
        strand: Any = self.vault.catalogue.strand_of(generation)
        self.library.index(strand.path)
        with self.library.snapshots.snapshot() as snapshot:
            return fidelity.spots(snapshot, strand.path)

    def put_right(self):
        """What a daemon does when it starts."""
        for found in recover(self.system, self.pending, self.follower, sealed(self.vault)):
            self.counts["recovered"] += found.carried > 0
            seen = verdict(self.system.files, found, self._lineage())
            if seen is not None and not seen.happened:
                self.vault.discard(seen.generation)

    def prune(self):
        """One prune, counted; what refuses it is counted too. False: nothing to gain."""
        try:
            done = apply.prune(
                self.bench, self.origin, apply.Wish(self.options), self.system.clock.now_ms()
            )
        except NothingToGain:
            return False
        except FabledError as fault:
            self._refused(fault)
        else:
            self._count("pruned", done.replaced.closed_s, done.replaced.tail, done.replaced.late)
        return True

    def undo(self):
        """Take back the last prune that was not yet taken back, if there is one."""
        try:
            done = apply.undo(self.bench, self.origin, self._lineage(), self._undone)
        except FabledError as fault:
            self._refused(fault)
        else:
            self._undone.add(done.generation.card.number)
            self.counts["undone"] += 1

    def _refused(self, fault):
        self.counts[fault.code] += 1
        print(f"{fault.code}: {fault.message}", file=sys.stderr, flush=True)

    def _lineage(self):
        return self.vault.catalogue.lineage(self.origin)

    def _count(self, what, closed_s, tail, late):
        self.counts[what] += 1
        self.counts["tails"] += tail > 0
        self.counts["lates"] += late > 0
        self.longest_s = max(self.longest_s, closed_s)

    def loop(self, enough):
        """Until it is enough, and as fast as it goes."""
        pause = threading.Event()
        while not enough.is_set():
            if not self.prune():
                self.undo()
            self.follower.look()
            self.say()
            pause.wait(PAUSE_S)

    def say(self):
        """Print the counts."""
        counts = {**self.counts, "followed": self.follower.late_bytes}
        print(json.dumps({**counts, "longest_ms": round(self.longest_s * 1000, 2)}), flush=True)

    def close(self):
        """Follow what is followed no more: what is left is for the next start."""
        self.follower.close()
        self.library.close()


def main():
    """Once, or until standard input ends."""
    asked = _arguments()
    path = Path(asked.path).absolute()
    home = Path(asked.home) if asked.home else path.parent.parent.parent / "prune-once"
    hand = Hand(path, home, asked.level)
    hand.put_right()
    if asked.loop:
        enough = threading.Event()
        threading.Thread(target=_until_input_ends, args=(enough,), daemon=True).start()
        hand.loop(enough)
    elif not asked.recover:
        hand.prune()
    hand.say()
    hand.close()


def _until_input_ends(enough):
    sys.stdin.read()
    enough.set()


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="PATH")
    parser.add_argument("--home", metavar="FOLDER", help="else beside the projects folder")
    parser.add_argument("--level", choices=LEVELS, default="transparent")
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--recover", action="store_true", help="only what a start does")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""What sealing, reading back and pruning cost; every figure beside a reference of the same run.

The transcript is made here: real-looking records of which most bytes are tool results, base64
and their second copies, 80 MB unless --mb says otherwise.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fabled.prune.check import problems
from fabled.prune.image import pieces
from fabled.prune.plan import plan
from fabled.prune.values import Options, Plan
from fabled.system import real
from fabled.vault.store import Vault
from fabled.vault.values import Origin

GROWTH = 1_000_000
READS = 2000
WORDS = ["the", "of", "to", "and", "in", "is", "that", "for", "it", "was", "on", "wombat", "lease"]


def line(value: dict[str, object]) -> bytes:
    """One record as the client writes it."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def records(size: int, seed: int) -> list[bytes]:
    """Lines of a session, together at least `size` bytes."""
    rng = random.Random(seed)
    found: list[bytes] = []
    total, parent = 0, None
    while total < size:
        number = len(found)
        uuid = f"{rng.getrandbits(128):032x}"
        uuid = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
        text = " ".join(rng.choices(WORDS, k=rng.randrange(20, 400)))
        if number % 9 == 0:
            text += base64.b64encode(rng.randbytes(rng.randrange(200, 9000))).decode()
        kind = "user" if number % 2 == 0 else "assistant"
        content: object = text
        more: dict[str, object] = {}
        if number % 4 == 2:
            content = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}]
            more = {"toolUseResult": {"stdout": text}}
        record = {"parentUuid": parent, "type": kind, "message": {"role": kind, "content": content}}
        found.append(line({**record, **more, "uuid": uuid, "timestamp": "2026-01-01T00:00:00Z"}))
        total += len(found[-1])
        parent = uuid
    return found


def timed(work: object, times: int = 1) -> float:
    """Seconds of the fastest of some runs."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()  # type: ignore[operator]
        best = min(best, time.perf_counter() - began)
    return best


def measure(megabytes: int) -> dict[str, float]:
    """Every figure, by name; seconds, bytes, milliseconds and ratios as the name says."""
    system = real()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        root = Path(scratch) / "projects"
        path = root / "p" / "s.jsonl"
        path.parent.mkdir(parents=True)
        lines = records(megabytes * 1_000_000, 1)
        path.write_bytes(b"".join(lines))
        size = path.stat().st_size
        vault = Vault(system.files, system.clock, f"{scratch}/vault", "zstd")
        origin = Origin(str(root), "p/s.jsonl")

        def seal() -> object:
            with system.files.open_read(origin.live) as handle:
                return vault.seal(origin, handle, handle.stat().size, "bench")

        copy = timed(lambda: (Path(scratch) / "copy").write_bytes(path.read_bytes()))
        found["transcript bytes"] = size
        found["copy s"] = copy
        found["seal s"] = timed(seal)
        found["seal / copy"] = found["seal s"] / copy
        generation = vault.catalogue.lineage(origin)[-1]
        found["stored / raw"] = generation.card.stored / size
        found |= _reads(vault, generation, lines, path)
        with path.open("ab") as handle:
            handle.write(b"".join(records(GROWTH, 2)))
        found["second seal s"] = timed(seal)
        tail = vault.catalogue.lineage(origin)[-1]
        found["second seal bytes"] = tail.card.stored
        found["second seal bytes / growth"] = tail.card.stored / tail.card.size
        found |= _prune(path)
    return found


def _reads(vault: Vault, generation: object, lines: list[bytes], path: Path) -> dict[str, float]:
    starts, at = [], 0
    for one in lines:
        starts.append(at)
        at += len(one)
    chosen = random.Random(3).sample(range(len(lines)), min(READS, len(lines)))
    spent, plain = [], []
    fd = os.open(path, os.O_RDONLY)
    with vault.image(generation) as image:  # type: ignore[arg-type]
        for number in chosen:
            began = time.perf_counter()
            data = image.pread(starts[number], len(lines[number]))
            spent.append(time.perf_counter() - began)
            began = time.perf_counter()
            same = os.pread(fd, len(lines[number]), starts[number])
            plain.append(time.perf_counter() - began)
            assert data == same
    os.close(fd)
    ranked = sorted(spent)
    return {
        "record read p50 ms": statistics.median(spent) * 1000,
        "record read p95 ms": ranked[int(len(ranked) * 0.95)] * 1000,
        "record read p50 / plain": statistics.median(spent) / statistics.median(plain),
    }


def _prune(path: Path) -> dict[str, float]:
    options = Options("transparent", "resume", 3, b"k" * 32)
    with real().files.open_read(str(path)) as handle:
        size = handle.stat().size
        began = time.perf_counter()
        decided = plan(handle, size, "s", options)
        decision = time.perf_counter() - began
        assert isinstance(decided, Plan), decided
        image = b"".join(pieces(handle, decided))

        class Image:
            """The new image as a source."""

            def pread(self, offset: int, length: int) -> bytes:
                """A range of it."""
                return image[offset : offset + length]

        began = time.perf_counter()
        assert problems(handle, size, Image(), len(image), "s", options) == []
        check = time.perf_counter() - began
        began = time.perf_counter()
        hashed = hashlib.sha256()
        for at in range(0, size, 1 << 20):
            hashed.update(handle.pread(at, 1 << 20))
        whole = time.perf_counter() - began
    return {
        "prune plan s": decision,
        "prune check s": check,
        "prune plan / sha256": decision / whole,
        "pruned / raw": len(image) / size,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=80, help="size of the transcript")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    found = measure(asked.mb)
    if asked.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        print(f"{name:28}{value:>16,.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fixture sessions of every client, and what the prune makes of them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, NamedTuple

from fabled.prune.image import pieces
from fabled.prune.plan import plan
from fabled.prune.values import Decline, Options
from tests.realclient import clients
from tests.realclient.running import REALCLIENT
from tests.support.pruning import Bytes

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 32
KINDS = {
    "transparent": Options("transparent", "resume", 3, KEY),
    "lean": Options("lean", "resume", 3, KEY),
    "lean-all": Options("lean", "resume", 0, KEY),
    "extract": Options("transparent", "extract", 3, KEY),
}
"""Ways to prune. `lean-all` protects no prompt, so that its rules have something to do."""
PLACES = ("projects/*/*.jsonl", "extra/*.jsonl")


class Fixture(NamedTuple):
    """A transcript that a client wrote, and the id it was made under."""

    version: str
    session: str
    path: Path

    def __str__(self):
        return f"{self.path.relative_to(REALCLIENT / 'fixtures').parts[0]}-{self.path.stem[:16]}"


def fixtures(version):
    """The sessions that a client left: whole ones, and some that it was killed in."""
    tops = [REALCLIENT / "fixtures" / folder for folder in clients.FIXTURES[version]]
    paths = [path for top in tops for kind in PLACES for path in sorted(top.glob(kind))]
    return [
        Fixture(version, _session(path), path)
        for path in paths
        if not path.name.startswith("agent-") and path.stat().st_size > 1
    ]


def _session(path):
    if path.parent.name != "extra":
        return path.stem
    first = json.loads(path.read_bytes().split(b"\n")[0])
    return first["sessionId"]


def put(path, folder, session):
    """A copy of a transcript and what belongs to it, under the name of its session."""
    folder.mkdir(parents=True)
    copy = folder / f"{session}.jsonl"
    shutil.copyfile(path, copy)
    if path.with_suffix("").is_dir():
        shutil.copytree(path.with_suffix(""), folder / session)
    return copy


def pruned(original, folder, options):
    """The image of a transcript at `folder`, beside a copy of its sidecars; or the Decline."""
    data = original.read_bytes()
    size = data.rfind(b"\n") + 1
    decided = plan(Bytes(data), size, original.stem, options)
    if isinstance(decided, Decline):
        return decided
    copy = put(original, folder, original.stem)
    copy.write_bytes(b"".join(pieces(Bytes(data), decided)) + data[size:])
    return copy

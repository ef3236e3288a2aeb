"""The daemon on measured transcripts: every record comes back byte for byte."""

from __future__ import annotations

import shutil

import pytest

from tests.support.daemons import Daemon
from tests.support.oracle import longest_copies, transcripts

FOLDERS = [
    "corpus",
    "realclient/fixtures/2.0.77",
    "realclient/fixtures/2.1.112",
    "realclient/fixtures/2.1.332",
    "realclient/fixtures/2.1.332-tui",
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_uuids_block_equals_its_longest_copy(shared, tmp_path, folder):
    """Longest copy wins, ties to the first; a second pass over unchanged files reads nothing."""
    root = tmp_path / "projects"
    shutil.copytree(shared / folder / "projects", root)
    expected = longest_copies(transcripts(root))
    assert expected
    with Daemon(tmp_path / "daemon", root) as daemon:
        first = daemon.index()
        assert first["step"] == "done"
        assert daemon.status()["warnings"] == []
        wrong = [name for name, raw in expected.items() if daemon.block(name).body != raw]
        assert wrong == []
        again = daemon.index()
        assert (again["files"], again["bytes"], again["records"]) == (0, 0, 0)

"""The daemon on measured transcripts: every record comes back byte for byte."""

from __future__ import annotations

import shutil

import pytest

from tests.conftest import ROOT, SHARED
from tests.support.daemons import Daemon
from tests.support.oracle import longest_copies, transcripts

MEASURED = [
    "corpus/projects",
    "realclient/fixtures/2.0.77/projects",
    "realclient/fixtures/2.1.112/projects",
    "realclient/fixtures/2.1.332/projects",
    "realclient/fixtures/2.1.332-tui/projects",
]
FOLDERS = [
    pytest.param(ROOT / "scripts" / "sample", id="sample"),
    pytest.param(ROOT / "tests" / "data" / "oddities", id="oddities"),
    *(pytest.param(SHARED / folder, id=folder) for folder in MEASURED),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_uuids_block_equals_its_longest_copy(tmp_path, folder):
    """Longest copy wins, ties to the first; a second pass over unchanged files reads nothing."""
    root = tmp_path / "projects"
    if not folder.is_dir():
        pytest.skip("needs the measured transcripts in ../shared")
    shutil.copytree(folder, root)
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

"""A scripted daemon where the client looks for one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.support.stub_daemon import stubbed


@pytest.fixture
def socket_path(monkeypatch):
    """Where the client looks; nothing is there. Short, whatever pytest calls its folders."""
    with tempfile.TemporaryDirectory(prefix="fc-") as folder:
        path = Path(folder) / "s"
        monkeypatch.setenv("FABLED_SOCKET", str(path))
        yield path


@pytest.fixture
def stub(socket_path):
    """A daemon that answers what the test tells it to."""
    with stubbed(socket_path) as running:
        yield running

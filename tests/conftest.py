"""Fixtures that several packages' tests share. No test ever sees the user's own folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

settings.register_profile(
    "fabled", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("fabled")


@pytest.fixture(autouse=True)
def scratch_home(tmp_path_factory, monkeypatch):
    """Every test and every process it starts has a home of its own."""
    home = tmp_path_factory.mktemp("user")
    for name in ("FABLED_CONFIG", "FABLED_SOCKET", "FABLED_PROJECTS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    monkeypatch.setenv("FABLED_HOME", str(home / "fabled"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    return home


@pytest.fixture(scope="session")
def shared():
    """The measured corpora beside the project; tests that need them skip without."""
    if not SHARED.is_dir():
        pytest.skip("needs the corpora in ../shared, which are not part of the project")
    return SHARED

"""Replacing a live file under writers who know nothing of it: no record is lost."""

from __future__ import annotations

import os

import pytest

from tests.race.experiment import experiment, interpreter
from tests.race.writers import STYLES
from tests.support.folders import let_others_in

pytestmark = pytest.mark.timeout(120)
SECONDS = 2.5


@pytest.mark.parametrize("style", STYLES)
def test_leases_lose_tear_and_reorder_nothing(tmp_path, style):
    """Whatever the writers do: every acknowledged record is there once, in order."""
    found = experiment(tmp_path / "x", style, SECONDS)
    assert (found["lost"], found["torn"], found["twice"], found["reordered"]) == (0, 0, 0, 0)
    assert found["replaced"] >= 5
    assert found["wrote"] > 100
    print(found)


@pytest.mark.parametrize("style", ["oac", "held"])
def test_pruner_killed_again_and_again_loses_nothing(tmp_path, style):
    """SIGKILL at random moments: recovery carries over what was late."""
    found = experiment(tmp_path / "x", style, SECONDS, kills=True)
    assert found["lost"] == 0
    assert found["kills"] >= 2
    print(found)


def test_unprivileged_owner_loses_nothing(tmp_path):
    """Leases are granted to the owner of a file: no root is needed."""
    if os.geteuid() != 0:
        pytest.skip("this process is unprivileged already: the other tests show it")
    if interpreter(65534) is None:
        pytest.skip("no Python here that an unprivileged user may run")
    let_others_in(tmp_path)
    found = experiment(tmp_path / "x", "oac", SECONDS, uid=65534)
    assert (found["lost"], found["torn"], found["reordered"]) == (0, 0, 0)
    assert found["replaced"] >= 5


@pytest.mark.parametrize("style", ["oac", "held", "oacgap"])
def test_following_without_leases_loses_nothing(tmp_path, style):
    """The portable variant: late lines are carried over; a slow writer's may be reordered."""
    found = experiment(tmp_path / "x", style, SECONDS, portable=True)
    assert (found["lost"], found["torn"]) == (0, 0)
    assert found["replaced"] >= 5

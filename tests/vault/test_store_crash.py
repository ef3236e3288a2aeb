"""Sealing on a disk that dies: before or after, never between."""

from __future__ import annotations

from fabled.vault import retention
from fabled.vault.verify import verify
from tests.support.crash import Sweep
from tests.support.vaults import Shelter

MAIN = "-p/s1.jsonl"
FIRST = b"first line\n" * 40
MORE = b"second\n" * 30


def _prepare(folder):
    shelter = Shelter(folder)
    shelter.write(MAIN, FIRST)
    return shelter


def _prepare_sealed(folder):
    shelter = _prepare(folder)
    shelter.seal(MAIN)
    shelter.append(MAIN, MORE)
    return shelter


def _act(folder, system, _prepared):
    Shelter(folder, system=system).seal(MAIN)


def _look(folder, expected, finished, least):
    shelter = Shelter(folder)
    retention.sweep(shelter.vault, shelter.system.files, shelter.system.clock)
    folders = shelter.vault.catalogue.everything()
    assert not [t for found in folders for t in found.troubles]
    lineage = shelter.lineage(MAIN)
    assert len(lineage) >= (len(expected) if finished else least)
    for generation, data in zip(lineage, expected, strict=False):
        assert verify(shelter.system.files, shelter.vault, generation) == []
        assert shelter.bytes_of(generation) == data
    assert not [name for name in shelter.files() if ".fabled-" in name]
    shelter.seal(MAIN)
    assert shelter.bytes_of(shelter.lineage(MAIN)[-1]) == expected[-1]


def _check_first(folder, _prepared, finished):
    _look(folder, [FIRST], finished, 0)


def _check_tail(folder, _prepared, finished):
    _look(folder, [FIRST, FIRST + MORE], finished, 1)


def test_first_seal_dying_anywhere_leaves_nothing_or_a_whole_generation(tmp_path):
    """Every change of a first seal, four views of the disk each."""
    sweep = Sweep(tmp_path, _prepare, _act, _check_first)
    assert sweep.changes()[0] >= 15
    assert sweep.all() >= 60


def test_tail_seal_dying_anywhere_keeps_the_older_generation(tmp_path):
    """Every change of a second seal: the first stays, the second is whole or absent."""
    sweep = Sweep(tmp_path, _prepare_sealed, _act, _check_tail)
    assert sweep.changes()[0] >= 11
    assert sweep.all() >= 44


def test_leaving_out_any_one_sync_of_a_seal_is_noticed(tmp_path):
    """No sync is there for show: without any single one the sweep fails."""
    assert Sweep(tmp_path, _prepare, _act, _check_first).each_sync_matters() == []
    assert Sweep(tmp_path, _prepare_sealed, _act, _check_tail).each_sync_matters() == []

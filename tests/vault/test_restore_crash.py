"""Restore, forget and gc on a disk that dies: before or after, never between."""

from __future__ import annotations

import json

from fabled.map.store import digest
from fabled.transcript.identity import pack
from fabled.vault import forgetting, retention
from fabled.vault.journal import Journal, News
from fabled.vault.restore import restore
from fabled.vault.tombstones import Tombstones
from fabled.vault.verify import verify
from tests.support.crash import Sweep
from tests.support.transcripts import prompt, reply, uid
from tests.support.vaults import Shelter

MAIN = "-p/s1.jsonl"
TALK = prompt("a", None, "keep") + prompt("x", "a", "secret words") + reply("b", "x", "kept")
REST = prompt("a", None, "keep") + reply("b", "x", "kept")


def _sealed(folder):
    shelter = Shelter(folder)
    shelter.write(MAIN, TALK)
    shelter.seal(MAIN)
    return shelter


def _deleted(folder):
    shelter = _sealed(folder)
    (shelter.root / MAIN).unlink()
    (shelter.root / MAIN).parent.rmdir()
    return shelter


def _restore(folder, system, _prepared):
    shelter = Shelter(folder, system=system)
    target = str(shelter.root / MAIN)
    restore(shelter.vault, system.files, shelter.lineage(MAIN)[-1], target, keep_mtime=False)


def _check_restore(folder, _prepared, finished):
    shelter = Shelter(folder)
    path = shelter.root / MAIN
    if finished:
        assert path.exists()
    if path.exists():
        assert path.read_bytes() == TALK
    (generation,) = shelter.lineage(MAIN)
    restore(shelter.vault, shelter.system.files, generation, str(path), keep_mtime=False)
    assert path.read_bytes() == TALK


def test_restore_dying_anywhere_leaves_nothing_or_the_whole_file(tmp_path):
    """A transcript has its name only when it is complete, in every view of the disk."""
    sweep = Sweep(tmp_path, _deleted, _restore, _check_restore)
    assert sweep.changes()[0] >= 9
    assert sweep.all() >= 36
    assert sweep.each_sync_matters() == []


class Noted:
    """The progress of a rewriting, in a file as the daemon has it."""

    label = "rewritten to forget 1"

    def __init__(self, shelter):
        self._files = shelter.system.files
        self._path = str(shelter.folder / "intent")

    @property
    def doomed(self):
        data = self._files.read_small(self._path, 4096)
        return None if data is None else json.loads(data)

    def mark(self, doomed):
        self._files.write_private(self._path, json.dumps(doomed).encode())


def _forget(folder, system, _prepared):
    shelter = Shelter(folder, system=system)
    stones = Tombstones(system.files, (str(folder / "home"), shelter.vault.root))
    stones.bury([], [pack(uid("x"))])
    forgetting.rewrite(shelter.vault, system.files, shelter.origin(MAIN), stones, Noted(shelter))


def _check_forget(folder, _prepared, finished):
    shelter = Shelter(folder)
    retention.sweep(shelter.vault, shelter.system.files, shelter.system.clock)
    stones = Tombstones(shelter.system.files, (str(folder / "home"), shelter.vault.root))
    lineage = shelter.lineage(MAIN)
    assert lineage, "the whole transcript is gone"
    for one in lineage:
        assert verify(shelter.system.files, shelter.vault, one) == []
        assert shelter.bytes_of(one) in (TALK, REST)
    if finished:
        assert [shelter.bytes_of(one) for one in lineage] == [REST]
        assert stones.record(pack(uid("x")), None)
    if stones:
        forgetting.rewrite(
            shelter.vault, shelter.system.files, shelter.origin(MAIN), stones, Noted(shelter)
        )
        assert [shelter.bytes_of(one) for one in shelter.lineage(MAIN)] == [REST]


def test_forget_dying_anywhere_keeps_the_rest_and_can_be_finished(tmp_path):
    """What is not forgotten is in a whole generation at every moment; doing it again ends it."""
    sweep = Sweep(tmp_path, _sealed, _forget, _check_forget)
    assert sweep.changes()[0] >= 20
    assert sweep.all() >= 80


MANY = (TALK, TALK + reply("m", "x", "more" * 20), prompt("q", None, "written anew") + TALK)
"""Three states: grown once, then written anew; the last one is the newest."""


def _many(folder):
    shelter = Shelter(folder)
    for data in MANY:
        shelter.write(MAIN, data)
        shelter.seal(MAIN)
    (shelter.root / MAIN).unlink()


def _check_order(folder, _prepared, _finished):
    shelter = Shelter(folder)
    retention.sweep(shelter.vault, shelter.system.files, shelter.system.clock)
    stones = Tombstones(shelter.system.files, (str(folder / "home"), shelter.vault.root))
    if not stones:
        return
    files, origin = shelter.system.files, shelter.origin(MAIN)
    forgetting.rewrite(shelter.vault, files, origin, stones, Noted(shelter))
    images = [shelter.bytes_of(one) for one in shelter.lineage(MAIN)]
    secret = prompt("x", "a", "secret words")
    assert images == [one.replace(secret, b"") for one in MANY[1:]]


def test_forget_dying_anywhere_leaves_the_newest_the_newest(tmp_path):
    """Several states of a transcript: each without what was forgotten, in the old order."""
    sweep = Sweep(tmp_path, _many, _forget, _check_order)
    assert sweep.changes()[0] >= 40
    assert sweep.all() >= 160


def test_forgotten_records_leave_other_bytes_of_their_line(tmp_path):
    """Two records on one line: only the forgotten one's bytes go; nameless ones by their bytes."""
    shelter = Shelter(tmp_path)
    nameless = b'{"type":"summary","summary":"secret"}'
    glued = prompt("k", None, "keep")[:-1] + nameless + b"\n"
    shelter.write(MAIN, b"\n" + glued + nameless + b"\r\n{damage\n")
    shelter.seal(MAIN)
    stones = Tombstones(shelter.system.files, (str(tmp_path / "home"),))
    stones.bury([], [digest(nameless)])
    forgetting.rewrite(
        shelter.vault, shelter.system.files, shelter.origin(MAIN), stones, Noted(shelter)
    )
    (one,) = shelter.lineage(MAIN)
    assert shelter.bytes_of(one) == b"\n" + prompt("k", None, "keep") + b"{damage\n"


def test_lost_tombstone_file_brings_nothing_back(tmp_path):
    """Either of the two lists is enough; both damaged is an error, not an empty list."""
    shelter = Shelter(tmp_path)
    homes = (str(tmp_path / "home"), shelter.vault.root)
    Tombstones(shelter.system.files, homes).bury(["s9"], [b"k" * 16])
    (tmp_path / "home" / "tombstones.json").unlink()
    again = Tombstones(shelter.system.files, homes)
    assert again.session("s9")
    assert again.record(b"k" * 16, None)
    assert b"s9" not in (tmp_path / "vault" / "tombstones.json").read_bytes()


def _trash(folder, system, _prepared):
    shelter = Shelter(folder, system=system)
    retention.trash(shelter.vault, system.files, system.clock, [shelter.lineage(MAIN)[0]])


def _two(folder):
    shelter = _sealed(folder)
    shelter.write(MAIN, REST)
    shelter.seal(MAIN)
    return shelter


def _check_trash(folder, _prepared, finished):
    shelter = Shelter(folder)
    retention.sweep(shelter.vault, shelter.system.files, shelter.system.clock)
    left = [shelter.bytes_of(one) for one in shelter.lineage(MAIN)]
    assert left in ([TALK, REST], [REST])
    stored = [name for name in shelter.files() if "v0-raw.jsonl" in name]
    assert stored, "a generation that was moved is nowhere"
    if finished:
        assert left == [REST]


def test_generation_on_its_way_to_the_trash_is_never_nowhere(tmp_path):
    """Dying anywhere in gc leaves it in the Vault or in the trash."""
    sweep = Sweep(tmp_path, _two, _trash, _check_trash)
    assert sweep.all() >= 20


def test_journal_dying_anywhere_keeps_whole_lines_and_goes_on(tmp_path):
    """A cut last line is closed, and the next events are readable again."""

    def act(folder, system, _prepared):
        journal = Journal(system.files, system.clock, str(folder / "events.jsonl"))
        journal.write([News("sealed", "s1", "p", "/x", {"n": n}) for n in range(3)])

    def check(folder, _prepared, finished):
        there = Shelter(folder).system
        journal = Journal(there.files, there.clock, str(folder / "events.jsonl"))
        kept = journal.events()
        assert len(kept) == 3 if finished else len(kept) <= 3
        journal.write([News("pruned", "s1", "p", "/x", {})])
        again = Journal(there.files, there.clock, str(folder / "events.jsonl"))
        assert [event.news.event for event in again.events()][-1] == "pruned"
        assert [event.n for event in again.events()] == sorted({e.n for e in again.events()})

    sweep = Sweep(tmp_path, lambda _folder: None, act, check)
    assert sweep.all() >= 12
    assert sweep.each_sync_matters() == []

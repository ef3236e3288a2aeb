"""A Vault that was damaged, copied or raced against: nothing is lost that can be kept.

Found by an attack on the Vault; each test is one way in which it lost bytes or said what
was not true.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from fabled.errors import DiskFull, FabledError, FileChanged
from fabled.system import System, real
from fabled.system.effects import Effects
from fabled.system.files import PosixFiles
from fabled.transcript.identity import pack
from fabled.vault import forgetting, names, retention
from fabled.vault.archive import is_sealed, seal_file, units
from fabled.vault.tombstones import Tombstones
from fabled.vault.values import Origin
from tests.support.transcripts import prompt, reply, uid
from tests.support.vaults import Shelter, flip
from tests.vault.test_restore_crash import Noted

MAIN = "-p/s1.jsonl"
KEPT = prompt("a", None, "keep")
SECRET = reply("x", "a", "secret")


@pytest.fixture
def shelter(tmp_path):
    """A projects folder and a Vault."""
    return Shelter(tmp_path)


def _live(shelter):
    return [file for unit in units(shelter.system.files, str(shelter.root)) for file in unit.files]


def _gone(generation):
    os.unlink(generation.data_path)


def _bad_sidecar(generation):
    card = Path(generation.data_path).parent / names.card_name(
        generation.card.number, generation.card.kind
    )
    os.chmod(card, 0o600)
    card.write_bytes(b"{")


@pytest.mark.parametrize("hurt", [_gone, lambda g: flip(g.data_path, 12), _bad_sidecar])
@pytest.mark.parametrize("grown", [False, True])
def test_what_cannot_be_read_is_sealed_anew_while_it_is_live(shelter, hurt, grown):
    """Data missing, a bit flipped, a sidecar broken: the next seal is whole again."""
    shelter.write(MAIN, b"a\n" * 100)
    hurt(shelter.seal(MAIN))
    shelter = shelter.again()
    if grown:
        shelter.append(MAIN, b"b\n")
    generation = shelter.seal(MAIN)
    assert shelter.bytes_of(generation) == (shelter.root / MAIN).read_bytes()
    assert shelter.vault.intact(generation)
    assert shelter.seal(MAIN) == generation


def test_tail_over_a_lost_base_is_not_built_upon(shelter):
    """The base's sidecar is broken, its tail is whole: the next seal holds everything."""
    shelter.write(MAIN, b"a\n" * 100)
    base = shelter.seal(MAIN)
    shelter.append(MAIN, b"b\n")
    shelter.seal(MAIN)
    _bad_sidecar(base)
    shelter = shelter.again()
    shelter.append(MAIN, b"c\n")
    assert shelter.bytes_of(shelter.seal(MAIN)) == (shelter.root / MAIN).read_bytes()


def test_lost_data_is_noticed_without_reading(shelter):
    """A file whose generation lost its data does not count as sealed."""
    shelter.write(MAIN, b"a\n")
    generation = shelter.seal(MAIN)
    (file,) = _live(shelter)
    assert is_sealed(shelter.vault, file)
    _gone(generation)
    assert not is_sealed(shelter.vault, file)


def test_deep_folders_are_sealed_and_seen(shelter):
    """Whatever is archived is found again by everything that goes through the Vault."""
    deep = "-p/s1/" + "/".join(f"d{n}" for n in range(20)) + "/f.txt"
    shelter.write(MAIN, b"a\n")
    shelter.write(deep, b"deep\n")
    for file in _live(shelter):
        shelter.seal(file.origin.path)
    assert {g.card.path for g in shelter.vault.catalogue.generations()} == {MAIN, deep}


@pytest.mark.parametrize("name", ["v999999999-raw.txt", "v0-raw.jsonl.zst", "v0-raw.card.json"])
def test_names_like_ours_beside_a_transcript_disturb_nothing(shelter, name):
    """A spilled result that is called as a generation is: both are sealed, numbers go on."""
    shelter.write(f"-p/s1/{name}", b"x")
    shelter.write(MAIN, b"a\n")
    for _ in range(3):
        shelter.append(MAIN, b"b\n")
        for file in _live(shelter):
            shelter.seal(file.origin.path)
    shelter = shelter.again()
    assert [one.card.number for one in shelter.lineage(MAIN)] == [0, 1, 2]
    assert shelter.bytes_of(shelter.lineage(MAIN)[-1]) == (shelter.root / MAIN).read_bytes()
    assert len(shelter.lineage(f"-p/s1/{name}")) == 1
    assert [f.troubles for f in shelter.vault.catalogue.everything() if f.troubles] == []


def test_only_unfinished_files_are_left_out(shelter):
    """The client's temporary files are not archived; others with ".tmp." in the name are."""
    for name in ("a.tmp.b.txt", "s1.jsonl.tmp.12.3456", "x.json.tmp.9f", ".fabled-12"):
        shelter.write(f"-p/s1/{name}", b"x")
    shelter.write("-p/s1.jsonl.compact.tmp.0123abcd", b"x")
    assert [file.origin.path for file in _live(shelter)] == ["-p/s1/a.tmp.b.txt"]


class Refusing(Effects):
    """Refuses one kind of call from its n-th time on."""

    def __init__(self, what, after):
        self.what, self.after = what, after

    def _count(self, what):
        if what == self.what:
            self.after -= 1
            if self.after < 0:
                raise OSError(errno.ENOSPC, "no room")

    def create(self, path, mode):
        self._count("create")
        return super().create(path, mode)

    def sync_folder(self, folder):
        self._count("sync_folder")
        super().sync_folder(folder)


@pytest.mark.parametrize(
    ("what", "after"), [("create", 1), *(("sync_folder", n) for n in range(1, 6))]
)
def test_refused_seal_leaves_nothing_or_a_whole_generation(tmp_path, what, after):
    """Not a copy at each attempt, and never a sidecar without its data."""
    Shelter(tmp_path).write(MAIN, os.urandom(100_000))
    there = real()
    for _ in range(3):
        effects = Refusing(what, after)
        system = System(PosixFiles(effects), there.clock, there.processes)
        try:
            Shelter(tmp_path, system=system).seal(MAIN)
        except FabledError:
            continue
    shelter = Shelter(tmp_path)
    assert [f.troubles for f in shelter.vault.catalogue.everything() if f.troubles] == []
    for one in shelter.lineage(MAIN):
        assert shelter.vault.intact(one)
    assert len(shelter.files()) <= 2


def test_file_written_anew_while_it_is_sealed_is_not_sealed_as_a_mixture(shelter, monkeypatch):
    """The beginning of the old one and the end of the new one never were one file."""
    shelter.write(MAIN, b"a\n" * 1000)
    shelter.seal(MAIN)
    shelter.append(MAIN, b"b\n" * 1000)
    write = type(shelter.vault)._write

    def rewritten(vault, *given, **more):
        with (shelter.root / MAIN).open("r+b") as handle:
            handle.write(b"Z\n" * 2000)
        return write(vault, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(type(shelter.vault), "_write", rewritten)
        with pytest.raises(FileChanged):
            shelter.seal(MAIN)
    assert shelter.bytes_of(shelter.seal(MAIN)) == b"Z\n" * 2000


def test_one_file_that_cannot_be_sealed_is_a_refusal_and_no_end(shelter, monkeypatch):
    """It shrinks while it is read: told, and the others go on."""
    shelter.write(MAIN, b"a" * 3_000_000)
    write = type(shelter.vault)._write

    def shrunk(vault, *given, **more):
        os.truncate(shelter.root / MAIN, 5)
        return write(vault, *given, **more)

    monkeypatch.setattr(type(shelter.vault), "_write", shrunk)
    origin = shelter.origin(MAIN)
    found = seal_file(shelter.vault, shelter.system.files, origin, "quiet", lambda _path: None)
    assert found.generation is None
    assert found.refusal is not None


def test_folder_copied_inside_the_vault_is_no_part_of_any_lineage(shelter):
    """A synchroniser's copy: reported, and neither restored from nor counted."""
    shelter.write(MAIN, b"a\n")
    shelter.seal(MAIN)
    vault = Path(shelter.vault.root)
    shutil.copytree(vault / "-p" / "s1", vault / "-p" / "s1-backup")
    shelter = shelter.again()
    assert [one.card.number for one in shelter.vault.catalogue.generations()] == [0]
    troubles = [t for folder in shelter.vault.catalogue.everything() for t in folder.troubles]
    assert len(troubles) == 1


# --- forgetting ---


def _stones(shelter, *uuids):
    stones = Tombstones(shelter.system.files, (str(shelter.folder / "home"),))
    stones.bury([], [pack(uid(one)) for one in uuids])
    return stones


def _rewrite(shelter, stones):
    files, origin = shelter.system.files, shelter.origin(MAIN)
    return forgetting.rewrite(shelter.vault, files, origin, stones, Noted(shelter))


def test_older_spoilt_image_written_anew_does_not_become_the_newest(shelter):
    """After forgetting, the newest generation is still what the transcript was last."""
    newest = KEPT + reply("b", "a", "the newer state")
    for data in (KEPT + SECRET, newest):
        shelter.write(MAIN, data)
        shelter.seal(MAIN)
    _rewrite(shelter, _stones(shelter, "x"))
    assert [shelter.bytes_of(one) for one in shelter.lineage(MAIN)] == [KEPT, newest]


def test_seal_between_two_attempts_to_forget_loses_nothing(shelter):
    """The disk was full, the archive ran, then there was room: every other record is kept."""
    unique = prompt("u", None, "only in the old image")
    shelter.write(MAIN, KEPT + unique + SECRET)
    shelter.seal(MAIN)
    stones = _stones(shelter, "x")
    there = real()

    class Full(Effects):
        def write(self, fd, data):
            raise OSError(errno.ENOSPC, "no room")

    full = Shelter(shelter.folder, system=System(PosixFiles(Full()), there.clock, there.processes))
    with pytest.raises(DiskFull):
        forgetting.rewrite(full.vault, full.system.files, full.origin(MAIN), stones, Noted(shelter))
    shelter = shelter.again()
    shelter.write(MAIN, prompt("n", None, "written anew"))
    shelter.seal(MAIN)
    _rewrite(shelter, stones)
    images = [shelter.bytes_of(one) for one in shelter.lineage(MAIN)]
    assert images == [KEPT + unique, prompt("n", None, "written anew")]


def test_tail_behind_a_spoilt_image_goes_with_it(shelter):
    """What was sealed since the records were marked is written anew as well."""
    shelter.write(MAIN, KEPT + SECRET)
    shelter.seal(MAIN)
    stones = _stones(shelter, "x")
    shelter.append(MAIN, reply("b", "x", "later"))
    shelter.seal(MAIN)
    _rewrite(shelter, stones)
    assert b"secret" not in b"".join(shelter.bytes_of(one) for one in shelter.lineage(MAIN))


def test_damaged_strand_keeps_others_from_nothing_and_is_told(shelter):
    """The words go from what can be read; what cannot be read is named."""
    shelter.write(MAIN, KEPT + SECRET)
    shelter.seal(MAIN)
    shelter.write(MAIN, prompt("q", None, "other"))
    flip(shelter.seal(MAIN).data_path, 12)
    shelter = shelter.again()
    done = _rewrite(shelter, _stones(shelter, "x"))
    assert len(done.unsure) == 1
    assert KEPT in [shelter.bytes_of(one) for one in shelter.lineage(MAIN) if _sound(shelter, one)]


def _sound(shelter, generation):
    return shelter.vault.intact(generation)


def test_what_nobody_can_look_into_is_named_before_a_thread_is_forgotten(shelter):
    """Damaged, continuing nothing, or without sidecar: each may hold the thread."""
    shelter.write(MAIN, KEPT + SECRET)
    base = shelter.seal(MAIN)
    shelter.append(MAIN, reply("y", "x", "secret again"))
    shelter.seal(MAIN)
    found = lambda: {  # noqa: E731 - asked twice, said once
        Path(one.path).name
        for one in forgetting.unsure(shelter.vault, shelter.system.files, shelter.origin(MAIN))
    }
    assert found() == set()
    _bad_sidecar(base)
    shelter = shelter.again()
    assert found() == {"v0-raw.jsonl.zst", "v1-tail.jsonl.zst"}


def test_forgotten_session_leaves_nothing_where_its_sidecar_was_broken(shelter):
    """Data that names no session any more lies in the session's folder: it goes."""
    shelter.write(MAIN, KEPT + SECRET)
    base = shelter.seal(MAIN)
    shelter.append(MAIN, reply("y", "x", "secret again"))
    shelter.seal(MAIN)
    _bad_sidecar(base)
    shelter = shelter.again()
    forgetting.destroy(shelter.vault, shelter.system.files, shelter.lineage(MAIN))
    assert forgetting.destroy_rest(shelter.vault, shelter.system.files, "-p/s1") == []
    assert shelter.files() == []


def test_trash_of_another_root_is_left_alone(shelter):
    """Two projects folders with the same session in them share a folder of the Vault."""
    shelter.write(MAIN, KEPT)
    other = Origin(str(shelter.folder / "other"), MAIN)
    path = Path(other.live)
    path.parent.mkdir(parents=True)
    for at in range(3):
        path.write_bytes(b"other%d\n" % at)
        with shelter.system.files.open_read(other.live) as handle:
            shelter.vault.seal(other, handle, 7, "test")
    shelter.seal(MAIN)
    middle = shelter.vault.catalogue.lineage(other)[1]
    files, clock = shelter.system.files, shelter.system.clock
    retention.trash(shelter.vault, files, clock, [middle])
    before = [name for name in shelter.files() if ".trash" in name]
    forgetting.destroy(shelter.vault, files, shelter.lineage(MAIN))
    forgetting.purge_trash(
        shelter.vault, files, "-p/s1", lambda card: card.root == str(shelter.root)
    )
    assert [name for name in shelter.files() if ".trash" in name] == before
    assert json.loads((Path(shelter.vault.root) / before[0]).read_text())["root"] == other.root

"""Sealing and reading back: exact images, tails that cost only themselves, names never reused."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.errors import DiskFull, GenerationDamaged
from fabled.system import System, real
from fabled.system.effects import Effects
from fabled.system.files import PosixFiles
from fabled.vault import names, retention
from fabled.vault.frames import FRAME, Frames, compress
from fabled.vault.verify import verify
from tests.support.vaults import Shelter

MAIN = "-p/s1.jsonl"


@pytest.fixture
def shelter(tmp_path):
    """A projects folder and a Vault."""
    return Shelter(tmp_path)


def test_sealed_file_reads_back_byte_for_byte_with_mode_and_folder_private(shelter):
    """What was sealed is what is read; data and sidecar are 0400 in folders 0700."""
    data = b'{"a":1}\n\xff\x00broken\r\n' + os.urandom(300_000) + b"no newline"
    shelter.write(MAIN, data)
    generation = shelter.seal(MAIN)
    assert shelter.bytes_of(generation) == data
    assert shelter.files() == ["-p/s1/v0-raw.card.json", "-p/s1/v0-raw.jsonl.zst"]
    for name in shelter.files():
        path = Path(shelter.vault.root) / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert verify(shelter.system.files, shelter.vault, generation) == []


def test_appended_bytes_cost_a_tail_of_their_own_size(shelter):
    """The second seal of a grown file stores the growth, and the image is the whole file."""
    first = os.urandom(2_000_000)
    shelter.write(MAIN, first)
    raw = shelter.seal(MAIN)
    shelter.append(MAIN, b"more" * 1000)
    tail = shelter.seal(MAIN)
    assert (tail.card.kind, tail.card.base, tail.card.offset) == ("tail", 0, len(first))
    assert tail.card.stored < 5000 < raw.card.stored
    assert shelter.bytes_of(tail) == first + b"more" * 1000
    assert shelter.bytes_of(raw) == first


def test_unchanged_file_is_not_sealed_twice(shelter):
    """Sealing what the newest generation is already writes nothing."""
    shelter.write(MAIN, b"line\n")
    first = shelter.seal(MAIN)
    before = shelter.files()
    assert shelter.seal(MAIN) == first
    assert shelter.files() == before


def test_rewritten_file_is_sealed_whole_and_the_old_image_stays(shelter):
    """A shorter file under the same name is a new raw generation; nothing old is touched."""
    shelter.write(MAIN, b"old" * 10_000)
    old = shelter.seal(MAIN)
    shelter.write(MAIN, b"new and short\n")
    new = shelter.seal(MAIN)
    assert (new.card.kind, new.card.number) == ("raw", 1)
    assert shelter.bytes_of(old) == b"old" * 10_000
    assert shelter.bytes_of(new) == b"new and short\n"


def test_file_back_at_an_older_image_is_noted_without_a_copy(shelter):
    """After a prune is taken back the newest generation says so, at no cost."""
    shelter.write(MAIN, b"abc\n" * 1000)
    shelter.seal(MAIN)
    shelter.keep_pruned(MAIN, b"abc\n")
    back = shelter.seal(MAIN)
    assert (back.card.kind, back.card.base, back.card.size) == ("tail", 0, 0)
    assert shelter.lineage(MAIN)[-1] == back
    assert shelter.bytes_of(back) == b"abc\n" * 1000


def test_tail_of_a_pruned_image_continues_it(shelter):
    """What is appended after a prune is a tail on the pruned generation."""
    shelter.write(MAIN, b"1\n2\n3\n")
    shelter.seal(MAIN)
    shelter.keep_pruned(MAIN, b"1\n3\n")
    shelter.write(MAIN, b"1\n3\n4\n")
    tail = shelter.seal(MAIN)
    assert (tail.card.base, tail.card.offset, shelter.bytes_of(tail)) == (1, 4, b"1\n3\n4\n")


def test_same_bytes_under_another_root_are_another_lineage(tmp_path):
    """Two live files of the same name in two roots never continue each other."""
    shelter = Shelter(tmp_path)
    shelter.write(MAIN, b"one\n")
    shelter.seal(MAIN)
    other = tmp_path / "other"
    shelter.root = other
    shelter.write(MAIN, b"one\ntwo\n")
    second = shelter.seal(MAIN)
    assert (second.card.kind, second.card.number) == ("raw", 1)


def test_plain_compression_stores_the_very_bytes(tmp_path):
    """Compression = none keeps a file that `cat` restores."""
    shelter = Shelter(tmp_path, "none")
    shelter.write(MAIN, b"as it is\n")
    generation = shelter.seal(MAIN)
    assert Path(generation.data_path).read_bytes() == b"as it is\n"
    assert generation.data_path.endswith("v0-raw.jsonl")


def test_stored_file_is_restored_by_the_zstd_program(shelter):
    """Nothing but `zstd -d` is needed to get a generation back."""
    program = shutil.which("zstd")
    if program is None:
        pytest.skip("the zstd program is not installed")
    data = os.urandom(FRAME * 3 + 17)
    shelter.write(MAIN, data)
    generation = shelter.seal(MAIN)
    done = subprocess.run([program, "-dc", generation.data_path], capture_output=True, check=True)
    assert done.stdout == data


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from([0, 1, FRAME - 1, FRAME, FRAME + 1, FRAME * 3 + 5]),
    reads=st.lists(st.tuples(st.integers(0, FRAME * 4), st.integers(0, FRAME * 2)), max_size=6),
)
def test_any_range_of_a_compressed_file_equals_the_same_range_of_its_bytes(
    tmp_path_factory, size, reads
):
    """Random reads give what a slice gives, at every frame's edge."""
    folder = tmp_path_factory.mktemp("frames")
    data = os.urandom(size)
    path = folder / "x.zst"
    path.write_bytes(b"".join(compress([data[:7], data[7:]])))
    frames = Frames(real().files.open_read(str(path)), str(path))
    for offset, length in reads:
        assert frames.pread(offset, length) == data[offset : offset + length]
    frames.close()


def test_flipped_byte_is_found_by_verify_and_never_read(shelter):
    """A damaged generation is named; a read of it fails rather than give other bytes."""
    shelter.write(MAIN, os.urandom(500_000))
    generation = shelter.seal(MAIN)
    path = Path(generation.data_path)
    os.chmod(path, 0o600)
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(bytes(data))
    assert [t.path for t in verify(shelter.system.files, shelter.vault, generation)] == [str(path)]
    with pytest.raises(GenerationDamaged), shelter.vault.image(generation) as image:
        image.pread(0, 10)


def test_missing_base_makes_its_tails_trouble_and_no_lie(shelter):
    """A tail whose base is gone is reported and is no strand."""
    shelter.write(MAIN, b"a\n")
    raw = shelter.seal(MAIN)
    shelter.append(MAIN, b"b\n")
    shelter.seal(MAIN)
    os.unlink(raw.data_path)
    os.unlink(Path(raw.data_path).parent / "v0-raw.card.json")
    again = shelter.again()
    assert again.vault.catalogue.strands() == []
    (tail,) = again.lineage(MAIN)
    assert verify(again.system.files, again.vault, tail) != []


class _FullDisk(Effects):
    """Refuses the nth write."""

    def __init__(self, at):
        self.left = at

    def write(self, fd, data):
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")
        return super().write(fd, data)


@pytest.mark.parametrize("at", range(6))
def test_full_disk_while_sealing_leaves_no_generation_and_no_rest(tmp_path, at):
    """Nothing half-written passes for a backup; what was sealed before stays good."""
    shelter = Shelter(tmp_path)
    shelter.write(MAIN, os.urandom(FRAME * 2))
    first = shelter.seal(MAIN)
    shelter.append(MAIN, os.urandom(FRAME * 2))
    tried = real()
    short = Shelter(
        tmp_path, system=System(PosixFiles(_FullDisk(at)), tried.clock, tried.processes)
    )
    try:
        generation = short.seal(MAIN)
    except DiskFull:
        again = shelter.again()
        assert [g.card.number for g in again.lineage(MAIN)] == [0]
        retention.sweep(again.vault, again.system.files, again.system.clock)
        assert [n for n in again.files() if ".trash" not in n] == [
            "-p/s1/v0-raw.card.json",
            "-p/s1/v0-raw.jsonl.zst",
        ]
        assert verify(again.system.files, again.vault, first) == []
    else:
        assert at >= 4, "the disk was never full"
        assert verify(shelter.system.files, short.vault, generation) == []


@pytest.mark.parametrize(
    "name",
    ["-p/../../x.jsonl", "-p/.jsonl", "-p/" + "n" * 240 + ".jsonl", "-p/a b\udcff.jsonl", "./x"],
)
def test_odd_names_stay_inside_the_vault(name):
    """No name can lead out of the Vault's folder, whatever a sidecar or a disk says."""
    folder = names.folder_of(name)
    assert not {"", ".", ".."} & set(folder.split("/"))
    assert all(len(part) <= 240 and part.isascii() for part in folder.split("/"))


def test_sidecar_naming_a_path_outside_is_trouble(shelter):
    """A tampered sidecar cannot make us read or write elsewhere."""
    shelter.write(MAIN, b"x\n")
    generation = shelter.seal(MAIN)
    card = Path(generation.data_path).parent / "v0-raw.card.json"
    value = json.loads(card.read_text())
    os.chmod(card, 0o600)
    card.write_text(json.dumps({**value, "path": "../../etc/passwd"}))
    folder = shelter.again().vault.catalogue.folder("-p/s1")
    assert folder.generations == ()
    assert [t.path for t in folder.troubles] == [str(card)]


def test_data_without_sidecar_is_put_aside_and_its_number_never_reused(shelter):
    """A crash between data and sidecar leaves no generation; the data is kept in the trash."""
    shelter.write(MAIN, b"x\n")
    generation = shelter.seal(MAIN)
    os.unlink(Path(generation.data_path).parent / "v0-raw.card.json")
    again = shelter.again()
    aside = retention.sweep(again.vault, again.system.files, again.system.clock)
    assert aside == [generation.data_path]
    assert any(".trash/orphans-" in name for name in again.files())
    assert again.seal(MAIN).card.number == 0

"""Prune and undo on real files: exact images, refusals that touch nothing, crashes anywhere."""

from __future__ import annotations

import os
import stat
from typing import Any

import pytest

from fabled.errors import (
    AccessDenied,
    FileBusy,
    FileChanged,
    GateRefused,
    NothingToGain,
    PruneDeclined,
    ResumeCheckFailed,
    UndoImpossible,
)
from fabled.prune import apply
from fabled.prune.gate import Proof
from fabled.vault import retention
from fabled.vault.verify import verify
from tests.support.crash import Sweep
from tests.support.pruning import MAIN, Workbench
from tests.support.transcripts import line, prompt, reply, tool_call, tool_result
from tests.support.vaults import flip

TALK = (
    prompt("a", None, "please")
    + tool_call("b", "a", "toolu_1", "ls")
    + tool_result("c", "b", "toolu_1", "out " * 400)
    + line({"type": "api-request-blob", "id": "x" * 500})
    + b'{"torn json\n'
    + reply("d", "c", "done")
)


@pytest.fixture
def bench(tmp_path):
    """A workbench whose main transcript is `TALK`, quiet and with a mode and time of its own."""
    with Workbench(tmp_path / "bench") as found:
        found.write(MAIN, TALK)
        os.chmod(found.root / MAIN, 0o640)
        os.utime(found.root / MAIN, ns=(10**18, 10**18))
        yield found


def test_pruned_transcript_is_shorter_same_mode_and_time_and_all_of_it_is_kept(bench):
    """The new image has its name; the old one, damage included, is a generation to the byte."""
    done = bench.prune()
    found = (bench.root / MAIN).stat()
    assert found.st_size == done.preview.after_bytes < len(TALK)
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o640, 10**18)
    assert b"toolUseResult" not in bench.live()
    assert b'{"torn json\n' in bench.live()
    raw, pruned = bench.lineage(MAIN)
    assert bench.bytes_of(raw) == TALK
    assert bench.bytes_of(pruned) == bench.live()
    assert pruned.card.receipt.rules.keys() == {"tool-use-result", "api-request"}


def test_undo_gives_back_the_very_image_and_what_was_appended_since(bench):
    """Previous image exactly, then the later lines, then nothing."""
    done = bench.prune()
    bench.append(MAIN, b"later one\nlater two\n")
    back = bench.undo()
    assert bench.live() == TALK + b"later one\nlater two\n"
    assert (back.generation, back.kept_bytes) == (done.generation, 20)


def test_prunes_are_taken_back_one_after_the_other(bench):
    """Two prunes, two undos; a third finds nothing to take back."""
    first = bench.prune()
    more = prompt("e", "d", "more") + tool_call("f", "e", "toolu_2", "ls")
    more += tool_result("g", "f", "toolu_2", "x" * 900)
    bench.append(MAIN, more)
    second = bench.prune(now_ms=2)
    bench.undo()
    bench.undo(undone=[second.generation.card.number])
    assert bench.live() == TALK + more
    numbers = [first.generation.card.number, second.generation.card.number]
    with pytest.raises(UndoImpossible):
        bench.undo(undone=numbers)


def test_undo_after_the_client_rewrote_the_file_is_refused(bench):
    """What is there now is left alone when it does not begin with the pruned image."""
    bench.prune()
    bench.write(MAIN, b'{"type":"user","uuid":"n"}\n')
    with pytest.raises(UndoImpossible):
        bench.undo()
    assert bench.live() == b'{"type":"user","uuid":"n"}\n'


def test_unfinished_last_line_that_is_whole_stays_behind_the_new_image(bench):
    """A record without its newline is carried over as it is, and undo keeps it too."""
    rest = reply("z", "d", "no newline")[:-1]
    bench.append(MAIN, rest)
    bench.prune()
    assert bench.live().endswith(rest)
    bench.undo()
    assert bench.live() == TALK + rest


def test_transcript_torn_at_its_end_is_left_alone(bench):
    """Damage at the tail may be a write under way: nothing is done."""
    bench.append(MAIN, b'{"type":"user","uu')
    before = bench.live()
    with pytest.raises(PruneDeclined):
        bench.prune()
    assert bench.live() == before


def test_transcript_open_for_writing_is_refused_and_untouched(bench):
    """P1: while anybody holds it open for writing there is no prune."""
    with (bench.root / MAIN).open("ab"), pytest.raises(FileBusy):
        bench.prune()
    assert bench.live() == TALK
    assert bench.leftovers() == []
    assert [one.card.kind for one in bench.lineage(MAIN)] == ["raw"]


def test_transcript_with_a_second_name_is_refused(bench):
    """A hard link may be somebody's other name for it."""
    os.link(bench.root / MAIN, bench.folder / "other")
    with pytest.raises(FileBusy):
        bench.prune()
    assert bench.live() == TALK


def test_nothing_to_gain_touches_nothing(bench):
    """A transcript without bulk is not rewritten for the sake of it."""
    small = prompt("a", None, "hello") + reply("b", "a", "hi")
    bench.write(MAIN, small)
    with pytest.raises(NothingToGain):
        bench.prune()
    assert bench.live() == small
    assert bench.lineage(MAIN) == []


def test_gate_refuses_when_the_map_does_not_know_the_generation(bench):
    """Without the Map's word for every record there is no proof, and no prune."""
    broken = bench.bench._replace(indexed=lambda _generation: set())
    with pytest.raises(GateRefused):
        apply.prune(broken, bench.origin(MAIN), apply.Wish(_options()), 1)
    assert bench.live() == TALK


def test_gate_refuses_a_generation_that_does_not_read_back(bench, monkeypatch):
    """A flipped byte in the Vault stops the prune before anything is touched."""
    generation = bench.seal(MAIN)
    flip(generation.data_path, 30)
    with monkeypatch.context() as patched:
        patched.setattr(bench.vault, "seal", lambda *_: generation)
        with pytest.raises(Exception, match=r"damaged|read back"):
            bench.prune()
    assert bench.live() == TALK


def test_prune_over_a_damaged_generation_seals_a_sound_one_first(bench):
    """A backup that cannot be read is none: another is made before anything goes."""
    flip(bench.seal(MAIN).data_path, 30)
    bench.prune()
    assert [one.card.kind for one in bench.lineage(MAIN)] == ["raw", "raw", "pruned"]
    bench.undo()
    assert bench.live() == TALK


def test_proof_cannot_be_made_outside_the_gate(bench):
    """Nothing but the gate can say that everything is kept."""
    anything: Any = None
    with pytest.raises(GateRefused):
        Proof(object(), anything, anything, "")


def test_failed_resume_check_touches_nothing(bench, monkeypatch):
    """Whatever the second opinion says stops the prune."""
    monkeypatch.setattr(apply, "problems", lambda *_: ["made up"])
    with pytest.raises(ResumeCheckFailed, match="made up"):
        bench.prune()
    assert bench.live() == TALK
    assert bench.leftovers() == []
    assert [one.card.kind for one in bench.lineage(MAIN)] == ["raw"]


def test_late_lines_that_name_what_goes_stop_the_prune(bench, monkeypatch):
    """A record appended meanwhile below an evicted one: the file stays as its writer left it."""
    progress: dict[str, Any] = {
        "type": "progress",
        "uuid": "11111111-2222-4333-8444-555555555555",
        "parentUuid": None,
        "data": {},
    }
    bench.write(MAIN, line(progress) + TALK)
    late = line({"type": "user", "uuid": "q", "parentUuid": progress["uuid"], "message": {}})
    keep = bench.vault.keep_pruned

    def meanwhile(*given):
        bench.append(MAIN, late)
        return keep(*given)

    monkeypatch.setattr(bench.vault, "keep_pruned", meanwhile)
    with pytest.raises(FileChanged):
        bench.prune()
    assert bench.live() == line(progress) + TALK + late
    assert [one.card.kind for one in bench.lineage(MAIN)] == ["raw"]


def test_client_that_replaced_the_file_meanwhile_wins(bench, monkeypatch):
    """A new inode at the path just before the door closes: it is not ours to replace."""
    keep = bench.vault.keep_pruned

    def meanwhile(*given):
        fresh = bench.root / "fresh"
        fresh.write_bytes(b"the client's own\n")
        fresh.replace(bench.root / MAIN)
        return keep(*given)

    monkeypatch.setattr(bench.vault, "keep_pruned", meanwhile)
    with pytest.raises(FileChanged):
        bench.prune()
    assert bench.live() == b"the client's own\n"


def test_preview_writes_the_image_elsewhere_and_touches_nothing(bench):
    """--output gives the bytes a prune would leave, and never clobbers."""
    target = bench.folder / "image.jsonl"
    found = apply.preview(bench.bench, bench.origin(MAIN), _options(), str(target))
    assert target.stat().st_size == found.after_bytes
    assert bench.live() == TALK
    assert bench.lineage(MAIN) == []
    bench.prune()
    assert bench.live() == target.read_bytes()


def _options(**wanted):
    from tests.support.pruning import options  # noqa: PLC0415 - a short name here

    return options(**wanted)


def test_same_size_change_in_place_stops_the_prune(bench, monkeypatch):
    """Bytes changed without the size changing, after the proof: not ours to replace."""
    keep = bench.vault.keep_pruned
    changed = TALK.replace(b"please", b"PLEASE")

    def meanwhile(*given):
        with (bench.root / MAIN).open("r+b") as handle:
            handle.write(changed)
        return keep(*given)

    monkeypatch.setattr(bench.vault, "keep_pruned", meanwhile)
    with pytest.raises(FileChanged):
        bench.prune()
    assert bench.live() == changed


def test_fault_after_the_name_changed_hands_takes_nothing_back(bench, monkeypatch):
    """A folder that cannot be synced after the rename: the prune stands, with its generation."""

    def refuse(_path):
        raise AccessDenied("no sync for you")

    monkeypatch.setattr(type(bench.system.files), "sync_folder", lambda _self, p: refuse(p))
    done = bench.prune()
    assert done.replaced.fault is not None
    assert bench.bytes_of(bench.lineage(MAIN)[-1]) == bench.live()
    monkeypatch.undo()
    bench.undo()
    assert bench.live() == TALK


# --- a disk that dies ---


def _prepare(folder):
    bench = Workbench(folder, maps=folder.parent / "maps")
    bench.write(MAIN, TALK)
    bench.close()
    return TALK


def _prepare_pruned(folder):
    bench = Workbench(folder, maps=folder.parent / "maps")
    bench.write(MAIN, TALK)
    bench.prune()
    bench.append(MAIN, b"later\n")
    after = bench.live()
    bench.follower.close()
    bench.put_right()
    bench.close()
    return after


def _prune(folder, system, _prepared):
    bench = Workbench(folder, system, maps=folder.parent / "maps")
    try:
        bench.prune()
    finally:
        bench.library.close()


def _undo(folder, system, _prepared):
    bench = Workbench(folder, system, maps=folder.parent / "maps")
    try:
        bench.undo()
    finally:
        bench.library.close()


def _restarted(folder):
    bench = Workbench(folder, maps=folder.parent / "maps")
    bench.put_right()
    assert bench.follower.settled(str(bench.root / MAIN))
    retention.sweep(bench.vault, bench.system.files, bench.system.clock)
    assert bench.leftovers() == []
    for one in bench.vault.catalogue.generations():
        assert verify(bench.system.files, bench.vault, one) == []
    return bench


def _check_prune(folder, before, finished):
    with _restarted(folder) as bench:
        images = [bench.bytes_of(one) for one in bench.lineage(MAIN)]
        live = bench.live()
        if live != before:
            assert before in images, "the original is in no generation"
            assert images[-1] == live
        if finished:
            assert live != before
        again = live if live != before else None
        if again is None:
            bench.prune()
        bench.undo()
        assert bench.live() == before


def _check_undo(folder, before, finished):
    with _restarted(folder) as bench:
        live = bench.live()
        whole = TALK + b"later\n"
        assert live in (before, whole)
        if finished:
            assert live == whole
        if live == before:
            bench.undo()
        assert bench.live() == whole


def test_prune_dying_anywhere_leaves_before_or_after_never_between(tmp_path):
    """Every change of a whole prune, in four views of the disk each."""
    sweep = Sweep(tmp_path, _prepare, _prune, _check_prune)
    assert sweep.changes()[0] >= 45
    assert sweep.all() >= 180


def test_undo_dying_anywhere_leaves_before_or_after_never_between(tmp_path):
    """Every change of a whole undo, in four views of the disk each."""
    sweep = Sweep(tmp_path, _prepare_pruned, _undo, _check_undo)
    assert sweep.changes()[0] >= 26
    assert sweep.all() >= 104


def _prepare_sealed(folder):
    bench = Workbench(folder, maps=folder.parent / "maps")
    bench.write(MAIN, TALK)
    bench.seal(MAIN)
    (folder / "pending").mkdir()
    bench.close()
    return TALK


def test_leaving_out_any_one_sync_of_a_prune_is_noticed(tmp_path):
    """Note, new image, note again, its generation, the changed name: each sync is needed.

    Only the one between the generation's data and its sidecar is not: a pruned image that was
    not put in place is taken back at the next start, whole or not. Sealing needs it, and its
    own sweep says so.
    """
    sweep = Sweep(tmp_path, _prepare_sealed, _prune, _check_prune)
    assert sweep.changes()[1] == 10
    assert sweep.each_sync_matters() == [6]


def test_leaving_out_any_one_sync_of_an_undo_is_noticed(tmp_path):
    """Only the name of the second note is spare: nothing comes late here that it is needed for."""
    sweep = Sweep(tmp_path, _prepare_pruned, _undo, _check_undo)
    assert sweep.changes()[1] == 10
    assert sweep.each_sync_matters() == [8]

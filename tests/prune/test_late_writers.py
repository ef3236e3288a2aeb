"""Writers that come at the worst moment: what they wrote is in the live file, once and whole.

Found by an attack on the prune; each test is one way in which bytes were lost or torn.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabled.errors import (
    AccessDenied,
    DiskFull,
    FabledError,
    FileBusy,
    FileChanged,
    NothingToGain,
    UndoImpossible,
)
from fabled.prune.door import Door
from fabled.prune.following import Follower
from fabled.system import System, leases, real
from fabled.system.effects import Effects
from fabled.system.files import PosixFiles
from fabled.system.opened import PosixNewFile
from tests.support.pruning import MAIN, Workbench
from tests.support.transcripts import line, prompt, reply, tool_call, tool_result
from tests.support.waiting import until

TALK = (
    prompt("a", None, "please")
    + tool_call("b", "a", "toolu_1", "ls")
    + tool_result("c", "b", "toolu_1", "out " * 400)
    + line({"type": "api-request-blob", "id": "x" * 500})
    + b'{"torn json\n'
    + reply("d", "c", "done")
)
SHORTENED = prompt("a", None, "please") + reply("d", "a", "done")
PREFIX = SHORTENED + line({"type": "api-request-blob", "id": "x" * 500})
"""A talk whose pruned image is its own beginning."""

LATE = reply("z", "d", "late reply that was completely written")
MORE = reply("y", "z", "and one more")
APPEND = os.O_WRONLY | os.O_APPEND


class Dead(BaseException):
    """The process is gone."""


class Shifted:
    """The real clock, some seconds ahead."""

    def __init__(self, inner):
        self._inner = inner
        self.ahead = 0.0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def monotonic_s(self):
        return self._inner.monotonic_s() + self.ahead


class Failing(Effects):
    """From `begin` on, one kind of call is cut short and then refused.

    Args:
        what: write or pwrite.
        whole: How many calls succeed, the last one with half of its bytes if `half`.
    """

    def __init__(self, what, whole, *, half=False, fault=errno.ENOSPC, dies=False):
        self.what, self.whole, self.half = what, whole, half
        self.fault, self.dies = fault, dies
        self.on = False

    def _next(self, size):
        if not self.on:
            return size
        self.whole -= 1
        if self.whole < 0:
            if self.dies:
                raise Dead
            raise OSError(self.fault, os.strerror(self.fault))
        return size // 2 if self.half and self.whole == 0 else size

    def write(self, fd, data):
        size = self._next(len(data)) if self.what == "write" else len(data)
        return super().write(fd, data[:size])

    def pwrite(self, fd, data, offset):
        size = self._next(len(data)) if self.what == "pwrite" else len(data)
        return super().pwrite(fd, data[:size], offset)


class Scene:
    """A workbench, its clock, and writers that wait where the name changes hands."""

    def __init__(self, folder, monkeypatch, effects=None):
        there = real()
        self.clock = Shifted(there.clock)
        self.effects = effects
        system = System(PosixFiles(effects), self.clock, there.processes)
        self.bench = Workbench(folder / "bench", system=system)
        self.bench.write(MAIN, TALK)
        self.monkeypatch = monkeypatch
        self.writers = {}

    def waiter(self, act, flags=APPEND, name=MAIN):
        """Somebody who looked the path up just before it changed, and stands at the lease."""
        path = str(self.bench.root / name)
        original = PosixNewFile.exchange

        def exchange(new, target):
            if target == path and path not in self.writers:
                self.writers[path] = Writer(path, flags, act)
            return original(new, target)

        self.monkeypatch.setattr(PosixNewFile, "exchange", exchange)

    def writer(self, name=MAIN):
        return self.writers[str(self.bench.root / name)]

    def later(self):
        """Long after."""
        self.clock.ahead += 60
        self.bench.follower.look()
        self.clock.ahead += 60
        return self.bench.follower.look()

    def killed(self):
        """The daemon is gone without a word."""
        for old in self.bench.follower._olds:
            old.file.close()
        self.bench.follower._olds = []
        self.bench.follower = Follower(self.bench.system)
        self.bench.door = Door(self.bench.system, self.bench.pending, self.bench.follower)
        self.bench.bench = self.bench.bench._replace(door=self.bench.door)

    def dying(self, doing):
        """Do it, and die in it: nothing that would clean up runs."""
        with self.monkeypatch.context() as patched:
            patched.setattr(PosixFiles, "remove", lambda *_: True)
            patched.setattr(self.bench.vault, "discard", lambda _generation: None)
            patched.setattr(PosixNewFile, "__exit__", lambda new, *_: new.close())
            with pytest.raises(Dead):
                doing()
        self.killed()


class Writer:
    """Opens the old file in a thread of its own; the descriptor stays open unless `act` closes."""

    def __init__(self, path, flags, act):
        self.fd = -1
        self._there = os.stat(path).st_ino
        self._begun = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(path, flags, act), daemon=True)
        self.thread.start()
        # It stands at the lease: the kernel says so by taking our lease's certainty away.
        self._begun.wait(5)
        until(lambda: _blocked(self.thread) or not self.thread.is_alive())

    def _run(self, path, flags, act):
        self.tid = threading.get_native_id()
        self._begun.set()
        self.fd = os.open(path, flags)
        act(self.fd)

    def write(self, data):
        self.thread.join(5)
        os.write(self.fd, data)

    def close(self):
        self.thread.join(5)
        os.close(self.fd)


def _blocked(thread):
    text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text(encoding="ascii")
    return text.rpartition(")")[2].split()[0] in "SD"


def writes(data, *, close=True):
    """What a waiter does that only appends."""

    def act(fd):
        os.write(fd, data)
        if close:
            os.close(fd)

    return act


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """With leases, on a disk that does what it is told."""
    return Scene(tmp_path, monkeypatch)


def test_waiter_that_appends_is_carried_over_once(scene):
    """The plain case: its record stands at the end, and the old file is let go of."""
    scene.waiter(writes(LATE))
    scene.bench.prune()
    scene.later()
    assert scene.bench.live().endswith(LATE)
    assert scene.bench.live().count(LATE) == 1
    assert scene.bench.leftovers() == []


@pytest.mark.parametrize("count", [1, 20])
def test_waiter_that_writes_the_file_anew_loses_no_line(scene, count):
    """Shorter or longer than before: every line of it is in the live file, none torn."""
    new = b"".join(reply(f"{at:02d}", None, "n" * 300) for at in range(count))
    scene.waiter(writes(new), os.O_WRONLY | os.O_TRUNC)
    scene.bench.prune()
    scene.later()
    live = scene.bench.live().splitlines(keepends=True)
    assert [one for one in new.splitlines(keepends=True) if one not in live] == []
    assert [one for one in live if not one.startswith(b"{")] == []
    assert scene.bench.leftovers() == []


def test_waiter_that_takes_its_last_line_back_and_writes_another_is_kept(scene):
    """The client's tombstone: the end is cut off and written anew."""
    last = len(reply("d", "c", "done"))

    def act(fd):
        size = os.fstat(fd).st_size - last
        os.ftruncate(fd, size)
        os.pwrite(fd, LATE + MORE, size)
        os.close(fd)

    scene.waiter(act, os.O_RDWR)
    scene.bench.prune()
    scene.later()
    live = scene.bench.live()
    assert LATE in live
    assert MORE in live
    assert [one for one in live.splitlines() if not one.startswith(b"{")] == []


def test_change_in_the_middle_of_the_old_file_is_kept(scene):
    """A writer that changes an early line in place, and nothing else."""
    at = TALK.index(b"please")

    def act(fd):
        os.pwrite(fd, b"PLEASE", at)
        os.close(fd)

    scene.waiter(act, os.O_WRONLY)
    scene.bench.prune()
    scene.later()
    assert b"PLEASE" in scene.bench.live()


def test_restart_while_somebody_holds_the_old_file_follows_on(scene):
    """What is written after the restart comes as well; and again after the next one."""
    scene.waiter(writes(LATE, close=False))
    assert scene.bench.prune().replaced.held
    for more in (MORE, b'{"n":3}\n'):
        scene.killed()
        scene.bench.put_right()
        scene.writer().write(more)
        scene.bench.follower.look()
        assert scene.bench.live().endswith(more)
    scene.writer().close()
    scene.later()
    assert scene.bench.live().count(LATE) == 1
    assert scene.bench.leftovers() == []


def test_real_writer_over_a_restart_loses_nothing(tmp_path):
    """A process of its own that met the change of names; no hook on our side."""
    bench = Workbench(tmp_path / "bench")
    bench.write(MAIN, TALK)
    code = (
        "import os, sys, time\n"
        "p = sys.argv[1]\n"
        "while True:\n"
        "    fd = os.open(p, os.O_WRONLY | os.O_APPEND)\n"
        "    if os.stat(p).st_ino != os.fstat(fd).st_ino: break\n"
        "    os.close(fd); time.sleep(.0005)\n"
        "os.write(fd, b'{\"first\":1}\\n'); print('held', flush=True); sys.stdin.readline()\n"
        "os.write(fd, b'{\"second\":2}\\n'); os.close(fd)\n"
    )
    started = [sys.executable, "-c", code, str(bench.root / MAIN)]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        try:
            if not _met(bench):
                pytest.skip("the writer never met the change of names")
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"held\n"
            bench.follower.look()
            assert b'"first"' in bench.live()
            bench.follower.close()
            bench.put_right()
            writer.communicate(b"\n", timeout=20)
            bench.follower.look()
            assert b'"second"' in bench.live()
        finally:
            writer.kill()


def _met(bench):
    for at in range(400):
        try:
            done = bench.prune(now_ms=at + 1)
        except (FileBusy, FileChanged):
            continue
        except NothingToGain:
            bench.write(MAIN, TALK)
            continue
        if done.replaced.held:
            return True
        bench.follower.close()
        bench.put_right()
        bench.write(MAIN, TALK)
    return False


def test_late_record_without_newline_is_kept(scene):
    """A whole record, its newline never written: it is in the live file all the same."""
    scene.waiter(writes(LATE[:-1]))
    scene.bench.prune()
    scene.later()
    assert LATE[:-1] in scene.bench.live()


def test_late_unfinished_line_of_a_holder_is_kept_at_the_end(scene):
    """It closes the file in the middle of a line: what there is of it is kept as a line."""
    scene.waiter(writes(LATE[:50], close=False))
    scene.bench.prune()
    scene.bench.append(MAIN, MORE)
    scene.writer().close()
    scene.later()
    assert scene.bench.live().endswith(MORE + LATE[:50] + b"\n")


def test_record_in_two_halves_over_the_change_of_names_is_whole(scene):
    """The first half went to the old file, the second to the new one."""
    scene.waiter(writes(LATE[:50]))
    scene.bench.prune()
    scene.bench.append(MAIN, LATE[50:])
    scene.later()
    assert LATE in scene.bench.live()


def test_room_running_out_inside_a_late_record_tears_nothing(tmp_path, monkeypatch):
    """Half an append, then a full disk: the rest follows when there is room, and no more."""
    effects = Failing("write", 1, half=True)
    scene = Scene(tmp_path, monkeypatch, effects)
    scene.waiter(writes(LATE, close=False))
    scene.bench.prune()
    scene.writer().write(MORE + b'{"n":3}\n')
    effects.on = True
    scene.bench.follower.look()
    looked = scene.bench.follower.look()
    assert [type(one) for one in looked.faults] in ([], [DiskFull])
    effects.on = False
    scene.bench.follower.look()
    live = scene.bench.live()
    assert live[live.index(LATE) :] == LATE + MORE + b'{"n":3}\n'


def test_room_running_out_and_a_kill_tear_nothing(tmp_path, monkeypatch):
    """Half an append, a full disk, the end of the daemon: the next start writes the rest."""
    effects = Failing("write", 1, half=True)
    scene = Scene(tmp_path, monkeypatch, effects)
    scene.waiter(writes(LATE, close=False))
    scene.bench.prune()
    scene.writer().write(MORE)
    scene.writer().close()
    effects.on = True
    scene.bench.follower.look()
    effects.on = False
    scene.killed()
    scene.bench.put_right()
    live = scene.bench.live()
    assert live[live.index(LATE) :] == LATE + MORE


@pytest.mark.parametrize(("whole", "half"), [(1, False), (2, True)])
def test_room_running_out_behind_the_closed_door_is_taken_back(tmp_path, monkeypatch, whole, half):
    """No run of NULs stays, nothing is there twice."""
    effects = Failing("pwrite", whole, half=half)
    scene = Scene(tmp_path, monkeypatch, effects)

    def act(fd):
        os.write(fd, LATE + MORE)
        os.close(fd)
        effects.on = True

    scene.waiter(act)
    done = scene.bench.prune()
    effects.on = False
    scene.bench.follower.look()
    assert done.replaced.fault is not None
    live = scene.bench.live()
    assert b"\0" not in live
    assert live.endswith(LATE + MORE)
    assert live.count(LATE) == 1


def test_death_between_the_two_writes_of_a_late_line_is_filled_in(tmp_path, monkeypatch):
    """The last byte was written and the rest was not: the next start puts it in its place."""
    effects = Failing("pwrite", 1, dies=True)
    scene = Scene(tmp_path, monkeypatch, effects)

    def act(fd):
        os.write(fd, LATE)
        os.close(fd)
        effects.on = True

    scene.waiter(act)
    scene.dying(scene.bench.prune)
    effects.on = False
    assert b"\0" in scene.bench.live()
    scene.bench.append(MAIN, MORE)
    scene.bench.put_right()
    assert b"\0" not in scene.bench.live()
    assert scene.bench.live().endswith(LATE + MORE)


def test_one_old_file_that_cannot_be_carried_over_keeps_no_other_waiting(scene):
    """A live file that was made a link is told of; the other gets its line."""
    other = "-q/s2.jsonl"
    scene.bench.write(other, TALK)
    scene.waiter(writes(LATE, close=False))
    scene.bench.prune()
    scene.waiter(writes(LATE, close=False), name=other)
    scene.bench.prune(other)
    (scene.bench.root / MAIN).unlink()
    (scene.bench.root / MAIN).symlink_to("/nonexistent")
    scene.writer().write(b'{"n":1}\n')
    scene.writer(other).write(b'{"n":2}\n')
    looked = scene.bench.follower.look()
    assert len(looked.faults) == 1
    assert b'{"n":2}\n' in scene.bench.live(other)


def test_note_that_cannot_be_finished_keeps_no_other_waiting(scene):
    """Two were interrupted, one transcript was deleted since: the other gets its line."""
    other = "-q/s2.jsonl"
    scene.bench.write(other, TALK)
    for name in (MAIN, other):
        scene.waiter(writes(LATE, close=False), name=name)
        scene.bench.prune(name)
    scene.killed()
    notes = sorted(Path(scene.bench.pending).iterdir())
    first = json.loads(notes[0].read_text())["path"]
    gone, left = (MAIN, other) if first.endswith("s1.jsonl") else (other, MAIN)
    for name in (MAIN, other):
        scene.writer(name).write(b'{"n":1}\n')
        scene.writer(name).close()
    (scene.bench.root / gone).unlink()
    scene.bench.put_right()
    assert b'{"n":1}\n' in scene.bench.live(left)
    assert any(gone.rpartition("/")[0] in one for one in scene.bench.leftovers())


def test_older_note_of_a_file_that_was_pruned_again_brings_nothing_back(scene):
    """A late line that a second prune took out is not carried over once more."""
    blob = line({"type": "api-request-blob", "id": "y" * 500})
    scene.waiter(writes(blob))
    scene.bench.prune()
    assert blob in scene.bench.live()
    scene.bench.append(MAIN, LATE)
    scene.bench.prune(now_ms=2)
    pruned = scene.bench.live()
    assert blob not in pruned
    scene.killed()
    scene.bench.put_right()
    assert scene.bench.live() == pruned
    assert scene.bench.leftovers() == []


def test_projects_folder_out_of_sight_at_the_start_is_waited_for(scene):
    """Not mounted yet: the note stays, the prune counts as done, nothing is lost."""
    scene.waiter(writes(LATE, close=False))
    scene.bench.prune()
    scene.killed()
    scene.writer().write(MORE)
    scene.writer().close()
    away = scene.bench.root.with_name("away")
    scene.bench.root.rename(away)
    scene.bench.put_right()
    away.rename(scene.bench.root)
    scene.bench.put_right()
    assert scene.bench.live().endswith(LATE + MORE)
    scene.later()
    scene.bench.undo()
    assert scene.bench.live() == TALK + LATE + MORE


def test_late_line_equal_to_an_earlier_one_is_kept(scene):
    """A title may be given, changed and given again: the last one counts."""

    def title(text):
        return line({"type": "custom-title", "customTitle": text, "sessionId": "s1"})

    scene.bench.write(MAIN, TALK + title("A") + title("B"))
    scene.waiter(writes(title("A")))
    scene.monkeypatch.setattr(Door, "_let_in", _dies_at_the_door)
    scene.dying(scene.bench.prune)
    scene.writer().thread.join(5)
    scene.bench.put_right()
    assert scene.bench.live().endswith(title("B") + title("A"))


def _dies_at_the_door(_door, live, new, *_):
    live.unlease()
    new.close()
    raise Dead


def test_record_in_two_halves_over_a_death_is_whole(scene):
    """Its first half came before the door closed, the second after; then the daemon died."""
    keep = scene.bench.vault.keep_pruned

    def keep_pruned(*given, **more):
        done = keep(*given, **more)
        scene.bench.append(MAIN, LATE[:60])
        return done

    scene.monkeypatch.setattr(scene.bench.vault, "keep_pruned", keep_pruned)
    scene.monkeypatch.setattr(Door, "_let_in", _dies_at_the_door)
    scene.waiter(writes(LATE[60:]))
    scene.dying(scene.bench.prune)
    scene.writer().thread.join(5)
    scene.bench.put_right()
    assert LATE in scene.bench.live()


def test_death_before_the_change_of_names_takes_back_a_prune_that_is_a_beginning(scene):
    """The pruned image is the beginning of the old one: it did not happen all the same."""
    scene.bench.write(MAIN, PREFIX)

    def die(*_):
        raise Dead

    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "exchange", die)
        scene.dying(scene.bench.prune)
    scene.bench.put_right()
    assert scene.bench.live() == PREFIX
    assert [one.card.kind for one in scene.bench.lineage(MAIN)] == ["raw"]
    with pytest.raises(UndoImpossible):
        scene.bench.undo()


def test_original_put_back_by_hand_is_not_taken_for_the_pruned_one(scene):
    """Undo then has nothing to take back, and adds nothing."""
    scene.bench.write(MAIN, PREFIX)
    scene.bench.prune()
    assert PREFIX.startswith(scene.bench.live())
    scene.bench.write(MAIN, PREFIX)
    with pytest.raises(UndoImpossible):
        scene.bench.undo()
    assert scene.bench.live() == PREFIX


def test_undo_that_was_not_written_down_is_not_done_twice(scene):
    """Killed just after it: asking again adds nothing."""
    scene.bench.write(MAIN, PREFIX)
    scene.bench.prune()
    scene.later()
    scene.bench.undo()
    scene.killed()
    scene.bench.put_right()
    with pytest.raises(UndoImpossible):
        scene.bench.undo()
    assert scene.bench.live() == PREFIX


def test_rewritten_after_a_death_before_the_change_of_names_stays_as_it_is(scene):
    """The client went on and then wrote its file anew: what it left out stays out."""

    def die(*_):
        raise Dead

    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "exchange", die)
        scene.dying(scene.bench.prune)
    scene.bench.append(MAIN, LATE)
    new = reply("q", None, "only this")
    beside = scene.bench.root / "-p" / "s1.jsonl.tmp"
    beside.write_bytes(new)
    beside.rename(scene.bench.root / MAIN)
    scene.bench.put_right()
    assert scene.bench.live() == new
    assert scene.bench.leftovers() == []


def test_fault_after_the_change_of_names_takes_nothing_back(scene):
    """Closing the new file fails: the prune counts, late lines come, undo works."""
    close = PosixNewFile.close

    def failing(new):
        there = new.fd >= 0 and new.path.endswith("s1.jsonl")
        close(new)
        if there:
            raise AccessDenied("EIO")

    scene.waiter(writes(LATE, close=False))
    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "close", failing)
        done = scene.bench.prune()
    assert done.replaced.fault is not None
    scene.writer().write(MORE)
    scene.writer().close()
    scene.later()
    scene.bench.undo()
    assert scene.bench.live() == TALK + LATE + MORE


def test_folder_that_cannot_be_synced_leaves_the_old_file_followed(scene):
    """The fault is told, and late lines come all the same."""
    sync = PosixFiles.sync_folder

    def failing(files, path):
        if path.startswith(str(scene.bench.root)):
            raise AccessDenied("EIO")
        sync(files, path)

    scene.waiter(writes(LATE, close=False))
    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixFiles, "sync_folder", failing)
        done = scene.bench.prune()
    assert done.replaced.fault is not None
    scene.writer().write(MORE)
    scene.bench.follower.look()
    assert scene.bench.live().endswith(LATE + MORE)


@pytest.mark.parametrize("grown", [True, False], ids=["grown", "unfinished"])
def test_change_in_place_during_the_prune_stops_it(scene, grown):
    """A few bytes in the middle of a large file, whether or not it also grew."""
    data = b"".join(
        prompt(f"{at:03x}", f"{at - 1:03x}" if at else None, "word " * 200) for at in range(600)
    )
    data += TALK[len(prompt("a", None, "please")) :].replace(b"0a", b"0a")
    whole = data if grown else data + reply("e", "d", "x")[:-1]
    scene.bench.write(MAIN, whole)
    at = whole.index(b"word ", len(whole) * 5 // 18)
    keep = scene.bench.vault.keep_pruned

    def keep_pruned(*given, **more):
        done = keep(*given, **more)
        with (scene.bench.root / MAIN).open("r+b") as handle:
            handle.seek(at)
            handle.write(b"EDIT ")
        if grown:
            scene.bench.append(MAIN, MORE)
        return done

    scene.monkeypatch.setattr(scene.bench.vault, "keep_pruned", keep_pruned)
    with pytest.raises(FileChanged):
        scene.bench.prune()
    assert b"EDIT " in scene.bench.live()


def test_file_put_there_in_the_last_moment_is_kept(scene):
    """The client renames its own file over the path just before the name changes hands."""
    leased = PosixNewFile.leased
    path = scene.bench.root / MAIN

    def renamed(new):
        done = leased(new)
        beside = path.with_name("mine")
        beside.write_bytes(LATE)
        beside.rename(path)
        return done

    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "leased", renamed)
        scene.bench.prune()
    scene.later()
    assert LATE in scene.bench.live()
    assert scene.bench.leftovers() == []


def test_file_put_there_in_the_last_moment_is_kept_over_a_death(scene):
    """The same, and the daemon dies before it has looked."""
    leased = PosixNewFile.leased
    path = scene.bench.root / MAIN

    def renamed(new):
        done = leased(new)
        beside = path.with_name("mine")
        beside.write_bytes(LATE)
        beside.rename(path)
        return done

    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "leased", renamed)
        patched.setattr(Door, "_let_in", _dies_at_the_door)
        scene.dying(scene.bench.prune)
    scene.bench.put_right()
    assert LATE in scene.bench.live()


def test_hard_link_made_in_the_last_moment_is_followed(scene):
    """What comes through the other name is carried over, as long as there is one."""
    leased = PosixNewFile.leased

    def linked(new):
        done = leased(new)
        os.link(scene.bench.root / MAIN, scene.bench.folder / "other")
        return done

    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "leased", linked)
        scene.bench.prune()
    scene.later()
    with (scene.bench.folder / "other").open("ab") as handle:
        handle.write(LATE)
    scene.bench.follower.look()
    assert LATE in scene.bench.live()
    (scene.bench.folder / "other").unlink()
    scene.later()
    assert scene.bench.leftovers() == []


def test_without_leases_a_holder_is_followed_for_long(scene):
    """Half a minute is not the end: there is no telling that nobody has it open."""
    scene.monkeypatch.setattr(leases, "take", lambda *_: False)
    fd = os.open(scene.bench.root / MAIN, APPEND)
    scene.bench.prune()
    scene.clock.ahead = 3600
    scene.bench.follower.look()
    os.write(fd, LATE)
    os.close(fd)
    scene.bench.follower.look()
    assert scene.bench.live().endswith(LATE)
    scene.clock.ahead = 200_000
    scene.bench.follower.look()
    assert scene.bench.leftovers() == []


def test_without_leases_a_restart_follows_on(scene):
    """The next daemon takes the old file over."""
    scene.monkeypatch.setattr(leases, "take", lambda *_: False)
    fd = os.open(scene.bench.root / MAIN, APPEND)
    scene.bench.prune()
    scene.killed()
    scene.bench.put_right()
    os.write(fd, LATE)
    os.close(fd)
    scene.bench.follower.look()
    assert scene.bench.live().endswith(LATE)


def test_second_name_that_cannot_be_removed_keeps_its_note(scene):
    """A refusal whose cleaning up fails: the next start cleans up, and prunes work again."""
    remove = PosixFiles.remove

    def refuse(*_):
        raise AccessDenied("EIO")

    def failing(files, path):
        if "old-" in path:
            raise AccessDenied("EIO")
        return remove(files, path)

    with scene.monkeypatch.context() as patched:
        patched.setattr(PosixNewFile, "exchange", refuse)
        patched.setattr(PosixFiles, "remove", failing)
        with pytest.raises(FabledError):
            scene.bench.prune()
    assert scene.bench.live() == TALK
    scene.bench.put_right()
    assert scene.bench.leftovers() == []
    scene.bench.prune(now_ms=2)


def test_late_bytes_are_durable_before_the_old_name_goes(tmp_path, monkeypatch):
    """The live file is synced after the last late byte, and before the second name is removed."""

    class Told(Effects):
        def __init__(self):
            self.calls = []

        def sync(self, fd):
            self.calls.append(("sync", os.fstat(fd).st_ino))
            super().sync(fd)

        def pwrite(self, fd, data, offset):
            self.calls.append(("late", os.fstat(fd).st_ino))
            return super().pwrite(fd, data, offset)

        def unlink(self, path):
            self.calls.append(("unlink", path))
            super().unlink(path)

    told = Told()
    scene = Scene(tmp_path, monkeypatch, told)
    scene.waiter(writes(LATE))
    scene.bench.prune()
    scene.later()
    inode = (scene.bench.root / MAIN).stat().st_ino
    late = max(at for at, call in enumerate(told.calls) if call == ("late", inode))
    synced = max(at for at, call in enumerate(told.calls) if call == ("sync", inode))
    gone = max(at for at, (what, path) in enumerate(told.calls) if "fabled-old-" in str(path))
    assert late < synced < gone


def test_pruned_file_keeps_its_group(scene):
    """Mode, times, attributes and group are those of the file it replaced."""
    path = scene.bench.root / MAIN
    try:
        os.chown(path, -1, 1)
    except OSError:
        pytest.skip("only root may give a file to a group it is not in")
    scene.bench.prune()
    assert path.stat().st_gid == 1

"""Prune, undo, handoff and events through the daemon and the client."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.test_vault import daemon, post, sealed, write
from tests.support.daemons import CLIENT
from tests.support.transcripts import prompt, reply, tool_call, tool_result, uid
from tests.support.waiting import until

BY_HAND = "[archive]\nquiet = 1\n[prune]\nenabled = false\nquiet = 0\n"
BY_ITSELF = "[archive]\nquiet = 1\n[prune]\nquiet = 1\nmin_bytes = 1000\nmin_gain = 0.1\n"


def bulky(name="s"):
    """A session of which much is a second copy."""
    return (
        prompt(f"{name}1", None, f"list the {name}wombats")
        + tool_call(f"{name}2", f"{name}1", f"toolu_{name}", "ls")
        + tool_result(f"{name}3", f"{name}2", f"toolu_{name}", "wombat " * 600)
        + reply(f"{name}4", f"{name}3", "We decided to use marsupials instead of rodents.")
    )


@pytest.fixture
def path(tmp_path):
    """One bulky session, quiet for an hour."""
    return write(tmp_path / "claude" / "projects" / "-p" / "s1.jsonl", bulky())


def test_prune_by_hand_shows_saves_and_is_taken_back(tmp_path, path):
    """Dry run, output, prune, undo: sizes agree, bytes come back, blocks never change."""
    before = path.read_bytes()
    with daemon(tmp_path, path.parent.parent, BY_HAND) as running:
        running.idle()
        dry = json.loads(running.client("prune", "s1", "--dry-run", "--json").stdout)
        (shown,) = dry["sessions"]
        assert (shown["session"], shown["applied"], shown["refused"]) == ("s1", False, None)
        assert path.read_bytes() == before
        image = tmp_path / "image.jsonl"
        assert running.client("prune", "s1", "--output", str(image)).returncode == 0
        assert (path.read_bytes(), image.stat().st_size) == (before, shown["after_bytes"])
        done = running.client("prune", str(path))
        assert done.returncode == 0, done.stderr
        assert path.read_bytes() == image.read_bytes()
        assert running.status()["prune"]["saved_bytes"] == len(before) - image.stat().st_size
        running.idle()
        for number, raw in enumerate(before.splitlines(), 1):
            assert running.block(uid(f"s{number}")).body == raw
        with path.open("ab") as handle:
            handle.write(prompt("later", "s4", "and now?"))
        assert running.client("undo", "s1").returncode == 0
        assert path.read_bytes() == before + prompt("later", "s4", "and now?")
        again = running.client("undo", "s1", "--json")
        assert again.returncode == 5
        assert json.loads(again.stderr)["error"]["code"] == "undo_impossible"
        names = [event["event"] for event in running.json("/v1/events", session="s1")["events"]]
        assert names.count("pruned") == names.count("undone") == 1
        assert running.status()["prune"] == {"count": 0, "saved_bytes": 0, "last": None}
        listing = running.json("/v1/sessions/s1")
        assert [one["undone"] for one in listing["prunes"]] == [True]


def test_job_prunes_quiet_sessions_by_itself_and_leaves_an_undone_one_alone(tmp_path, path):
    """Large and quiet: pruned; taken back by hand: never again by itself."""
    before = path.read_bytes()
    with daemon(tmp_path, path.parent.parent, BY_ITSELF) as running:
        until(lambda: path.stat().st_size < len(before), 40)
        until(lambda: running.status()["prune"]["count"] == 1, 10)
        assert running.client("undo", "s1").returncode == 0
        assert path.read_bytes() == before
        jobs = running.status()["jobs"]
        last = next(job["last_run"] for job in jobs if job["name"] == "prune")

        def ran_again():
            (job,) = [job for job in running.status()["jobs"] if job["name"] == "prune"]
            return job["last_run"] > last and job["last_result"].startswith("ok: 0 pruned")

        until(ran_again, 30)
        assert path.read_bytes() == before


def test_project_override_keeps_one_project_from_being_pruned(tmp_path, path):
    """[prune.projects."..."] wins over [prune], by folder or by working folder."""
    other = write(path.parent.parent / "-q" / "s2.jsonl", bulky("t").replace(b"/home/me", b"/o/me"))
    size = other.stat().st_size
    config = BY_ITSELF + '[prune.projects."/o/me/project"]\nenabled = false\n'
    with daemon(tmp_path, path.parent.parent, config) as running:
        until(lambda: running.status()["prune"]["count"] == 1, 40)
        assert other.stat().st_size == size


def test_session_that_a_client_works_on_is_refused_until_that_ends(tmp_path, path):
    """sessions/PID.json with a living process and its start time: refused, by hand as well."""
    notes = tmp_path / "claude" / "sessions"
    notes.mkdir()
    start = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    note = {"pid": os.getpid(), "sessionId": "s1", "procStart": start, "status": "idle"}
    (notes / f"{os.getpid()}.json").write_text(json.dumps(note))
    (notes / f"{os.getpid()}.abcdef.key").write_text("never read this")
    before = path.read_bytes()
    with daemon(tmp_path, path.parent.parent, BY_HAND) as running:
        running.idle()
        done = running.client("prune", "s1", "--json")
        assert done.returncode == 5
        assert json.loads(done.stdout)["sessions"][0]["refused"]["code"] == "session_live"
        assert path.read_bytes() == before
        (notes / f"{os.getpid()}.json").write_text(json.dumps({**note, "procStart": "1"}))
        assert running.client("prune", "s1").returncode == 0
        home = tmp_path / "run" / "home"
        assert not [p for p in home.rglob("*") if p.is_file() and b"never read" in p.read_bytes()]


def test_transcript_changed_just_now_is_refused_as_not_quiet(tmp_path, path):
    """prune.quiet counts by hand as well; only min_bytes and min_gain do not."""
    os.utime(path)
    with daemon(tmp_path, path.parent.parent, "[prune]\nenabled = false\n") as running:
        running.idle()
        done = running.client("prune", "s1", "--json")
        assert done.returncode == 5
        assert json.loads(done.stdout)["sessions"][0]["refused"]["code"] == "not_quiet"


def test_killed_daemon_leaves_a_prune_before_or_after_and_the_next_start_tidies_up(tmp_path, path):
    """SIGKILL at random moments of prunes: bytes are before or after, nothing of ours is left."""
    before = path.read_bytes()
    after = None
    for delay in (0.0, 0.01, 0.02, 0.04, 0.06, 0.1):
        path.write_bytes(before)
        os.utime(path, (time.time() - 3600,) * 2)
        running = daemon(tmp_path, path.parent.parent, BY_HAND)
        running.idle()
        order = subprocess.Popen(
            [*CLIENT, "prune", "s1"],
            env=running.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.15 + delay)
        running.kill()
        order.wait()
        with daemon(tmp_path, path.parent.parent, BY_HAND) as again:
            again.idle()
            until(lambda: not list((tmp_path / "run" / "home" / "pending").glob("*")) or 0, 40)
            assert not list(path.parent.glob(".fabled-*"))
            live = path.read_bytes()
            if live != before:
                after = after or live
                assert live == after
            for number, raw in enumerate(before.splitlines(), 1):
                assert again.block(uid(f"s{number}")).body == raw
            assert post(again, "/v1/vault/verify")[-1]["damaged"] == 0


def test_deleted_after_archive_restored_sessions_and_events_are_followed(tmp_path, path):
    """`events --follow --json` prints each event as it happens; restore by the client works."""
    before = path.read_bytes()
    with daemon(tmp_path, path.parent.parent, BY_HAND) as running:
        sealed(running)
        running.idle()
        path.unlink()
        (path.parent / "keep").write_text("x")
        until(lambda: running.status()["map"]["files"] == 0, 30)
        shown = running.client("sessions", "--vanished", "--json")
        assert [row["session"] for row in json.loads(shown.stdout)["sessions"]] == ["s1"]
        done = running.client("vault", "restore", "s1")
        assert done.returncode == 0, done.stderr
        assert path.read_bytes() == before
        listed = running.client("events", "--json")
        names = [event["event"] for event in json.loads(listed.stdout)["events"]]
        assert names[-2:] == ["vanished", "restored"]


def test_handoff_names_files_decisions_and_what_is_open(tmp_path, path):
    """Markdown with the last words both ways, as they were said."""
    with daemon(tmp_path, path.parent.parent, BY_HAND) as running:
        running.idle()
        text = running.client("handoff", "s1").stdout.decode()
        assert "> We decided to use marsupials instead of rodents." in text
        assert "## Decisions" in text
        assert f"`{uid('s4')}`" in text
        target = tmp_path / "HANDOFF.md"
        assert running.client("handoff", "s1", "-o", str(target)).returncode == 0
        assert target.read_text() == text
        assert running.client("handoff", "s1", "-o", str(target)).returncode == 2


def test_overwrite_puts_an_old_image_in_place_and_keeps_what_was_there(tmp_path, path):
    """`restore --overwrite`: what differs is sealed first, then replaced."""
    before = path.read_bytes()
    with daemon(tmp_path, path.parent.parent, BY_HAND) as running:
        sealed(running)
        write(path, prompt("other", None, "something else"))
        running.idle()
        done = running.client("vault", "restore", "s1", "--generation", "0")
        assert done.returncode == 5
        done = running.client("vault", "restore", "s1", "--generation", "0", "--overwrite")
        assert done.returncode == 0, done.stderr
        assert path.read_bytes() == before
        running.idle()
        assert running.block(uid("other")).status == 200


def test_events_are_followed_as_they_happen(tmp_path, path):
    """`events --follow --json` prints a line for each new event, at once."""
    with daemon(tmp_path, path.parent.parent, BY_HAND) as running:
        sealed(running)
        running.idle()
        follow = subprocess.Popen(
            [*CLIENT, "events", "--follow", "--json", "-n", "1"],
            env=running.environment,
            stdout=subprocess.PIPE,
        )
        assert follow.stdout is not None
        try:
            assert json.loads(follow.stdout.readline())["event"] == "sealed"
            assert running.client("prune", "s1").returncode == 0
            assert json.loads(follow.stdout.readline())["event"] == "pruned"
        finally:
            follow.kill()
            follow.wait()
            follow.stdout.close()


def test_session_that_cannot_be_shrunk_is_not_tried_again(tmp_path, path):
    """Declined once, with the reason in the journal; then left alone until it has grown."""
    mixed = b"".join(
        prompt(f"x{n}", f"x{n - 1}" if n else None, "w " * 400, session=f"s{n % 2}")
        for n in range(6)
    )
    write(path, mixed)
    with daemon(tmp_path, path.parent.parent, BY_ITSELF) as running:

        def declined():
            found = running.json("/v1/events")["events"]
            return [event for event in found if event["event"] == "declined"]

        until(declined, 40)
        runs = {job["last_run"] for job in running.status()["jobs"] if job["name"] == "prune"}

        def three_more():
            runs.update(j["last_run"] for j in running.status()["jobs"] if j["name"] == "prune")
            return len(runs) >= 4

        until(three_more, 30)
        assert len(declined()) == 1
        assert declined()[0]["detail"] == {"why": "prune_declined"}
        assert path.read_bytes() == mixed


def test_retention_of_zero_and_a_full_vault_are_warnings(tmp_path, path):
    """CleanupPeriodDays 0: the client may write nothing; a cap never deletes the only copy."""
    (tmp_path / "claude" / "settings.json").write_text('{"cleanupPeriodDays": 0}')
    config = BY_HAND + "[vault]\nmax_bytes = 10\n"
    with daemon(tmp_path, path.parent.parent, config) as running:
        sealed(running)
        until(lambda: "cleanupPeriodDays is 0" in " ".join(running.status()["warnings"]), 30)
        assert "vault.max_bytes is 10" in " ".join(running.status()["warnings"])
        assert running.status()["vault"]["generations"] == 1

"""`vault`, `prune`, `undo`, `forget`, `events`, `handoff`: what is asked, shown, and the exit."""

from __future__ import annotations

import json

import pytest

from tests.client.objects import SESSION, event, generation
from tests.support.stub_daemon import error, fablectl, reply


def lines(*steps):
    """The reply of a long order."""
    return reply(b"".join(json.dumps(step).encode() + b"\n" for step in steps))


def pruned(**more):
    """One session of a prune's answer."""
    return {
        "session": SESSION,
        "level": "transparent",
        "mode": "resume",
        "before_bytes": 5_000_000,
        "after_bytes": 400_000,
        "rules": [{"rule": "before-boundary", "records": 1020, "bytes": 4_600_000}],
        "applied": False,
        "refused": None,
        **more,
    }


REFUSED = {"code": "session_live", "message": "process 7 works on it", "hint": "End it."}


def test_prune_asks_for_what_it_was_told_and_itemises_the_savings(stub, tmp_path):
    """Paths made absolute, options as parameters; rules, sizes and share in the answer."""
    stub.says(lines({"step": "done", "sessions": [pruned()]}))
    done = fablectl("prune", "a.jsonl", "--level", "lean", "--keep-prompts", "2", "--dry-run")
    assert done.returncode == 0, done.stderr
    (asked,) = stub.asked
    assert asked.method == "POST"
    assert "/v1/prune?session=%2F" in asked.target
    assert asked.target.endswith("a.jsonl&dry_run=1&level=lean&keep_prompts=2")
    said = done.stdout.decode()
    assert "before-boundary" in said
    assert "1,020 records" in said
    assert "5.0 MB -> 400 kB" in said
    assert "-92%" in said
    assert b"Would save 4.6 MB in 1 session." in done.stderr


def test_prune_as_json_is_the_object_of_the_interface(stub):
    """{"sessions": [...]} and nothing else."""
    stub.says(lines({"step": "session", **pruned()}, {"step": "done", "sessions": [pruned()]}))
    done = fablectl("prune", "x", "--json")
    assert json.loads(done.stdout) == {"sessions": [pruned()]}


@pytest.mark.parametrize(("names", "status"), [(["x"], 5), ([], 0)])
def test_refused_prune_is_an_exit_status_only_when_it_was_named(stub, names, status):
    """Named and refused: the refusal's status; all sessions: refusals are normal."""
    stub.says(lines({"step": "done", "sessions": [pruned(refused=REFUSED)]}))
    done = fablectl("prune", *names)
    assert done.returncode == status
    assert "process 7 works on it" in done.stdout.decode()


def test_output_needs_exactly_one_session(stub):
    """Two images cannot have one name: a usage error before anything is asked."""
    assert fablectl("prune", "--output", "x.jsonl").returncode == 2
    assert stub.asked == []


def test_vault_list_is_a_table_and_json_is_as_sent(stub):
    """Numbers, kinds and sizes for a person; every key for a script."""
    answer = {
        "generations": [generation()],
        "totals": {"generations": 1, "bytes": 300_000, "raw_bytes": 1_500_000},
    }
    stub.answers(answer)
    said = fablectl("vault", "list", SESSION)
    assert "1.5 MB" in said.stdout.decode()
    assert stub.asked[-1].target == f"/v1/vault?session={SESSION}"
    assert json.loads(fablectl("vault", "list", "--json").stdout) == answer


def test_vault_verify_with_damage_exits_6_after_saying_where(stub):
    """Every damaged place is printed; the exit status is that of damaged data."""
    damage = {
        "step": "damaged",
        "path": "/v/x",
        "session": "s",
        "what": "w",
        "message": "/v/x: bad",
    }
    done = {"step": "done", "generations": 3, "bytes": 9, "records": 4, "damaged": 1}
    stub.says(lines({"step": "progress", "done_bytes": 1, "total_bytes": 9}, damage, done))
    said = fablectl("vault", "verify")
    assert said.returncode == 6
    assert b"/v/x: bad" in said.stdout


def test_restore_reports_each_file_and_exits_by_the_first_refusal(stub):
    """Nothing restored and something refused: the refusal's status; otherwise 0."""
    skipped = {"step": "skipped", "session": "s", "path": "/p/s.jsonl", "code": "newer_data"}
    skipped |= {"message": "/p/s.jsonl is there and differs", "hint": "Use --to."}
    done = {"step": "done", "restored": 0, "bytes": 0, "skipped": 0, "refused": 1}
    stub.says(lines(skipped, done))
    said = fablectl("vault", "restore", "s", "--keep-mtime", "--to", "out", "--generation", "3")
    assert said.returncode == 5
    target = stub.asked[-1].target
    assert "keep_mtime=1" in target
    assert "generation=3" in target
    assert "to=%2F" in target
    restored = {"step": "restored", "session": "s", "path": "/p/a", "bytes": 5, "generation": 0}
    stub.says(lines(restored, skipped, {**done, "restored": 1, "bytes": 5}))
    assert fablectl("vault", "restore", "s").returncode == 0


def test_order_without_a_session_is_a_usage_error(stub):
    """Neither names nor --all, and both: nothing is asked."""
    assert fablectl("vault", "seal").returncode == 2
    assert fablectl("vault", "restore", "x", "--all").returncode == 2
    assert stub.asked == []


def test_stream_that_breaks_off_is_an_error(stub):
    """No last step: the work may not be done, and that is said."""
    stub.says(lines({"step": "sealed", "session": "s", "path": "/p", "bytes": 1}))
    assert fablectl("vault", "seal", "--all").returncode == 3


def test_error_in_a_stream_is_that_error(stub):
    """A line that carries an error ends the command with its status."""
    stub.says(lines({"error": {"code": "disk_full", "message": "no room", "hint": "free some"}}))
    done = fablectl("vault", "seal", "--all")
    assert done.returncode == 8
    assert b"no room" in done.stderr


def test_forget_does_nothing_unasked(stub):
    """Without a terminal and without --yes only the dry run is asked for."""
    answer = {"name": "s", "kind": "session", "records": 3, "generations": 1, "bytes": 9}
    stub.answers({**answer, "live": "untouched", "applied": False})
    done = fablectl("forget", "s")
    assert done.returncode == 2
    assert [asked.target for asked in stub.asked] == ["/v1/forget?name=s&dry_run=1"]
    stub.answers({**answer, "live": "untouched", "applied": True})
    assert fablectl("forget", "s", "--yes").returncode == 0
    assert stub.asked[-1].target == "/v1/forget?name=s"


def test_events_are_lines_and_follow_as_json_is_one_object_a_line(stub):
    """The log as sent; keep-alive lines are not events."""
    stub.answers({"events": [event()]})
    said = fablectl("events", "-n", "3")
    assert b"sealed" in said.stdout
    assert stub.asked[-1].target == "/v1/events?n=3"
    stub.says(lines(event(), {"step": "alive"}, event(event="pruned")))
    said = fablectl("events", "--follow", "--json")
    assert [json.loads(line)["event"] for line in said.stdout.splitlines()] == ["sealed", "pruned"]


def test_undo_and_handoff_say_what_they_did(stub, tmp_path):
    """Sizes after an undo; a hand-over on standard output or in a new file only."""
    stub.answers({"session": "s", "path": "/p/s.jsonl", "after_bytes": 9, "kept_bytes": 4})
    assert b"4 bytes appended" in fablectl("undo", "s").stderr
    stub.answers(error("undo_impossible"), status=409)
    assert fablectl("undo", "s").returncode == 5
    stub.answers({"session": "s", "text": "# Hand-over\n"})
    assert fablectl("handoff", "s").stdout == b"# Hand-over\n"
    target = tmp_path / "h.md"
    target.write_text("mine")
    assert fablectl("handoff", "s", "-o", str(target)).returncode == 2
    assert target.read_text() == "mine"

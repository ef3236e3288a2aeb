"""Answers as the interface describes them."""

from __future__ import annotations

THREAD = "u:5f0c1d9e-1111-4222-8333-444455556666"
SESSION = "0b6f3a52-aaaa-4bbb-8ccc-ddddeeeeffff"
RECORD = "7b8a2c1e-0c5f-4e0b-9a77-3f1f6f2f9d10"
FRESH = {"pending_files": 0, "pending_bytes": 0, "lag_s": 0.0}


def result(**more):
    """One search result."""
    return {
        "thread": THREAD,
        "session": SESSION,
        "project": "/home/ada/fabled",
        "title": "Why SQLite",
        "first_ts": "2026-11-30T09:00:00.000Z",
        "last_ts": "2026-11-30T10:30:00.000Z",
        "turns": 12,
        "est_tokens": 3400,
        "score": 1.5,
        "vanished": False,
        "records": [
            {
                "uuid": RECORD,
                "role": "user",
                "ts": "2026-11-30T09:00:00.000Z",
                "snippet": "why is SQLite the honest centre",
            }
        ],
        "card": None,
        **more,
    }


def found(*results, **more):
    """A search answer."""
    return {
        "query": "sqlite",
        "took_ms": 3.2,
        "approximate": False,
        "searched": {
            "records": 100,
            "threads": 10,
            "sessions": 3,
            "from": "2026-10-01T00:00:00.000Z",
            "to": "2026-12-01T00:00:00.000Z",
        },
        "freshness": FRESH,
        "results": list(results),
        **more,
    }


def thread(text, **more):
    """A thread answer."""
    return {
        "thread": THREAD,
        "session": SESSION,
        "project": "/home/ada/fabled",
        "title": "Why SQLite",
        "first_ts": None,
        "last_ts": None,
        "turns": 2,
        "est_tokens": 20,
        "budget": 8000,
        "text": text,
        "truncated": False,
        "records": [RECORD],
        "freshness": FRESH,
        **more,
    }


def recalled(text):
    """A recall answer."""
    return {
        "query": "sqlite",
        "text": text,
        "est_tokens": 20,
        "budget": 8000,
        "threads": [],
        "freshness": FRESH,
    }


def session(**more):
    """One row of the list of sessions."""
    return {
        "session": SESSION,
        "project": "/home/ada/fabled",
        "title": "Why SQLite",
        "first_ts": "2026-11-30T09:00:00.000Z",
        "last_ts": "2026-11-30T10:30:00.000Z",
        "threads": 2,
        "records": 40,
        "bytes": 1_500_000,
        "live_path": "/home/ada/.claude/projects/x/s.jsonl",
        "vanished": False,
        "sealed_bytes": 0,
        "unsealed_bytes": 1_500_000,
        **more,
    }


def one_session(**more):
    """The answer to `session`."""
    return {
        "session": session(),
        "threads": [
            {
                "thread": THREAD,
                "title": "Why SQLite",
                "first_ts": None,
                "last_ts": None,
                "turns": 12,
                "est_tokens": 3400,
            }
        ],
        "files": [
            {
                "path": "/home/ada/.claude/projects/x/s.jsonl",
                "kind": "main",
                "bytes": 1_500_000,
                "indexed_bytes": 1_400_000,
                "records": 40,
                "damage": 1,
            }
        ],
        "damage": [
            {
                "path": "/home/ada/.claude/projects/x/s.jsonl",
                "offset": 812,
                "length": 7,
                "line": 3,
                "reason": "not JSON",
            }
        ],
        "generations": [],
        "prunes": [],
        "events": [],
        **more,
    }


def event(**more):
    """One entry of the audit log."""
    return {
        "n": 7,
        "ts": "2026-11-30T10:30:00.000Z",
        "event": "sealed",
        "session": "0b6f3a52-aaaa-4bbb-8ccc-ddddeeeeffff",
        "project": "-home-ada-fabled",
        "path": "/home/ada/.claude/projects/x/s.jsonl",
        "detail": {"generation": 0, "kind": "raw", "bytes": 1500},
        **more,
    }


def generation(**more):
    """One generation as the Vault lists it."""
    return {
        "session": "0b6f3a52-aaaa-4bbb-8ccc-ddddeeeeffff",
        "project": "-home-ada-fabled",
        "path": "/home/ada/.claude/projects/x/s.jsonl",
        "kind": "raw",
        "number": 0,
        "base": None,
        "offset": 0,
        "size": 1_500_000,
        "stored": 300_000,
        "image_bytes": 1_500_000,
        "compression": "zstd",
        "sealed_at": "2026-11-30T10:30:00.000Z",
        "reason": "quiet",
        "receipt": None,
        "stored_path": "/home/ada/.local/share/fabled/vault/x/s/v0-raw.jsonl.zst",
        **more,
    }


def status(**more):
    """A status with something to say on every line."""
    return {
        "version": "0.1.0",
        "protocol": 1,
        "pid": 4711,
        "uptime_s": 93_784.0,
        "state": "indexing",
        "map": {
            "files": 107,
            "records": 9785,
            "copies": 9900,
            "threads": 246,
            "sessions": 102,
            "bytes": 24_000_000,
        },
        "pending": {"files": 3, "bytes": 1_200_000, "lag_s": 2.5},
        "progress": {"done_bytes": 520_000_000, "total_bytes": 1_040_000_000, "eta_s": 12.0},
        "vault": {
            "generations": 12,
            "bytes": 34_000_000,
            "raw_bytes": 643_000_000,
            "unsealed_bytes": 5_000_000,
        },
        "prune": {"count": 3, "saved_bytes": 120_000_000, "last": "2026-11-30T10:30:00.000Z"},
        "jobs": [
            {
                "name": "reconcile",
                "last_run": "2026-11-30T10:30:00.000Z",
                "last_result": "ok: 3 files",
                "next_run": "2026-11-30T10:31:00.000Z",
            }
        ],
        "at_risk": [
            {
                "session": SESSION,
                "project": "/home/ada/fabled",
                "title": "Why SQLite",
                "path": "/home/ada/.claude/projects/x/s.jsonl",
                "bytes": 10,
                "deleted_from": "2026-12-03T10:30:00.000Z",
                "sealed": False,
            }
        ],
        "roots": [{"path": "/home/ada/.claude/projects", "present": True, "watched": "events"}],
        "warnings": ["the disk is nearly full"],
        "rss_bytes": 45_000_000,
        "cpu_s": 12.3,
        **more,
    }

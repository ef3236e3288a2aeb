"""The daemon's own folder: lock, key, Map. Everything in it is private to the user."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied, AlreadyRunning
from fabled.transcript.sentinel import KEY_BYTES

if TYPE_CHECKING:
    from fabled.system import Files, Lock, System

LOCK, KEY, MAP = "lock", "sentinel.key", "map.db"
VAULT, EVENTS, PENDING, CARDS = "vault", "events.jsonl", "pending", "cards"
HEIR_S = 15.0
"""How long to wait for a child of a killed daemon, which still holds the lock, to end."""

_POLL_S = 0.1


class Home(NamedTuple):
    """A home that is ours until the lock is released."""

    path: str
    lock: Lock
    key: bytes
    map_path: str

    @property
    def vault(self) -> str:
        """The Vault's folder."""
        return f"{self.path}/{VAULT}"

    @property
    def cards(self) -> str:
        """The folder of the cards that cannot be derived."""
        return f"{self.path}/{CARDS}"

    @property
    def tombstones(self) -> tuple[str, str]:
        """The folders of the lists of what was forgotten."""
        return (self.path, self.vault)


def enter(system: System, path: str) -> Home:
    """Make the home if there is none, and lock it.

    Raises:
        AlreadyRunning: Another daemon holds it; the message names its process.
        AccessDenied: It cannot be used.
        DiskFull: There is no room for it.
    """
    system.files.make_private_dir(path)
    lock = _lock(system, f"{path}/{LOCK}", path)
    lock.write(f"{system.processes.pid()}\n")
    return Home(path, lock, _key(system.files, f"{path}/{KEY}"), f"{path}/{MAP}")


def _lock(system: System, path: str, home: str) -> Lock:
    deadline = system.clock.monotonic_s() + HEIR_S
    never = threading.Event()
    while True:
        lock = system.files.lock(path)
        if lock is not None:
            return lock
        holder = _holder(system.files, path)
        if holder is None or system.processes.alive(holder):
            who = f"process {holder}" if holder is not None else "another process"
            raise AlreadyRunning(f"{who} already runs a daemon on {home}")
        if system.clock.monotonic_s() > deadline:
            raise AlreadyRunning(f"a child of the ended process {holder} still holds {home}")
        system.clock.wait(never, _POLL_S)


def _holder(files: Files, path: str) -> int | None:
    text = (files.read_small(path, 64) or b"").strip()
    return int(text) if text.isdigit() else None


def _key(files: Files, path: str) -> bytes:
    """The key that signs what recall gives out; made once, the same for ever."""
    if files.read_small(path, KEY_BYTES * 2) is None:
        files.create_exclusive(path, secrets.token_bytes(KEY_BYTES))
    key = files.read_small(path, KEY_BYTES * 2) or b""
    if len(key) != KEY_BYTES:
        raise AccessDenied(
            f"{path} should hold {KEY_BYTES} bytes and holds {len(key)}",
            hint="Remove it: a new one is made. Text recalled so far is then indexed as new.",
        )
    return key

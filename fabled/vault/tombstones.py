"""What was forgotten, so that it is not indexed or sealed again: salted hashes, never names.

Kept in two files, in the home and in the Vault: losing one of them brings nothing back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING, NamedTuple

from fabled.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.system import Files
    from fabled.transcript.identity import Key

NAME = "tombstones.json"
LIMIT = 256 << 20
SALT_BYTES = 16
HASH_BYTES = 12
FORMAT = 1


class Buried(NamedTuple):
    """One state of the list: hashes of sessions' file stems, and of records."""

    salt: bytes
    sessions: frozenset[str]
    records: frozenset[str]


class Tombstones:
    """Reading needs no lock: a change replaces the whole value.

    Args:
        files: The file system.
        folders: Where its files lie; the first one that can be read counts, all are written.

    Raises:
        AccessDenied: A file is there and none of them can be used: going on would bring back
            what was to be forgotten.
    """

    def __init__(self, files: Files, folders: Iterable[str]) -> None:
        self._files = files
        self._folders = tuple(folders)
        self._paths = [f"{folder}/{NAME}" for folder in self._folders]
        self._buried = self._read()

    def _read(self) -> Buried:
        salt, sessions, records = b"", frozenset[str](), frozenset[str]()
        faults: list[str] = []
        for path in self._paths:
            found = _load(self._files, path)
            if isinstance(found, str):
                faults.append(found)
            elif found is not None and (not salt or found.salt == salt):
                salt = found.salt
                sessions |= found.sessions
                records |= found.records
        if faults and not salt:
            raise AccessDenied(
                "; ".join(faults),
                hint="Restore that file from a backup, or remove it and forget again.",
            )
        return Buried(salt, sessions, records)

    def refresh(self) -> None:
        """Read the files again: another process may have added to them."""
        self._buried = self._read()

    def __bool__(self) -> bool:
        return bool(self._buried.sessions or self._buried.records)

    def session(self, stem: str) -> bool:
        """Whether the session whose file has this name (without suffix) was forgotten."""
        buried = self._buried
        return bool(buried.sessions) and _hash(buried.salt, _text(stem)) in buried.sessions

    def file(self, path: str) -> bool:
        """Whether a file below a project folder was forgotten; `path` is below its root."""
        inner = path.partition("/")[2]
        return self.session(inner) or self.session(inner.partition("/")[0].removesuffix(".jsonl"))

    def record(self, key: Key, digest: bytes | None) -> bool:
        """Whether a record was forgotten.

        Args:
            key: Of a record with uuid.
            digest: Of the bytes of a record without uuid, whose key depends on its like.
        """
        buried = self._buried
        if not buried.records:
            return False
        name = digest if digest is not None else key
        return (
            _hash(buried.salt, name if isinstance(name, bytes) else _text(name)) in buried.records
        )

    def bury(self, stems: Iterable[str], records: Iterable[Key]) -> None:
        """Add to the list, durably, in every file, before it counts.

        Args:
            stems: Names of forgotten sessions' files.
            records: Keys of records with uuid, digests of the others.
        """
        old = self._buried
        salt = old.salt or secrets.token_bytes(SALT_BYTES)
        now = Buried(
            salt,
            old.sessions | {_hash(salt, _text(stem)) for stem in stems},
            old.records
            | {_hash(salt, key if isinstance(key, bytes) else _text(key)) for key in records},
        )
        value = {
            "format": FORMAT,
            "salt": salt.hex(),
            "sessions": sorted(now.sessions),
            "records": sorted(now.records),
        }
        data = json.dumps(value, indent=0).encode()
        for folder, path in zip(self._folders, self._paths, strict=True):
            self._files.make_private_dir(folder)
            self._files.write_private(path, data)
        self._buried = now


def _load(files: Files, path: str) -> Buried | str | None:
    """One file's list; why it cannot be used; None when there is none."""
    try:
        data = files.read_small(path, LIMIT)
        if data is None:
            return None
        value = json.loads(data)
        return Buried(
            bytes.fromhex(value["salt"]),
            frozenset(map(str, value["sessions"])),
            frozenset(map(str, value["records"])),
        )
    except (AccessDenied, ValueError, KeyError, TypeError) as fault:
        return f"{path} cannot be used: {fault}"


def _text(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _hash(salt: bytes, name: bytes) -> str:
    return hmac.new(salt, name, hashlib.sha256).hexdigest()[: HASH_BYTES * 2]

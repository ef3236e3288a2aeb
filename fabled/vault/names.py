"""Names in the Vault: which folder a live file's generations lie in, and what they are called."""

from __future__ import annotations

import hashlib
import os
import re
from typing import NamedTuple

CARD = ".card.json"
ZSTD = ".zst"
TRASH, IMPORTS = ".trash", ".imports"
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,239}")
_DATA = re.compile(r"v(\d{1,18})-(raw|tail|pruned)((?:\.[A-Za-z0-9]{1,8})?)(\.zst)?")
_CARD = re.compile(r"v(\d{1,18})-(raw|tail|pruned)\.card\.json")
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}")
SUFFIX = ".jsonl"
LIVE_DEPTH = 32
"""Folders below a session's own that are archived; the client uses two."""

VAULT_DEPTH = LIVE_DEPTH + 4
"""Folders below the Vault's: project, session, those, and one named after the file."""


class Name(NamedTuple):
    """What the name of a data file says."""

    number: int
    kind: str
    compressed: bool


def folder_of(path: str) -> str:
    """The folder, relative to the Vault, of a file's generations.

    Args:
        path: Below its projects folder, `/` between the parts. `-p/ID.jsonl` lies in `-p/ID`,
            and so do the files of the folder `-p/ID`.
    """
    *parents, name = path.split("/")
    return "/".join(_safe(part) for part in [*parents, name.removesuffix(SUFFIX)])


def _safe(part: str) -> str:
    """The part itself, or a hashed name where it could mean something to a file system."""
    if _PLAIN.fullmatch(part) and number_of(part) is None:
        return part
    return "x-" + hashlib.sha256(os.fsencode(part)).hexdigest()[:40]


def data_name(number: int, kind: str, path: str, compression: str) -> str:
    """What a generation's data file is called."""
    _, dot, extension = path.rsplit("/", 1)[-1].rpartition(".")
    extension = dot + extension if _EXTENSION.fullmatch(dot + extension) else ""
    return f"v{number}-{kind}{extension}{ZSTD if compression == 'zstd' else ''}"


def card_name(number: int, kind: str) -> str:
    """What a generation's sidecar is called."""
    return f"v{number}-{kind}{CARD}"


def read_data_name(name: str) -> Name | None:
    """What a data file's name says; None for any other name."""
    if _CARD.fullmatch(name):
        return None
    found = _DATA.fullmatch(name)
    return found and Name(int(found[1]), found[2], found[4] is not None)


def is_card(name: str) -> bool:
    """Whether a name is a sidecar's."""
    return _CARD.fullmatch(name) is not None


def number_of(name: str) -> int | None:
    """The N in any name of a generation's files."""
    found = _CARD.fullmatch(name) or _DATA.fullmatch(name)
    return int(found[1]) if found else None

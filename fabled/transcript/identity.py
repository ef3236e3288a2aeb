"""Ids of records: 16 bytes where the client wrote a canonical uuid, else its text."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Key = bytes | str


def pack(uuid: str) -> Key:
    """The shortest reversible form of a uuid: no two uuids share one."""
    if len(uuid) == 36 and _CANONICAL.fullmatch(uuid):
        return bytes.fromhex(uuid.replace("-", ""))
    return clean(uuid)


def unpack(key: Key) -> str:
    """The text that `pack` was given, lone surrogates apart."""
    if isinstance(key, str):
        return key
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def clean(text: str) -> str:
    """The same text with what cannot be stored as UTF-8 (lone surrogates) replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


BARE_BYTES = 24


def pack_bare(stem: str, digest: bytes, occurrence: int) -> bytes:
    """The key of a record without uuid: its bytes, and which of its like it is in its file.

    The same in every copy of a transcript, live or sealed, whole or pruned, so that a copy
    of the record is a copy and not another record.

    Args:
        stem: The transcript's name without suffix.
        digest: Eight bytes of hash over the record's bytes.
        occurrence: How many records with these very bytes precede it in the file.
    """
    return _lineage(stem) + digest + occurrence.to_bytes(8, "big")


@lru_cache(maxsize=64)
def _lineage(stem: str) -> bytes:
    return hashlib.sha256(stem.encode("utf-8", "surrogateescape")).digest()[:8]


def bare(stem: str, offset: int) -> str:
    """The id under which a record without uuid is addressed: its file's stem and its offset."""
    return f"{stem}@{offset}"

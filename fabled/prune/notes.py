"""Notes in the home: what a replacement is about, durable before it begins.

A note has: the live path, the temporary name, a label; how many bytes of the old file the
new image is about and how long that is, with its hash once it is written; which generation
holds the old bytes; and whether another replacement followed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabled.system import Files

LIMIT = 65536


def read_note(files: Files, path: str) -> dict[str, Any] | None:
    """A note, if it is a whole one; what it says is checked as far as anybody relies on it."""
    try:
        value = json.loads(files.read_small(path, LIMIT) or b"null")
    except ValueError:
        return None
    good = isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("path", "temp", "label")
    )
    return value if good and all(_is_size(value.get(key)) for key in ("size", "length")) else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

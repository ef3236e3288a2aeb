"""Folders of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def let_others_in(folder: Path) -> None:
    """Let other users reach a test's folder, as far up as pytest made the folders."""
    folders = (folder, *folder.parents)
    names = [one.name.startswith("pytest-of-") for one in folders]
    for one in folders[: names.index(True) + 1] if True in names else [folder]:
        one.chmod(0o755)

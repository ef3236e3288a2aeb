"""Writes the README's table of errors from the classes themselves.

`--check` writes nothing and fails when the table is not what they say.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fabled.errors import FabledError, error_classes

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- errors: written by scripts/update_readme.py -->"
END = "<!-- end of errors -->"


def table() -> str:
    """One row a class: exit status, code, meaning, and what to do."""
    rows = ["| exit | code | means | what to do |", "|---|---|---|---|"]
    rows += [_row(kind) for kind in error_classes()]
    return "\n".join(rows)


def _row(kind: type[FabledError]) -> str:
    means = (kind.__doc__ or "").strip().splitlines()[0]
    return f"| {kind.exit_status} | `{kind.code}` | {means} | {kind.default_hint} |"


def updated(text: str) -> str:
    """The README with the present table."""
    return re.sub(f"{BEGIN}.*?{END}", f"{BEGIN}\n{table()}\n{END}", text, flags=re.DOTALL)


def main() -> int:
    """Write the table, or check it."""
    text = README.read_text(encoding="utf-8")
    fresh = updated(text)
    if sys.argv[1:] == ["--check"]:
        return int(fresh != text)
    README.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

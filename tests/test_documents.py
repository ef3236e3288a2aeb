"""What the documents say is what the program does."""

from __future__ import annotations

import subprocess
import sys

from fabled import errors
from tests.conftest import ROOT


def test_error_table_in_the_readme_is_the_classes_own():
    """The table is generated; a class that changed has to be written again."""
    script = ROOT / "scripts" / "update_readme.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_every_error_class_has_a_code_a_status_and_a_hint():
    """One class per condition: unique code, an exit status of the interface, advice."""
    kinds = errors.error_classes()
    assert len({kind.code for kind in kinds}) == len(kinds) > 15
    for kind in kinds:
        assert kind.exit_status in range(1, 9)
        assert 400 <= kind.http_status < 600
        assert kind.default_hint.endswith(".") or ": " in kind.default_hint
        again = errors.from_wire(kind.code, "what", "do this")
        assert type(again) is kind
        assert (again.message, again.hint) == ("what", "do this")


def test_unknown_error_code_becomes_an_internal_error_that_names_it():
    """A newer daemon may know more errors than this client."""
    fault = errors.from_wire("new_thing", "what", "do this")
    assert fault.exit_status == 1
    assert "new_thing" in fault.message

"""Help and completion: every command has an example, and every shell its script."""

from __future__ import annotations

import shutil
import subprocess

import click
import pytest

from fabled import __version__
from fabled.client.main import COMMANDS
from fabled.client.main import fablectl as group
from tests.support.stub_daemon import fablectl


def commands():
    """Every command line that has a help."""
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        yield [name]
        if isinstance(command, click.Group):
            yield from ([name, inner] for inner in command.commands)


@pytest.mark.parametrize("command", [[], *commands()], ids=" ".join)
def test_help_has_an_example(command):
    """Without a daemon, on stdout, exit 0; `-h` is the same."""
    done = fablectl(*command, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert f"Example: fablectl {' '.join(command)}".strip().encode() in done.stdout or (
        b"Example: " in done.stdout and b"fablectl" in done.stdout
    )
    assert fablectl(*command, "-h").stdout == done.stdout


def test_list_of_commands_is_complete():
    """Each with a line of its own."""
    said = fablectl("--help").stdout.decode()
    for name in COMMANDS:
        assert f"\n  {name} " in said


def test_version_is_the_packages():
    """`--version` needs no daemon."""
    assert fablectl("--version").stdout == f"fablectl, version {__version__}\n".encode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_and_valid(shell):
    """It calls fablectl back; where the shell is there, it accepts the script."""
    done = fablectl("completion", shell)
    assert done.returncode == 0
    assert b"_FABLECTL_COMPLETE" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        check = subprocess.run([program, "-n"], input=done.stdout, check=False, capture_output=True)
        assert (check.returncode, check.stderr) == (0, b"")


def test_completion_offers_commands_options_and_values():
    """What the script asks when a key is pressed."""

    def offered(*words):
        line = " ".join(["fablectl", *words])
        variables = {
            "_FABLECTL_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words)),
        }
        done = fablectl(env=variables)
        return [entry.rpartition(",")[2] for entry in done.stdout.decode().split()]

    assert offered("s") == ["status", "search", "sessions", "session", "service"]
    assert offered("search", "--si") == ["--since"]
    assert offered("search", "--level", "") == ["thread", "session", "record"]

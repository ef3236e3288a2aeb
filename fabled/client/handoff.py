"""`handoff`: a hand-over of a session, as Markdown."""

from __future__ import annotations

from pathlib import Path

import click

from fabled.client.asking import Run, json_option
from fabled.errors import AccessDenied, UsageError
from fabled.protocol import HANDOFF


@click.command(epilog="Example: fablectl handoff 5f0c1d9e -o HANDOFF.md")
@click.argument("name", metavar="SESSION", type=click.UNPROCESSED)
@click.option("-o", "output", metavar="FILE", help="Write it there; the file must not be there.")
@json_option
@click.pass_obj
def handoff(run: Run, *, name: str, output: str | None, as_json: bool) -> None:
    """Print what somebody needs to go on: last words, files touched, decisions, open ends."""
    if not name.strip():
        raise UsageError("the id of the session is empty", hint="List them: fablectl sessions")
    answer = run.daemon.ask(HANDOFF, session=name)
    if as_json:
        run.screen.json(answer)
    elif output is None:
        run.screen.text(answer.value["text"])
    else:
        _write(Path(output).expanduser(), answer.value["text"])
        run.screen.say(f"Wrote {output}.")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="Remove it or name another.") from None
    except OSError as fault:
        raise AccessDenied(f"cannot write {path}: {fault.strerror}") from fault

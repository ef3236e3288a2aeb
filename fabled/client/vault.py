"""`vault`: the generations that outlive the client's cleanup."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, exclusive, json_option
from fabled.client.figures import count, counted, size, when
from fabled.client.index import hide, progress
from fabled.client.layout import fit, flat, table
from fabled.errors import DaemonUnreachable, GenerationDamaged, UsageError, from_wire
from fabled.protocol import VAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabled.client.asking import Answer, Given
    from fabled.client.terminal import Screen

_ID = 12
_names = click.argument("names", metavar="SESSION...", nargs=-1, type=click.UNPROCESSED)
_all = click.option("--all", "every", is_flag=True, help="Every session.")


@click.group(epilog="Example: fablectl vault list")
def vault() -> None:
    """List, verify and restore what is kept for good."""


@vault.command("list", epilog="Example: fablectl vault list 5f0c1d9e")
@click.argument("name", metavar="[SESSION]", required=False, type=click.UNPROCESSED)
@json_option
@click.pass_obj
def list_(run: Run, *, name: str | None, as_json: bool) -> None:
    """List generations, of everything or of one session."""
    answer = run.daemon.ask(VAULT, session=name)
    if as_json:
        run.screen.json(answer)
        return
    rows = answer.value["generations"]
    if rows:
        _show_generations(run.screen, rows)
    totals = answer.value["totals"]
    held = f"{size(totals['bytes'])} for {size(totals['raw_bytes'])}"
    run.screen.say(f"{counted(totals['generations'], 'generation')} in all, {held}.")


def _show_generations(screen: Screen, rows: Sequence[Mapping[str, Any]]) -> None:
    heads = ["SESSION", "N", "KIND", "IMAGE", "STORED", "SEALED", "WHY", "FILE"]
    lines = table(
        [
            heads,
            *(
                [
                    flat(row["session"])[: _ID if screen.terminal else None],
                    count(row["number"]),
                    flat(row["kind"]),
                    size(row["image_bytes"]),
                    size(row["stored"]),
                    when(row["sealed_at"], local=screen.terminal),
                    flat(row["reason"]),
                    flat(row["path"]).rpartition("/")[2],
                ]
                for row in rows
            ),
        ],
        right=(1, 3, 4),
    )
    for at, cells in enumerate(lines):
        text = fit("  ".join(cells).rstrip(), screen.columns)
        screen.line(screen.paint(text, "dim") if at == 0 else text)


def _followed(run: Run, path: str, verb: str, /, *, quiet: bool, **given: Given) -> _Followed:
    """Run a long order to its end; steps worth a line are printed when they come."""
    drawn = run.screen.progress and not quiet
    steps: list[Mapping[str, Any]] = []
    with progress(run, verb) if drawn else contextlib.nullcontext(hide) as show:
        for step in run.daemon.steps(path, **given):
            if step.value.get("step") == "done":
                return _Followed(step, steps)
            if step.value.get("step") == "progress":
                show(step.value)
            else:
                steps.append(step.value)
    raise DaemonUnreachable("the daemon ended before its work was done")


class _Followed:
    """The last step of an order, and those before it that are no progress."""

    def __init__(self, done: Answer, steps: list[Mapping[str, Any]]) -> None:
        self.done = done
        self.value = done.value
        self.steps = steps

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        """The steps of a kind."""
        return [step for step in self.steps if step.get("step") == kind]

    def show_json(self, screen: Screen) -> None:
        """One object: the last step, and the others as its `steps`."""
        screen.value({**self.value, "steps": self.steps})


@vault.command(epilog="Example: fablectl vault verify")
@json_option
@click.pass_obj
def verify(run: Run, *, as_json: bool) -> None:
    """Hash everything again and read every record; exit 6 if anything is damaged."""
    found = _followed(run, f"{VAULT}/verify", "verifying", quiet=as_json)
    if as_json:
        found.show_json(run.screen)
    else:
        for step in found.of("damaged"):
            run.screen.line(run.screen.paint(flat(step["message"]), "red"))
        value = found.value
        run.screen.say(
            f"Read {counted(value['generations'], 'generation')}, {size(value['bytes'])}, and"
            f" {counted(value['records'], 'record')}: {count(value['damaged'])} damaged."
        )
    if found.value["damaged"]:
        raise GenerationDamaged(
            f"{counted(found.value['damaged'], 'place')} in the Vault are damaged",
            hint="Keep the disk's backup; records with another copy are still answered.",
        )


@vault.command(epilog="Example: fablectl vault seal --all")
@_names
@_all
@json_option
@click.pass_obj
def seal(run: Run, *, names: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Seal sessions to their last byte now, quiet or not."""
    given = _wanted(names, every=every)
    found = _followed(run, f"{VAULT}/seal", "sealing", quiet=as_json, **given)
    if as_json:
        found.show_json(run.screen)
        return
    for step in found.of("skipped"):
        run.screen.say(f"{flat(step['path'])}: {flat(step['message'])}")
    value = found.value
    run.screen.say(
        f"Sealed {counted(value['sealed'], 'file')}, {size(value['bytes'])};"
        f" {count(value['unchanged'])} were sealed already."
    )


def _wanted(names: tuple[str, ...], *, every: bool) -> dict[str, Given]:
    exclusive("SESSION", "--all", both=bool(names) and every)
    if not names and not every:
        raise UsageError("name a session, or say --all", hint="List them with: fablectl sessions")
    return {"session": tuple(absolute(name) for name in names), "all": 1 if every else None}


def absolute(name: str) -> str:
    """A session as the daemon knows it: an id as it is, a path from the root on."""
    if "/" in name or name.endswith(".jsonl"):
        return str(Path(name).expanduser().absolute())
    return name


@vault.command(epilog="Example: fablectl vault restore 5f0c1d9e --to /tmp/old.jsonl")
@_names
@_all
@click.option("--generation", metavar="N", help="This generation; the newest when omitted.")
@click.option("--keep-mtime", is_flag=True, help="Give files the time they had, not now.")
@click.option("--to", metavar="PATH", help="Another place: a .jsonl file, or a folder.")
@click.option(
    "--overwrite", is_flag=True, help="Replace what differs; a live transcript is sealed first."
)
@json_option
@click.pass_obj
def restore(
    run: Run,
    /,
    *,
    names: tuple[str, ...],
    every: bool,
    to: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Put back what is missing of a session, byte for byte.

    Times are now, or the client's cleanup would take the files again. What is there
    already and differs is left alone.
    """
    flags = {key: 1 if given[key] else None for key in ("keep_mtime", "overwrite")}
    found = _followed(
        run,
        f"{VAULT}/restore",
        "restoring",
        quiet=as_json,
        **_wanted(names, every=every),
        **flags,
        generation=given["generation"],
        to=None if to is None else _place(to),
    )
    if as_json:
        found.show_json(run.screen)
    else:
        _show_restored(run.screen, found)
    refused = [step for step in found.of("skipped") if step["code"] != "unchanged"]
    if refused and not found.value["restored"]:
        first = refused[0]
        return from_wire(first["code"], flat(first["message"]), "").exit_status
    return 0


def _place(to: str) -> str:
    whole = str(Path(to).expanduser().absolute())
    return f"{whole}/" if to.endswith("/") else whole


def _show_restored(screen: Screen, found: _Followed) -> None:
    for step in found.steps:
        path = flat(step["path"])
        if step["step"] == "restored":
            screen.line(f"{screen.paint('restored', 'green')}  {path}  {size(step['bytes'])}")
        elif step["code"] == "unchanged":
            screen.line(f"{screen.paint('there', 'dim')}     {path}")
        else:
            screen.line(f"{screen.paint('refused', 'yellow')}   {flat(step['message'])}")
            screen.say(flat(step.get("hint")))
    value = found.value
    screen.say(
        f"Restored {counted(value['restored'], 'file')}, {size(value['bytes'])};"
        f" {count(value['skipped'])} were there already, {count(value['refused'])} refused."
    )


@vault.command(epilog="Example: fablectl vault gc --dry-run")
@click.option("--dry-run", is_flag=True, help="Only show what could go.")
@json_option
@click.pass_obj
def gc(run: Run, *, dry_run: bool, as_json: bool) -> None:
    """Move generations into the trash that are provably kept elsewhere."""
    found = _followed(run, f"{VAULT}/gc", "looking", quiet=as_json, dry_run=1 if dry_run else None)
    if as_json:
        found.show_json(run.screen)
        return
    value = found.value
    for row in value["removed"]:
        run.screen.line(f"{flat(row['path'])}  {size(row['bytes'])}  {flat(row['because'])}")
    verb = "could go" if dry_run else "went into the trash"
    run.screen.say(
        f"{counted(len(value['removed']), 'generation')} {verb}, {size(value['bytes'])};"
        f" {counted(value['kept'], 'image')} stay."
    )


@vault.command("import", epilog="Example: fablectl vault import ~/old-backups")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def import_(run: Run, *, folder: Path, as_json: bool) -> None:
    """Take existing backups (v0-raw.jsonl, vN-pruned.jsonl) into account.

    They are read where they lie, and never changed.
    """
    where = str(folder.expanduser().absolute())
    found = _followed(run, f"{VAULT}/import", "importing", quiet=as_json, path=where)
    if as_json:
        found.show_json(run.screen)
        return
    for step in found.of("skipped"):
        run.screen.say(f"{flat(step['path'])}: {flat(step['message'])}")
    value = found.value
    run.screen.say(
        f"Found {counted(value['generations'], 'generation')} of"
        f" {counted(value['sessions'], 'session')}, {size(value['bytes'])}."
    )

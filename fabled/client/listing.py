"""`sessions` and `session`: what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fabled.client.asking import Run, json_option, named
from fabled.client.figures import count, counted, day, magnitude, size, when
from fabled.client.layout import cells, fit, flat, table
from fabled.protocol import SESSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabled.client.terminal import Screen

_LEAST_ID = 8
_PROJECT_COLUMNS = 18
_WIDE = 110


@click.command(epilog="Example: fablectl sessions --project fabled")
@click.option("--project", metavar="P", help="Only this project: its folder, or the last part.")
@click.option("--vanished", is_flag=True, help="Only those whose file the client has deleted.")
@json_option
@click.pass_obj
def sessions(run: Run, *, project: str | None, vanished: bool, as_json: bool) -> None:
    """List the sessions, the latest first."""
    answer = run.daemon.ask(SESSIONS, project=project, vanished=1 if vanished else None)
    if as_json:
        run.screen.json(answer)
        return
    rows = answer.value["sessions"]
    if not rows:
        run.screen.say("No session is known that fits." if project or vanished else "No sessions.")
        return
    show_sessions(run.screen, rows)


@click.command(epilog="Example: fablectl session 0b6f3a52")
@click.argument("name", metavar="SESSION", type=click.UNPROCESSED)
@json_option
@click.pass_obj
def session(run: Run, *, name: str, as_json: bool) -> None:
    """Show one session: its threads, files, damage, generations, prunes and events.

    SESSION is its id or any unambiguous beginning of it.
    """
    answer = run.daemon.ask(f"{SESSIONS}/{named('session', name)}")
    if as_json:
        run.screen.json(answer)
        return
    show_session(run.screen, answer.value)


def show_sessions(screen: Screen, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table whose last column takes what room there is."""
    names = short_names([flat(row["session"]) for row in rows], whole=not screen.terminal)
    wide = screen.columns is None or screen.columns >= _WIDE
    stamp = when if wide else day
    heads = ["SESSION", "LAST", "SIZE", "THREADS", "PROJECT", "TITLE"]
    lines = table(
        [
            heads,
            *(
                [
                    name,
                    stamp(row["last_ts"], local=screen.terminal),
                    size(row["bytes"]),
                    count(row["threads"]),
                    _project(screen, row["project"]),
                    ("(deleted by the client) " if row["vanished"] else "") + flat(row["title"]),
                ]
                for name, row in zip(names, rows, strict=True)
            ),
        ],
        right=(2, 3),
    )
    for at, (first, *rest, last) in enumerate(lines):
        middle = "  ".join(rest)
        used = cells(first) + cells(middle) + 4
        shown = fit(last, None if screen.columns is None else max(1, screen.columns - used))
        head = f"{first}  {middle}  {shown}".rstrip()
        if at == 0:
            screen.line(screen.paint(head, "dim"))
        else:
            screen.line(f"{screen.paint(first, 'cyan')}  {middle}  {shown}".rstrip())


def _project(screen: Screen, project: object) -> str:
    """The last part of its folder on a terminal; all of it where there is room without end."""
    whole = flat(project)
    if screen.columns is None:
        return whole
    return fit(whole.rstrip("/").rpartition("/")[2], _PROJECT_COLUMNS)


def short_names(names: Sequence[str], *, whole: bool) -> list[str]:
    """The beginnings of ids that tell them apart; the ids themselves when `whole`."""
    longest = max(map(len, names), default=0)
    if whole:
        return list(names)
    for length in range(_LEAST_ID, longest):
        short = [name[:length] for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def show_session(screen: Screen, value: Mapping[str, Any]) -> None:
    """One session, a paragraph a subject; subjects without anything to say are left out."""
    row = value["session"]
    title = flat(row["title"]) or "Untitled session"
    screen.line(screen.paint(fit(title, screen.columns), "bold"))
    local = screen.terminal
    path = flat(row["live_path"])
    facts = [
        ("session", flat(row["session"])),
        ("project", flat(row["project"]) or "-"),
        ("time", f"{when(row['first_ts'], local=local)} to {when(row['last_ts'], local=local)}"),
        (
            "holds",
            ", ".join(
                [
                    counted(row["threads"], "thread"),
                    counted(row["records"], "record"),
                    size(row["bytes"]),
                ]
            ),
        ),
        ("file", path or "deleted by the client"),
        ("sealed", f"{size(row['sealed_bytes'])}, {size(row['unsealed_bytes'])} not yet"),
    ]
    for label, fact in facts:
        screen.line(f"{screen.paint(label.ljust(9), 'dim')}{fact}")
    _show_threads(screen, value["threads"])
    _show_files(screen, value["files"])
    _show_damage(screen, value["damage"])
    for subject in ("generations", "prunes", "events"):
        _show_rows(screen, subject, value.get(subject) or [])


def _heading(screen: Screen, text: str) -> None:
    screen.line()
    screen.line(screen.paint(text, "bold"))


def _show_threads(screen: Screen, threads: Sequence[Mapping[str, Any]]) -> None:
    if not threads:
        return
    _heading(screen, counted(len(threads), "thread"))
    for thread in threads:
        title = fit(flat(thread["title"]) or "-", screen.columns and screen.columns - 2)
        facts = (
            f"{when(thread['last_ts'], local=screen.terminal)} ·"
            f" {counted(thread['turns'], 'turn')} · ~{magnitude(thread['est_tokens'])} tokens"
        )
        screen.line(f"  {title}")
        name = screen.paint(flat(thread["thread"]), "cyan")
        screen.line(f"    {name}  {screen.paint(facts, 'dim')}")


def _show_files(screen: Screen, files: Sequence[Mapping[str, Any]]) -> None:
    if not files:
        return
    _heading(screen, counted(len(files), "file"))
    rows = [
        [
            flat(file["kind"]),
            size(file["bytes"]),
            counted(file["records"], "record"),
            _waiting(file),
            flat(file["path"]),
        ]
        for file in files
    ]
    for *facts, path in table(rows, right=(1,)):
        screen.line(f"  {'  '.join(facts)}".rstrip())
        screen.line(f"    {screen.paint(path, 'dim')}")


def _waiting(file: Mapping[str, Any]) -> str:
    waiting = (file["bytes"] or 0) - (file["indexed_bytes"] or 0)
    said = [f"{size(waiting)} not indexed yet"] if waiting > 0 else []
    if file["damage"]:
        said.append(f"{counted(file['damage'], 'damaged place')}")
    return ", ".join(said)


def _show_damage(screen: Screen, damage: Sequence[Mapping[str, Any]]) -> None:
    if not damage:
        return
    _heading(screen, "Damage: bytes that could not be read as records; they are kept as they are")
    for place in damage:
        screen.line(
            f"  line {count(place['line'])}, offset {place['offset']}, {size(place['length'])}:"
            f" {flat(place['reason'])}"
        )
        screen.line(f"    {screen.paint(flat(place['path']), 'dim')}")


def _show_rows(screen: Screen, subject: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    _heading(screen, subject.capitalize())
    for row_cells in table([_ROWS[subject](row, screen.terminal) for row in rows], right=(1,)):
        screen.line(fit(f"  {'  '.join(row_cells)}".rstrip(), screen.columns))


def _generation(row: Mapping[str, Any], local: bool) -> list[str]:
    held = f"{size(row['image_bytes'])} in {size(row['stored'])}"
    name = flat(row["path"]).rpartition("/")[2]
    stamp = when(row["sealed_at"], local=local)
    return [flat(row["kind"]), count(row["number"]), held, stamp, flat(row["reason"]), name]


def _prune(row: Mapping[str, Any], local: bool) -> list[str]:
    sizes = f"{size(row['before_bytes'])} -> {size(row['after_bytes'])}"
    state = "taken back" if row["undone"] else ""
    level = f"{flat(row['level'])}, {flat(row['mode'])}"
    return [when(row["at"], local=local), sizes, level, state]


def _event(row: Mapping[str, Any], local: bool) -> list[str]:
    facts = ", ".join(f"{flat(key)} {flat(value)}" for key, value in row["detail"].items())
    return [when(row["ts"], local=local), flat(row["event"]), facts]


_ROWS = {"generations": _generation, "prunes": _prune, "events": _event}

"""`vault restore`: which files of a session are missing, and putting them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from fabled.errors import FabledError, NotFound, UsageError
from fabled.map import sessions
from fabled.vault import journal as events
from fabled.vault.journal import News
from fabled.vault.restore import Restored, restore

if TYPE_CHECKING:
    from fabled.daemon.errands import Say
    from fabled.daemon.keeper import Keeper
    from fabled.vault.values import Generation

log = structlog.get_logger("restoring")
SUFFIX = ".jsonl"


class Wanted(NamedTuple):
    """What `vault restore` was asked for.

    Attributes:
        sessions: Ids, beginnings of ids, or live paths; none: every session.
        number: The generation of the transcript to put back; the newest when None.
        to: Another place: a file for one session's transcript, else a folder.
    """

    sessions: tuple[str, ...]
    number: int | None
    keep_mtime: bool
    to: str | None
    overwrite: bool


class Task(NamedTuple):
    """One image to put at one path."""

    session: str
    generation: Generation
    target: str


def restore_all(keeper: Keeper, wanted: Wanted, say: Say) -> None:
    """Put back what is missing of the sessions asked for, a step a file.

    Raises:
        NotFound: A session has no generation, or not the one of that number.
        UsageError: The options do not fit each other.
    """
    done = {"restored": 0, "bytes": 0, "skipped": 0, "refused": 0}
    with keeper.alone():
        for task in plan(keeper, wanted):
            if keeper.stopping:
                break
            _one(keeper, wanted, task, done, say)
    say({"step": "done", **done})


def plan(keeper: Keeper, wanted: Wanted) -> list[Task]:
    """The images to put back, the transcript of each session first; raises as `restore_all`."""
    by_session = keeper.shelf.view().by_session
    names = [_session(keeper, name) for name in wanted.sessions] or sorted(by_session)
    if wanted.number is not None and len(names) != 1:
        raise UsageError("a generation's number needs exactly one session")
    if wanted.to is not None and wanted.to.endswith(SUFFIX) and len(names) != 1:
        raise UsageError(f"{wanted.to} is one file; several sessions need a folder")
    return [task for name in names for task in _tasks(wanted, name, by_session[name])]


def _session(keeper: Keeper, name: str) -> str:
    view = keeper.shelf.view()
    if name in view.by_session:
        return name
    if name in view.by_path:
        return view.by_path[name][-1].card.session
    fits = [session for session in view.by_session if name and session.startswith(name)]
    if len(fits) == 1:
        return fits[0]
    with keeper.snapshots.snapshot() as snapshot:
        row = sessions.one(snapshot, name)
    if row is not None and row.session in view.by_session:
        return row.session
    hint = "See what there is with: fablectl vault list"
    raise NotFound(f"the Vault has nothing of a session called {name}", hint=hint)


def _tasks(wanted: Wanted, session: str, generations: list[Generation]) -> list[Task]:
    lineages: dict[str, list[Generation]] = {}
    for one in generations:
        if not one.card.imported:
            lineages.setdefault(one.origin.live, []).append(one)
    mains = [path for path in lineages if _is_main(lineages[path][0], session)]
    imported = [one for one in generations if one.card.imported]
    if wanted.number is not None:
        pool = [one for path in mains for one in lineages[path]] or imported
        chosen = [one for one in pool if one.card.number == wanted.number]
        if not chosen:
            raise NotFound(f"session {session} has no generation {wanted.number}")
    elif mains or lineages:
        chosen = [lineages[path][-1] for path in mains]
    else:
        chosen = imported[-1:]
    rest = [found[-1] for path, found in sorted(lineages.items()) if path not in mains]
    return [Task(session, one, _target(wanted, session, one)) for one in [*chosen, *rest]]


def _is_main(one: Generation, session: str) -> bool:
    parts = one.card.path.split("/")
    return len(parts) == 2 and parts[1] == session + SUFFIX


def _target(wanted: Wanted, session: str, one: Generation) -> str:
    if wanted.to is None:
        if one.card.imported:
            raise UsageError(
                f"where session {session} belongs is not known: it was imported",
                hint="Say where with --to.",
            )
        return one.origin.live
    inner = one.card.path.split("/", 1)[-1]
    if one.card.imported:
        inner = session + SUFFIX
    if not wanted.to.endswith(SUFFIX):
        return f"{wanted.to.rstrip('/')}/{inner}"
    if inner == session + SUFFIX:
        return wanted.to
    folder = wanted.to.removesuffix(SUFFIX)
    return f"{folder}/{inner.removeprefix(session + '/')}"


def _one(keeper: Keeper, wanted: Wanted, task: Task, done: dict[str, int], say: Say) -> None:
    head = {"session": task.session, "path": task.target}
    try:
        found = _put_back(keeper, wanted, task)
    except FabledError as refusal:
        log.info("not restored", path=task.target, code=refusal.code)
        done["refused"] += 1
        said = {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}
        say({"step": "skipped", **head, **said})
        return
    if not found.written:
        done["skipped"] += 1
        say({"step": "skipped", **head, "code": "unchanged", "message": "is there already"})
        return
    done["restored"] += 1
    done["bytes"] += found.bytes
    card = task.generation.card
    detail = {"generation": card.number, "bytes": found.bytes}
    project = card.path.partition("/")[0]
    keeper.journal.write([News(events.RESTORED, task.session, project, task.target, detail)])
    keeper.desk.queue([task.target], live=True)
    say({"step": "restored", **head, "bytes": found.bytes, "generation": card.number})


def _put_back(keeper: Keeper, wanted: Wanted, task: Task) -> Restored:
    vault, files = keeper.vault, keeper.system.files
    options = {"keep_mtime": wanted.keep_mtime}
    there = files.stat(task.target)
    if there is None or not wanted.overwrite:
        return restore(vault, files, task.generation, task.target, **options)
    if task.target == task.generation.origin.live:
        return keeper.replace_live(task.generation, keep_mtime=wanted.keep_mtime)
    return restore(vault, files, task.generation, task.target, **options, overwrite=True)

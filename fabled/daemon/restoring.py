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
    only = _only(keeper, wanted.sessions)
    found = [task for name in names for task in _tasks(wanted, name, by_session[name], only)]
    _distinct(found)
    return found


def _only(keeper: Keeper, names: tuple[str, ...]) -> set[str]:
    """The project folders of sessions that were named by their live path."""
    view = keeper.shelf.view()
    paths = [view.by_path[name][-1] for name in names if name in view.by_path]
    return {f"{one.card.root}/{one.card.path.partition('/')[0]}" for one in paths}


def _distinct(tasks: list[Task]) -> None:
    """See that no two images are to go to one place."""
    seen: dict[str, Task] = {}
    for task in tasks:
        other = seen.setdefault(task.target, task)
        if other is not task:
            raise UsageError(
                f"{other.generation.origin.live} and {task.generation.origin.live}"
                f" would both be restored to {task.target}",
                hint="Name one of them by its whole live path.",
            )


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


def _tasks(
    wanted: Wanted, session: str, generations: list[Generation], only: set[str]
) -> list[Task]:
    lineages: dict[str, list[Generation]] = {}
    for one in generations:
        project = f"{one.card.root}/{one.card.path.partition('/')[0]}"
        if not one.card.imported and (not only or project in only):
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
    """Put one image in its place.

    Raises:
        UsageError: That place is another session's transcript, or in no projects folder of ours.
        FabledError: What `restore` and `replace_live` raise.
    """
    vault, files = keeper.vault, keeper.system.files
    options = {"keep_mtime": wanted.keep_mtime}
    # However the path is spelt: a live transcript is only replaced when it is sealed.
    target = files.resolve(task.target)
    live = files.resolve(task.generation.origin.live)
    root = next((r for r in keeper.desk.roots if target.startswith(files.resolve(r) + "/")), None)
    if wanted.to is None and root is None:
        raise UsageError(
            f"{task.target} is in none of the projects folders: {', '.join(keeper.desk.roots)}",
            hint="Say where to with --to, or add its projects folder to the configuration.",
        )
    if files.stat(target) is None or not wanted.overwrite:
        return restore(vault, files, task.generation, task.target, **options)
    if target == live and root is not None:
        return keeper.replace_live(task.generation, keep_mtime=wanted.keep_mtime)
    if root is not None:
        raise UsageError(
            f"{task.target} is a live file of its own; it is not overwritten by another",
            hint="Restore to a place outside the projects folders, and look at both.",
        )
    return restore(vault, files, task.generation, task.target, **options, overwrite=True)

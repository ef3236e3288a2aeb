"""`forget`: a session or a thread leaves the Map and the Vault for good.

First the tombstones, durably: whatever happens then, nothing brings it back. Then the
Vault, then the Map, then what a database keeps of deleted words. What a crash leaves
undone is found in the list of intentions at the next start.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from fabled.errors import DaemonBusy, GenerationDamaged, NotFound, UsageError
from fabled.map import fidelity, queries, sessions
from fabled.map.store import digest
from fabled.recall import threads
from fabled.recall.search import thread_facts
from fabled.recall.verbatim import read
from fabled.transcript.identity import pack
from fabled.vault import forgetting
from fabled.vault import journal as events
from fabled.vault.journal import News
from fabled.vault.names import folder_of
from fabled.vault.values import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fabled.daemon.keeper import Keeper
    from fabled.map.db import Snapshot
    from fabled.model import Pointer
    from fabled.transcript.identity import Key
    from fabled.vault.catalogue import Strand
    from fabled.vault.values import Generation, Sidecar

log = structlog.get_logger("forgetting")

INTENT = "forgetting.json"
LIMIT = 64 << 20
SCRUB_S = 300.0
_SPILLED = re.compile(rb'[\\/]([^\\/"]{1,255})[\\/]+(tool-results[\\/]+[A-Za-z0-9_.-]{1,200})')


class Doomed(NamedTuple):
    """What is to be forgotten.

    Attributes:
        kind: session or thread.
        stems: Names of files (without suffix) that are not to be read any more.
        keys: Records that are not to be read any more.
        whole: Origins of which every generation goes.
        folders: Folders of the Vault, relative to it, in which nothing of them may stay.
        partly: Origins whose generations are written anew without those records.
        paths: Live files and strands that the Map has to look at again.
        threads: Keys of threads whose cards go.
    """

    kind: str
    name: str
    session: str | None
    stems: frozenset[str]
    keys: frozenset[Key]
    records: int
    whole: frozenset[Origin]
    folders: frozenset[str]
    partly: frozenset[Origin]
    paths: tuple[str, ...]
    live: tuple[str, ...]
    threads: tuple[str, ...] = ()

    def takes(self, uuid: str | None, raw: bytes) -> bool:
        """Whether it means this record."""
        return (pack(uuid) if uuid is not None else digest(raw)) in self.keys


def forget(keeper: Keeper, name: str, *, dry_run: bool, live: bool = False) -> dict[str, Any]:
    """Forget a session or a thread, or say what would go.

    Args:
        keeper: Who does it.
        name: What to forget.
        dry_run: Only say.
        live: Take a thread out of the live transcripts as well, through the prune's door.

    Raises:
        UsageError: A whole live transcript is never deleted.
        NotFound: Nothing bears that name.
        AmbiguousId: Several things do.
        DaemonBusy: Something else writes the Vault.
        GenerationDamaged: A generation that may hold the thread cannot be read.
        DiskFull: There is no room to write generations anew: nothing is lost, and forgetting
            goes on at the next start.
    """
    doomed = look(keeper, name)
    if live and doomed.kind == "session" and doomed.live:
        raise UsageError(
            f"session {doomed.name} has a live transcript, and fabled deletes none",
            hint="Delete the transcript yourself, then forget the session.",
        )
    generations = [one for origin in doomed.whole | doomed.partly for one in _of(keeper, origin)]
    reply = {
        "name": doomed.name,
        "kind": doomed.kind,
        "records": doomed.records,
        "generations": len(generations),
        "projects": sorted({one.card.path.partition("/")[0] for one in generations}),
        "bytes": sum(one.card.stored for one in generations),
        "live": "untouched" if doomed.live else "absent",
        "applied": not dry_run,
    }
    if dry_run:
        return reply
    with keeper.alone():
        if live and doomed.live:
            for path in doomed.live:
                keeper.pruner.remove(path, doomed.takes)
            touched = frozenset(map(keeper.origin, doomed.live))
            doomed = doomed._replace(partly=doomed.partly | touched)
            reply["live"] = "pruned"
        for origin in sorted(doomed.partly):
            _see_through(keeper, origin)
        keeper.tombstones.bury(doomed.stems, doomed.keys)
        again = {*doomed.paths, *(s.path for s in _strands(keeper, doomed))}
        _write_intent(keeper, doomed)
        detail = {"kind": doomed.kind, "records": doomed.records}
        keeper.journal.write([News(events.FORGOTTEN, doomed.session, None, None, detail)])
        finish(keeper)
    again |= {strand.path for strand in _strands(keeper, doomed)}
    keeper.desk.refresh(sorted(again), SCRUB_S)
    keeper.desk.ask_survey().wait(SCRUB_S)  # what was on its way into the Map meanwhile
    keeper.desk.ask_study().wait(SCRUB_S)  # terms and cards of threads that are gone go as well
    if not keeper.desk.ask_scrub().wait(SCRUB_S):
        raise DaemonBusy("the Map is still being cleaned of deleted words")
    return reply


def _see_through(keeper: Keeper, origin: Origin) -> None:
    """Refuse to call forgotten what may still lie where nobody can look."""
    found = forgetting.unsure(keeper.vault, keeper.system.files, origin)
    if found:
        raise GenerationDamaged(
            f"{found[0].path} {found[0].why}, and may hold the thread; nothing was forgotten",
            hint="See: fablectl vault verify. Forgetting the whole session takes such files too.",
        )


def look(keeper: Keeper, name: str) -> Doomed:
    """What a name stands for; raises as `forget`."""
    with keeper.snapshots.snapshot() as snapshot:
        row = sessions.one(snapshot, name)
        if row is not None:
            return _session(keeper, snapshot, row)
        if name in keeper.shelf.view().by_session:
            return _sealed_session(keeper, name)
        return _thread(keeper, snapshot, name)


def _session(keeper: Keeper, snapshot: Snapshot, row: sessions.SessionRow) -> Doomed:
    doomed = _sealed_session(keeper, row.session)
    stems, paths = sessions.stems_of(snapshot, row.id), sessions.paths_of(snapshot, row.id)
    live = tuple(file.path for file in row.live)
    by_path = keeper.shelf.view().by_path
    more = {by_path[path][0].origin for path in live if path in by_path}
    folders = {folder_of(keeper.origin(path).path) for path in live}
    return doomed._replace(
        stems=doomed.stems | stems,
        records=row.records,
        whole=doomed.whole | more,
        folders=doomed.folders | folders,
        paths=tuple(paths),
        live=live,
        threads=tuple(sorted(queries.keys_of_session(snapshot, row.id))),
    )


def _sealed_session(keeper: Keeper, session: str) -> Doomed:
    found = keeper.shelf.view().by_session.get(session, [])
    origins = frozenset(one.origin for one in found)
    # A sidecar that cannot be read names no session: its folder does.
    folders = {folder_of(origin.path) for origin in origins}
    folders |= {f"{entry}/{folder_of(session)}" for entry in _projects(keeper)}
    return Doomed(
        kind="session",
        name=session,
        session=session,
        stems=frozenset({session}),
        keys=frozenset(),
        records=0,
        whole=origins,
        folders=frozenset(folders),
        partly=frozenset(),
        paths=(),
        live=(),
    )


def _projects(keeper: Keeper) -> list[str]:
    """The project folders of the Vault."""
    files, root = keeper.system.files, keeper.vault.root
    if files.stat(root) is None:
        return []
    found = files.scan(root)
    return [one.name for one in found if one.kind == "dir" and not one.name.startswith(".")]


def _thread(keeper: Keeper, snapshot: Snapshot, name: str) -> Doomed:
    pointers = threads.find(snapshot, name)
    facts = thread_facts(snapshot, pointers[0])
    places = fidelity.places(snapshot, [pointer.id for pointer in pointers])
    sealed = {path for path, generation in places if generation is not None}
    strands = {s.path: s for s in keeper.vault.catalogue.strands() if s.path in sealed}
    partly = frozenset(strand.head.origin for strand in strands.values())
    spilled = {path for pointer in pointers for path in _spilled(keeper, pointer)}
    every = keeper.vault.catalogue.generations()
    whole = frozenset(one.origin for one in every if one.card.path.partition("/")[2] in spilled)
    return Doomed(
        "thread",
        str(facts["thread"]),
        facts["session"],
        frozenset(spilled),
        frozenset(_key(pointer) for pointer in pointers),
        len(pointers),
        whole,
        frozenset(folder_of(origin.path) for origin in whole),
        partly,
        tuple(path for path, _ in places),
        tuple(path for path, generation in places if generation is None),
        (str(facts["thread"]),),
    )


def _spilled(keeper: Keeper, pointer: Pointer) -> list[str]:
    """Spilled tool results that a record names, as paths below the project folder."""
    data = read(keeper.shelf.sources, pointer)
    found = [(os_text(session), os_text(name)) for session, name in _SPILLED.findall(data)]
    return [f"{session}/tool-results/{name.rpartition('/')[2]}" for session, name in found]


def os_text(data: bytes) -> str:
    """A part of a path as the operating system's text."""
    return data.decode("utf-8", "surrogateescape")


def _key(pointer: Pointer) -> Key:
    """What the tombstones know a record by."""
    if pointer.bare:
        if pointer.digest is None:
            raise NotFound(f"record {pointer.name} is being read again; forget it in a moment")
        return pointer.digest
    return pack(pointer.name)


def _of(keeper: Keeper, origin: Origin) -> list[Generation]:
    imported = [one for one in keeper.vault.catalogue.imports() if one.origin == origin]
    return imported or keeper.vault.catalogue.lineage(origin)


def _strands(keeper: Keeper, doomed: Doomed) -> list[Strand]:
    origins = doomed.whole | doomed.partly
    return [s for s in keeper.vault.catalogue.strands() if s.head.origin in origins]


class _Intent:
    """What is still to be done, durable from the first step to the last.

    Its file holds: an id; a session; the origins of which everything goes, and the folders
    in which nothing of them may stay; the origins that are written anew, each with the
    numbers of the generations that may go, once their place is taken.
    """

    def __init__(self, keeper: Keeper, value: dict[str, Any]) -> None:
        self._files = keeper.system.files
        self.path = _intent_path(keeper)
        self.value = value

    def save(self) -> None:
        self._files.write_private(self.path, json.dumps(self.value).encode())

    def done(self) -> None:
        self._files.remove(self.path)


class _Part:
    """One origin's part of an intention: see `vault.forgetting.Progress`."""

    def __init__(self, intent: _Intent, at: int) -> None:
        self._intent = intent
        self._entry = intent.value["partly"][at]
        self.label = f"rewritten to forget {intent.value['id']}"

    @property
    def origin(self) -> Origin:
        return Origin(*self._entry["origin"])

    @property
    def doomed(self) -> Collection[int] | None:
        found: Collection[int] | None = self._entry["doomed"]
        return found

    def mark(self, doomed: Collection[int]) -> None:
        self._entry["doomed"] = list(doomed)
        self._intent.save()


def _is_of(origin: Origin) -> Callable[[Sidecar], bool]:
    return lambda card: Origin(card.root, card.path) == origin


def _write_intent(keeper: Keeper, doomed: Doomed) -> None:
    partly = [{"origin": list(origin), "doomed": None} for origin in sorted(doomed.partly)]
    value = {
        "id": secrets.token_hex(8),
        "session": doomed.session if doomed.kind == "session" else None,
        "whole": sorted(doomed.whole),
        "folders": sorted(doomed.folders),
        "threads": sorted(doomed.threads),
        "partly": partly,
    }
    _Intent(keeper, value).save()


def _intent_path(keeper: Keeper) -> str:
    return f"{keeper.home}/{INTENT}"


def finish(keeper: Keeper) -> bool:
    """Carry out the intention that is written down, if there is one; the caller works alone.

    Raises:
        DiskFull: It is gone on with next time, before anything else is done.
    """
    files = keeper.system.files
    data = files.read_small(_intent_path(keeper), LIMIT)
    if data is None:
        return False
    intent = _Intent(keeper, json.loads(data))
    doubts: list[str] = []
    whole = {Origin(*pair) for pair in intent.value["whole"]}

    def mine(card: Sidecar) -> bool:
        of_it = card.session == intent.value["session"]
        return of_it or Origin(card.root, card.path) in whole

    for origin in sorted(whole):
        forgetting.destroy(keeper.vault, files, _of(keeper, origin))
    for folder in intent.value["folders"]:
        doubts += forgetting.destroy_rest(keeper.vault, files, folder)
        forgetting.purge_trash(keeper.vault, files, folder, mine)
    for part in [_Part(intent, at) for at in range(len(intent.value["partly"]))]:
        done = forgetting.rewrite(keeper.vault, files, part.origin, keeper.tombstones, part)
        doubts += [one.path for one in done.unsure]
        # Data that a crash parted from its sidecar was put aside at the start.
        folder = folder_of(part.origin.path)
        forgetting.purge_trash(keeper.vault, files, folder, _is_of(part.origin))
    keeper.carding.forget(intent.value.get("threads", []))
    intent.done()
    for path in doubts:
        log.warning("may still hold what was forgotten", path=path)
    if doubts:
        said = f"{doubts[0]} could not be looked into, and may hold what was forgotten"
        keeper.desk.note("forgetting", said)
    return True

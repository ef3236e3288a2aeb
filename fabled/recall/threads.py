"""One thread, found by key, prefix or record id, as text or as its records' exact bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabled.errors import AccessDenied, GenerationDamaged, NotFound, StaleIndex
from fabled.map import queries
from fabled.recall.conversation import turns
from fabled.recall.render import Rendered, Room, render
from fabled.recall.search import thread_facts
from fabled.recall.verbatim import envelope, read, stream
from fabled.transcript.identity import clean
from fabled.transcript.records import TITLE_LOOK
from fabled.transcript.sentinel import neutral, wrap
from fabled.transcript.text import heading, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.map.db import Snapshot
    from fabled.model import Pointer
    from fabled.system import Opener
    from fabled.transcript.veil import Veil

LONG_OPENING = 4 << 20


def find(snapshot: Snapshot, text: str) -> list[Pointer]:
    """The records of the thread that a text names, in order.

    A key wins over a record's id, an id over the beginning of a key. A record without
    thread is a thread of its own.

    Raises:
        NotFound: Nothing bears that name.
        AmbiguousId: It is the beginning of several.
    """
    thread = queries.thread_by_key(snapshot, text)
    if thread is None:
        record = queries.record(snapshot, text)
        if record is not None and record.thread is None:
            return [record]
        thread = record.thread if record is not None else None
    if thread is None and text:
        thread = queries.thread_by_prefix(snapshot, text)
    if thread is None:
        raise NotFound(f"no thread and no record is called {text}")
    return queries.thread_records(snapshot, thread)


def show(
    snapshot: Snapshot, disk: Opener, text: str, budget: int, veil: Veil, *, sentinel: bool
) -> dict[str, Any]:
    """A thread as the socket gives it.

    Args:
        snapshot: The Map.
        disk: Where the transcripts are.
        text: What the user called the thread.
        budget: Tokens.
        veil: What is not shown.
        sentinel: Wrap the text, so that it is not indexed again when a transcript quotes it.

    Raises:
        NotFound: See `find`.
        AmbiguousId: See `find`.
        StaleIndex: A file changed under a pointer.
        AccessDenied: A file cannot be read.
    """
    pointers = find(snapshot, text)
    facts = thread_facts(snapshot, pointers[0])
    session, arcs = facts["session"] or "", [facts["thread"]]
    taken = len(wrap("", session, arcs, veil.key)) if sentinel else 0
    rendered = rendered_thread(disk, pointers, facts, Room.of(budget, taken), veil)
    body = wrap(rendered.text, session, arcs, veil.key) if sentinel else rendered.text
    return {
        **facts,
        "budget": budget,
        "text": body,
        "truncated": rendered.truncated,
        "records": rendered.records,
    }


def rendered_thread(
    disk: Opener, pointers: list[Pointer], facts: dict[str, Any], space: Room, veil: Veil
) -> Rendered:
    """The text of a thread under a heading that says what it is, as far as there is room."""
    heading = (
        f"# {facts['title'] or 'Untitled session'}\n"
        f"thread {facts['thread']} of session {facts['session']}"
        f" in {facts['project']}, {facts['first_ts']} to {facts['last_ts']}"
    )
    heading = neutral(heading)
    if len(heading) > space.wanted // 3:
        heading = f"# thread {facts['thread']}"[: space.most]
    taken = len(heading) + 2
    left = Room(max(0, space.wanted - taken), max(0, space.most - taken))
    rendered = render(turns(disk, pointers), facts["thread"], left, veil)
    return rendered._replace(text=f"{heading}\n\n{rendered.text}")


def raw(disk: Opener, pointers: list[Pointer]) -> Iterator[bytes]:
    """The thread's records as JSONL: each record's exact bytes and a newline.

    Raises:
        StaleIndex: A file changed under a pointer; what was given before is still exact.
        AccessDenied: A file cannot be read.
    """
    for pointer in pointers:
        yield from stream(disk, pointer)
        yield b"\n"


def opening_line(snapshot: Snapshot, disk: Opener, thread: int, veil: Veil) -> str | None:
    """The first words of what opened a thread; None where they cannot be read now."""
    pointer = queries.opening(snapshot, thread)
    if pointer is None or pointer.length > LONG_OPENING:
        return None
    try:
        said = spoken(envelope(read(disk, pointer)))
    except (StaleIndex, AccessDenied, GenerationDamaged):
        return None  # a heading is not worth an error; the thread itself will say so
    texts = [veil.look(part.text, TITLE_LOOK).text for part in said.parts if part.text]
    return clean(heading(" ".join(texts))) or None

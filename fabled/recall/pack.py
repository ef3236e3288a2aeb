"""The best threads for a question, packed into one budget: what an agent pastes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.errors import AccessDenied, NotFound, StaleIndex
from fabled.recall.render import CHARS_PER_TOKEN, Room, tokens
from fabled.recall.search import Request, search
from fabled.recall.threads import find, rendered_thread
from fabled.transcript.sentinel import wrap

if TYPE_CHECKING:
    from fabled.map.db import Snapshot
    from fabled.model import Filter
    from fabled.system import Opener
    from fabled.transcript.veil import Veil

MOST_THREADS = 8
LEAST_TOKENS = 300
"""A thread is not worth showing in less than this."""

_WRAPPER_TOKENS = 80


class Packed(NamedTuple):
    """The reply and the files that have to be read again."""

    reply: dict[str, Any]
    stale: tuple[str, ...]


def pack(
    snapshot: Snapshot, disk: Opener, text: str, wanted: Filter, budget: int, veil: Veil
) -> Packed:
    """The best threads in the order of their rank; each may take half of what is left.

    A thread whose file changed under the Map is left out and named in `stale`.
    """
    found = search(snapshot, disk, Request(text, wanted, limit=MOST_THREADS), veil)
    stale = set(found.stale)
    left = budget - _WRAPPER_TOKENS
    texts: list[str] = []
    shown: list[dict[str, Any]] = []
    for at, result in enumerate(found.results):
        if left < LEAST_TOKENS and shown:
            break
        share = left if at == len(found.results) - 1 else max(LEAST_TOKENS, left // 2)
        try:
            pointers = find(snapshot, result["thread"])
            space = Room.of(share, 0)._replace(most=share * CHARS_PER_TOKEN)
            rendered = rendered_thread(disk, pointers, result, space, veil)
        except StaleIndex as fault:
            stale.add(fault.path)
            continue
        except (NotFound, AccessDenied):
            continue  # it went away between the two questions, or cannot be read: not recalled
        texts.append(rendered.text)
        left -= rendered.tokens
        shown.append({name: result[name] for name in ("thread", "session", "project", "title")})
        shown[-1] |= {"est_tokens": rendered.tokens, "score": result["score"]}
    body = "\n\n---\n\n".join(texts)
    sessions = dict.fromkeys(str(item["session"]) for item in shown)
    arcs = [item["thread"] for item in shown]
    whole = wrap(body, " ".join(sessions), arcs, veil.key) if shown else ""
    reply = {
        "query": text,
        "text": whole,
        "est_tokens": tokens(whole),
        "budget": budget,
        "approximate": found.approximate,
        "threads": shown,
    }
    return Packed(reply, tuple(sorted(stale)))

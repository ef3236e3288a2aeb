"""Search: question, ranking, grouping, snippets; the answer as the socket gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.errors import AccessDenied, GenerationDamaged, StaleIndex
from fabled.map import queries
from fabled.map.cards import load, matching
from fabled.map.db import Interrupted
from fabled.map.search import hits, newest
from fabled.map.vocabulary import Facet, bonus
from fabled.model import Filter, Hit, Pointer, Scope
from fabled.recall.cards import card_json
from fabled.recall.dates import iso
from fabled.recall.question import Question, understand
from fabled.recall.snippets import snippet
from fabled.recall.verbatim import envelope, read
from fabled.transcript.text import searchable, spoken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fabled.map.db import Snapshot
    from fabled.system import Opener
    from fabled.transcript.veil import Veil

RECORDS_SHOWN = 3
"""Records shown with a thread or a session."""

FUSED = 300
"""Threads, the best by their words, whose cards and terms are looked at."""

CARD_WEIGHT, TERM_WEIGHT = 0.05, 0.05
_DECAY = 8
_SECOND_CHANCE_S = 0.5


class Request(NamedTuple):
    """One search."""

    text: str
    wanted: Filter = Filter()
    level: str = "thread"
    sort: str = "relevance"
    limit: int = 10


class Group(NamedTuple):
    """One result before it is described."""

    score: float
    last_ms: int
    name: str
    hits: list[Hit]


class Answer(NamedTuple):
    """A search's results and what they rest on.

    Attributes:
        approximate: Time ran out, or the question was cut: there may be better matches.
        stale: Files that no longer hold what the Map says; they must be read again.
    """

    results: list[dict[str, Any]]
    approximate: bool
    stale: tuple[str, ...]


def search(snapshot: Snapshot, disk: Opener, request: Request, veil: Veil) -> Answer:
    """The best threads, sessions or records for a question.

    Text that matches nothing gives no results; there is no text that gives an error.
    """
    question = understand(request.text)
    if question.match is None:
        return Answer([], question.cut, ())
    found, late = _matches(snapshot, question.match, request.wanted)
    groups = _rank(snapshot, found, request, question)[: request.limit]
    teller = _Teller(snapshot, disk, request, question, veil)
    results = [teller.describe(group) for group in groups]
    return Answer(results, late or question.cut, tuple(sorted(teller.stale)))


def _matches(snapshot: Snapshot, match: str, wanted: Filter) -> tuple[list[Hit], bool]:
    try:
        return hits(snapshot, match, wanted), False
    except Interrupted:
        snapshot.grant(_SECOND_CHANCE_S)  # the answer says `approximate`
    try:
        return newest(snapshot, match, wanted), True
    except Interrupted:
        return [], True


def _rank(
    snapshot: Snapshot, found: list[Hit], request: Request, question: Question
) -> list[Group]:
    by_group: dict[tuple[str, int], list[Hit]] = {}
    for hit in found:
        by_group.setdefault(_group_key(hit, request.level), []).append(hit)
    names = queries.pointers(snapshot, [group[0].record for group in by_group.values()])
    groups = [
        Group(
            _score(group), max(hit.ts_ms or 0 for hit in group), names[group[0].record].name, group
        )
        for group in by_group.values()
    ]
    if request.sort == "recent":
        return sorted(groups, key=lambda g: (-g.last_ms, -g.score, g.name))
    groups.sort(key=lambda g: (-g.score, -g.last_ms, g.name))
    if request.level != "record":
        groups = _fused(snapshot, groups, question)
    return sorted(groups, key=lambda g: (-g.score, -g.last_ms, g.name))


def _fused(snapshot: Snapshot, groups: list[Group], question: Question) -> list[Group]:
    """Add what cards and terms say to what the words say; they never take anything out.

    Each list counts by its share of its own best score: the words whole, the others little.
    """
    best = groups[0].score if groups else 0.0
    if best <= 0:
        return groups
    threads = list({hit.thread for group in groups[:FUSED] for hit in group.hits if hit.thread})
    threads = threads[:FUSED]
    wanted = [Facet(kind, text) for kind, text in question.terms]
    lists = [(CARD_WEIGHT, matching(snapshot, question.match or "", threads))]
    lists.append((TERM_WEIGHT, bonus(snapshot, wanted, threads)))
    fused: list[Group] = []
    for group in groups:
        score = group.score / best
        for weight, found in lists:
            most = max(found.values(), default=0.0)
            mine = max((found.get(hit.thread or 0, 0.0) for hit in group.hits), default=0.0)
            score += weight * mine / most if most > 0 else 0.0
        fused.append(group._replace(score=score))
    return fused


def _group_key(hit: Hit, level: str) -> tuple[str, int]:
    if level == "session" and hit.session is not None:
        return "session", hit.session
    if level == "thread" and hit.thread is not None:
        return "thread", hit.thread
    return "record", hit.record


def _score(group: Iterable[Hit]) -> float:
    """The best match counts whole, the next half, a quarter ...: better than sum or maximum."""
    scores = sorted((hit.score for hit in group), reverse=True)[:_DECAY]
    return sum((score * 0.5**at for at, score in enumerate(scores)), 0.0)


class _Teller:
    """Describes results; remembers the files that were not what the Map says."""

    def __init__(
        self, snapshot: Snapshot, disk: Opener, request: Request, question: Question, veil: Veil
    ) -> None:
        self._snapshot = snapshot
        self._disk = disk
        self._request = request
        self._question = question
        self._veil = veil
        self.stale: set[str] = set()

    def describe(self, group: Group) -> dict[str, Any]:
        """One result as the socket gives it."""
        request = self._request
        shown = group.hits[: 1 if request.level == "record" else RECORDS_SHOWN]
        found = queries.pointers(self._snapshot, [hit.record for hit in shown])
        best = found[shown[0].record]
        session = request.wanted.session
        if session is None and request.level == "session":
            session = best.session
        return {
            **thread_facts(self._snapshot, best, session),
            "score": round(group.score, 6),
            "records": [self._record(found[hit.record]) for hit in shown],
            "card": None if best.thread is None else card_json(load(self._snapshot, best.thread)),
        }

    def _record(self, pointer: Pointer) -> dict[str, Any]:
        return {
            "uuid": pointer.name,
            "role": pointer.role,
            "ts": iso(pointer.ts_ms),
            "snippet": self._snippet(pointer),
        }

    def _snippet(self, pointer: Pointer) -> str | None:
        try:
            data = read(self._disk, pointer)
        except StaleIndex as fault:
            self.stale.add(fault.path)
            return None  # no words are better than wrong ones
        except (AccessDenied, GenerationDamaged):
            return None
        said = searchable(spoken(envelope(data)).parts, self._veil)
        return snippet(said.text, self._question.words)


def thread_facts(snapshot: Snapshot, best: Pointer, session: int | None = None) -> dict[str, Any]:
    """The thread round a record, as results name it; its own session unless one is given."""
    span = queries.thread_span(snapshot, best.thread) if best.thread is not None else None
    if session is None:
        session = best.session if span is None or span.session is None else span.session
    about = queries.session(snapshot, session) if session is not None else None
    return {
        "thread": span.key if span is not None else best.name,
        "session": about.name if about else None,
        "project": about.project if about else None,
        "title": about.title if about else None,
        "first_ts": iso(span.first_ms if span else best.ts_ms),
        "last_ts": iso(span.last_ms if span else best.ts_ms),
        "turns": span.turns if span else 0,
        "est_tokens": span.tokens if span else best.tokens,
        "vanished": about is not None and not about.live,
    }


def scope_json(scope: Scope) -> dict[str, Any]:
    """`searched` as the interface names it."""
    return {
        "records": scope.records,
        "threads": scope.threads,
        "sessions": scope.sessions,
        "from": iso(scope.first_ms),
        "to": iso(scope.last_ms),
    }

"""The socket's paths for what is derived: terms, citations, cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fabled.daemon.asked import flag, number, one_of
from fabled.daemon.replies import json_reply
from fabled.errors import NotFound
from fabled.map import citations, queries, vocabulary
from fabled.protocol import CARDS, CITED, NDJSON_TYPE, TERMS
from fabled.recall import threads
from fabled.recall.dates import iso
from fabled.transcript.sentinel import neutral
from fabled.transcript.terms import KINDS

if TYPE_CHECKING:
    from starlette.requests import Request

    from fabled.daemon.errands import Say
    from fabled.daemon.keeper import Keeper
    from fabled.map.citations import Citation
    from fabled.map.db import Snapshot

DEFAULT_TERMS, MOST_TERMS = 50, 10_000
DEFAULT_RUN, MOST_RUN = 20, 100_000


class KnowledgeRoutes:
    """One handler a path."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._answers = keeper.answers

    def table(self) -> list[Route]:
        """The routes."""
        return [
            Route(TERMS, self.terms),
            Route(TERMS + "/{name:path}", self.terms),
            Route(CITED + "{name:path}", self.cited),
            Route(CARDS + "run", self.run, methods=["POST"]),
            Route(CARDS + "{name:path}", self.card),
            Route(CARDS + "{name:path}", self.put, methods=["PUT"]),
        ]

    def _freshness(self, snapshot: Snapshot) -> dict[str, Any]:
        waiting = vocabulary.count_waiting(snapshot)
        return {**self._answers.freshness(), "pending_threads": waiting}

    def terms(self, request: Request) -> Response:
        """`GET /v1/terms`, `/v1/terms/{thread}`."""
        given = request.query_params
        kind = one_of(given, "kind", KINDS, "") or None
        limit = number(given, "n", DEFAULT_TERMS, 1, MOST_TERMS)
        name = request.path_params.get("name")
        return json_reply(self.browse(name, kind, given.get("prefix", ""), limit))

    def browse(self, name: str | None, kind: str | None, prefix: str, limit: int) -> dict[str, Any]:
        """Terms of everything, or of one thread; sentinel tags in them are harmless."""

        def question(snapshot: Snapshot) -> dict[str, Any]:
            thread, key = (None, None) if name is None else _thread(snapshot, name)
            found = vocabulary.browse(snapshot, kind, prefix, limit, thread)
            words = [{**word._asdict(), "text": neutral(word.text)} for word in found]
            return {"thread": key, "terms": words, "freshness": self._freshness(snapshot)}

        return self._answers.ask(question)

    def cited(self, request: Request) -> Response:
        """`GET /v1/cited/{thread}`."""
        return json_reply(self.citations(request.path_params["name"]))

    def citations(self, name: str) -> dict[str, Any]:
        """Who recalled a thread, and what it recalled."""

        def question(snapshot: Snapshot) -> dict[str, Any]:
            thread, key = _thread(snapshot, name)
            by, of = citations.consumers(snapshot, key), citations.consumed(snapshot, thread)
            return {
                "thread": key,
                "cited_by": [self._cited(snapshot, one) for one in by],
                "cites": [self._cited(snapshot, one) for one in of],
                "freshness": self._answers.freshness(),
            }

        return self._answers.ask(question)

    def _cited(self, snapshot: Snapshot, one: Citation) -> dict[str, Any]:
        pointer = one.record
        key = None if pointer.thread is None else queries.thread_key(snapshot, pointer.thread)
        about = None if pointer.session is None else queries.session(snapshot, pointer.session)
        return {
            "ref": one.ref,
            "known": queries.thread_by_key(snapshot, one.ref) is not None,
            "record": pointer.name,
            "thread": key,
            "session": about.name if about is not None else None,
            "ts": iso(pointer.ts_ms),
        }

    def card(self, request: Request) -> Response:
        """`GET /v1/cards/{thread}`."""
        return json_reply(self._keeper.carding.show(request.path_params["name"]))

    async def put(self, request: Request) -> Response:
        """`PUT /v1/cards/{thread}`: the body is the card, as JSON."""
        body = (await request.body()).decode("utf-8", "replace")
        name = request.path_params["name"]
        return json_reply(await run_in_threadpool(self._keeper.carding.put, name, body))

    def run(self, request: Request) -> Response:
        """`POST /v1/cards/run`: a line a card."""
        given = request.query_params
        limit = number(given, "limit", DEFAULT_RUN, 1, MOST_RUN)
        dry_run = flag(given, "dry_run")

        def work(say: Say) -> None:
            self._keeper.carding.run(limit, say, dry_run=dry_run)

        errand = self._keeper.errand("cards", work)
        return StreamingResponse(errand.lines(), media_type=NDJSON_TYPE)


def _thread(snapshot: Snapshot, name: str) -> tuple[int, str]:
    pointers = threads.find(snapshot, name)
    thread = pointers[0].thread
    if thread is None:
        raise NotFound(f"{name} is a record outside of all threads")
    return thread, queries.thread_key(snapshot, thread)

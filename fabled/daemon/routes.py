"""The socket's paths: parameters in, answers out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fabled.daemon.agent import AgentRoutes
from fabled.daemon.asked import flag, number, search_asked
from fabled.daemon.doctor import examine
from fabled.daemon.hooks import heard
from fabled.daemon.knowledge_routes import KnowledgeRoutes
from fabled.daemon.replies import error_body, json_bytes, json_reply
from fabled.daemon.status import status
from fabled.daemon.vault_routes import VaultRoutes
from fabled.protocol import (
    BLOCK_TYPE,
    BLOCKS,
    DEFAULT_BUDGET,
    DOCTOR,
    HOOK,
    INDEX,
    MAX_BUDGET,
    NDJSON_TYPE,
    RECALL,
    SEARCH,
    SESSIONS,
    STATUS,
    THREADS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from fabled.daemon.answers import Bytes
    from fabled.daemon.status import Parts
    from fabled.daemon.tickets import Ticket

TICK_S = 0.25


class Routes:
    """One handler a path. Each runs in a thread of the server's pool.

    Args:
        parts: What the daemon is made of.
        draining: Whether the daemon is stopping.
    """

    def __init__(self, parts: Parts, draining: Callable[[], bool]) -> None:
        self._parts = parts
        self._answers = parts.answers
        self._vault = VaultRoutes(parts.keeper)
        self._knowledge = KnowledgeRoutes(parts.keeper)
        self._agent = AgentRoutes(parts, self._knowledge)
        self._draining = draining

    def table(self) -> list[Route]:
        """The routes, in the order they are tried."""
        return [
            Route(STATUS, self.status),
            Route(SEARCH, self.search),
            Route(RECALL, self.recall),
            Route(THREADS + "{name:path}", self.thread),
            Route(BLOCKS + "{name:path}", self.block),
            Route(SESSIONS, self.sessions),
            Route(SESSIONS + "/{name:path}", self.session),
            Route(INDEX, self.index, methods=["POST"]),
            *self._vault.table(),
            *self._knowledge.table(),
            *self._agent.table(),
            Route(HOOK, self.hook, methods=["POST"]),
            Route(DOCTOR, self.doctor),
        ]

    def hook(self, request: Request) -> Response:
        """`POST /v1/hook`: what a client's hook notifies of; answered at once."""
        given = request.query_params
        names = ("event", "path", "session")
        text = heard(self._parts.keeper, *(given.get(name, "") for name in names))
        return json_reply({"text": text})

    def doctor(self, _request: Request) -> Response:
        """`GET /v1/doctor`."""
        return json_reply({"findings": examine(self._parts)})

    def status(self, _request: Request) -> Response:
        """`GET /v1/status`."""
        return json_reply(status(self._parts, draining=self._draining()))

    def search(self, request: Request) -> Response:
        """`GET /v1/search`."""
        return json_reply(self._answers.search(self._asked(request)))

    def recall(self, request: Request) -> Response:
        """`GET /v1/recall`."""
        return json_reply(self._answers.recall(self._asked(request)))

    def _asked(self, request: Request) -> Any:
        return search_asked(request.query_params, self._parts.system.clock.now_ms())

    def thread(self, request: Request) -> Response:
        """`GET /v1/threads/{id}`; with `raw=1` the exact records."""
        given, name = request.query_params, request.path_params["name"]
        if flag(given, "raw"):
            return _exact(self._answers.thread_raw(name))
        budget = number(given, "budget", DEFAULT_BUDGET, 100, MAX_BUDGET)
        wrapped = flag(given, "sentinel", default=True)
        return json_reply(self._answers.thread(name, budget, sentinel=wrapped))

    def block(self, request: Request) -> Response:
        """`GET /v1/blocks/{uuid}`."""
        return _exact(self._answers.block(request.path_params["name"]))

    def sessions(self, request: Request) -> Response:
        """`GET /v1/sessions`."""
        given = request.query_params
        project = given.get("project") or None
        return json_reply(self._answers.sessions(project, vanished=flag(given, "vanished")))

    def session(self, request: Request) -> Response:
        """`GET /v1/sessions/{id}`."""
        return json_reply(self._answers.session(request.path_params["name"]))

    def index(self, request: Request) -> Response:
        """`POST /v1/index`: one line, or with `wait=1` a line a tick until all is readable."""
        given = request.query_params
        desk = self._parts.desk
        self._parts.watcher.refresh()
        ticket = desk.ask_rebuild() if flag(given, "rebuild") else desk.ask_survey()
        if not flag(given, "wait"):
            return json_reply({"step": "asked"}, 202)
        return StreamingResponse(self._follow(ticket), media_type=NDJSON_TYPE)

    def _follow(self, ticket: Ticket) -> Iterator[bytes]:
        clock = self._parts.system.clock
        began = clock.monotonic_s()
        while not ticket.wait(TICK_S):
            work = self._parts.desk.work()
            progress = work.progress._asdict() if work.progress else {}
            empty = {"done_bytes": 0, "total_bytes": 0, "eta_s": None}
            yield _line({"step": "progress", "files": work.pending.files, **empty, **progress})
        study = self._parts.desk.ask_study()
        while ticket.error is None and not study.wait(TICK_S):
            empty = {"done_bytes": 0, "total_bytes": 0, "eta_s": None}
            yield _line({"step": "progress", "files": 0, **empty})
        error = ticket.error or study.error
        if error is not None:
            yield _line(error_body(error))
            return
        took = round((clock.monotonic_s() - began) * 1000, 1)
        done = {
            "files": ticket.files,
            "bytes": ticket.bytes,
            "records": ticket.records,
            "refused": ticket.refused,
        }
        yield _line({"step": "done", **done, "took_ms": took})


def _line(value: dict[str, Any]) -> bytes:
    return json_bytes(value) + b"\n"


def _exact(found: Bytes) -> Response:
    headers = {} if found.length is None else {"Content-Length": str(found.length)}
    return StreamingResponse(found.pieces, media_type=BLOCK_TYPE, headers=headers)

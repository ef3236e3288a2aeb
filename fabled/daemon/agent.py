"""What agents are told: the same answers as text, within a budget, wrapped and signed.

The wrapper keeps what an agent reads here from being indexed again as if it were new
(see `transcript.sentinel`), and tells its reader that it is history and no instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from fabled.daemon.asked import flag, number, one_of, search_asked
from fabled.daemon.replies import json_reply
from fabled.errors import NotFound, UsageError
from fabled.map import queries
from fabled.protocol import AGENT, MAX_BUDGET, TERM_KINDS
from fabled.recall.render import CHARS_PER_TOKEN
from fabled.recall.verbatim import read
from fabled.transcript.sentinel import wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from fabled.daemon.knowledge_routes import KnowledgeRoutes
    from fabled.daemon.status import Parts
    from fabled.map.db import Snapshot
    from fabled.model import Pointer

MOST_RESULTS, MOST_OFFSET = 50, 950
BLOCK_CHARS = 20_000
LONG_BLOCK = 64 << 20


class AgentRoutes:
    """One handler a tool. Each answers `{"text": ...}`.

    Args:
        parts: What the daemon is made of.
        knowledge: Answers about terms and citations.
    """

    def __init__(self, parts: Parts, knowledge: KnowledgeRoutes) -> None:
        self._parts = parts
        self._answers = parts.answers
        self._knowledge = knowledge

    def table(self) -> list[Route]:
        """The routes."""
        tools = (self.search, self.recall, self.thread, self.block, self.sessions, self.terms)
        return [Route(AGENT + tool.__name__, tool) for tool in (*tools, self.cited)]

    def _wrapped(self, lines: Iterable[str], session: str, arcs: Iterable[str]) -> Response:
        body = "\n".join(lines)
        return json_reply({"text": wrap(body, session, list(arcs), self._answers.veil.key)})

    def search(self, request: Request) -> Response:
        """`GET /v1/agent/search`."""
        given = request.query_params
        limit = number(given, "n", 10, 1, MOST_RESULTS)
        offset = number(given, "offset", 0, 0, MOST_OFFSET)
        asked = search_asked(given, self._parts.system.clock.now_ms())
        found = self._answers.search(asked._replace(limit=limit + offset))
        results = found["results"][offset:]
        lines = [_searched(found, len(results), offset)]
        for at, result in enumerate(results, offset + 1):
            lines += ["", *_result(at, result)]
        if len(found["results"]) == limit + offset:
            lines += ["", f"There may be more: ask again with offset={limit + offset}."]
        arcs = [result["thread"] for result in results]
        sessions = dict.fromkeys(str(result["session"]) for result in results)
        return self._wrapped(lines, " ".join(sessions), arcs)

    def recall(self, request: Request) -> Response:
        """`GET /v1/agent/recall`."""
        asked = search_asked(request.query_params, self._parts.system.clock.now_ms())
        text = self._answers.recall(asked)["text"]
        return json_reply({"text": text or "Nothing in the history answers this."})

    def thread(self, request: Request) -> Response:
        """`GET /v1/agent/thread`."""
        given = request.query_params
        budget = number(given, "budget", 6000, 100, MAX_BUDGET)
        found = self._answers.thread(_name(given, "thread"), budget, sentinel=True)
        return json_reply({"text": found["text"]})

    def block(self, request: Request) -> Response:
        """`GET /v1/agent/block`: a page of one record's JSON."""
        given = request.query_params
        name = _name(given, "uuid")
        offset = number(given, "offset", 0, 0, LONG_BLOCK)
        length = number(given, "length", BLOCK_CHARS, 1, MAX_BUDGET * CHARS_PER_TOKEN)

        def question(snapshot: Snapshot) -> tuple[Pointer, str, str]:
            pointer = queries.record(snapshot, name)
            if pointer is None:
                raise NotFound(f"no record is called {name}")
            if pointer.length > LONG_BLOCK:
                raise UsageError(f"record {name} has {pointer.length} bytes: use fablectl block")
            data = read(self._parts.keeper.shelf.sources, pointer)
            thread = pointer.thread
            key = name if thread is None else queries.thread_key(snapshot, thread)
            return pointer, self._answers.veil.text(data.decode("utf-8", "replace")), key

        pointer, text, key = self._answers.ask(question)
        page = text[offset : offset + length]
        head = f"record {pointer.name}, characters {offset} to {offset + len(page)} of {len(text)}"
        return self._wrapped([head, page], "", [key])

    def sessions(self, request: Request) -> Response:
        """`GET /v1/agent/sessions`."""
        given = request.query_params
        limit = number(given, "n", 30, 1, 200)
        offset = number(given, "offset", 0, 0, 10**6)
        project = given.get("project") or None
        found = self._answers.sessions(project, vanished=flag(given, "vanished"))["sessions"]
        rows = found[offset : offset + limit]
        lines = [f"{len(found)} sessions, the latest first; {offset + 1} to {offset + len(rows)}:"]
        for row in rows:
            gone = " (deleted by the client)" if row["vanished"] else ""
            title = row["title"] or "Untitled session"
            lines.append(
                f"- {row['session']}: {title}{gone}, {row['project']}, last {row['last_ts']},"
                f" {row['threads']} threads"
            )
        return self._wrapped(lines, " ".join(str(row["session"]) for row in rows), [])

    def terms(self, request: Request) -> Response:
        """`GET /v1/agent/terms`."""
        given = request.query_params
        kind = one_of(given, "kind", TERM_KINDS, "") or None
        limit = number(given, "n", 50, 1, 500)
        name = given.get("thread") or None
        found = self._knowledge.browse(name, kind, given.get("prefix", ""), limit)
        rows = found["terms"]
        lines = ["kind: term (threads that have it)"]
        lines += [f"{row['kind']}: {row['text']} ({row['threads']})" for row in rows]
        arcs = [] if found["thread"] is None else [found["thread"]]
        return self._wrapped(lines, "", arcs)

    def cited(self, request: Request) -> Response:
        """`GET /v1/agent/cited`."""
        found = self._knowledge.citations(_name(request.query_params, "thread"))
        lines = [f"Thread {found['thread']} was recalled by:"]
        lines += [f"- {one['ts']} thread {one['thread']}" for one in found["cited_by"]] or [
            "- none"
        ]
        lines.append("It recalled:")
        lines += [f"- {one['ts']} thread {one['ref']}" for one in found["cites"]] or ["- nothing"]
        return self._wrapped(lines, "", [found["thread"]])


def _name(given: Mapping[str, str], key: str) -> str:
    text = given.get(key, "").strip()
    if not text:
        raise UsageError(f"{key} is missing", hint="Copy one from a search result.")
    return text


def _searched(found: Mapping[str, Any], count: int, offset: int) -> str:
    scope, fresh = found["searched"], found["freshness"]
    said = f"{count} results from {offset + 1} on; searched {scope['threads']} threads"
    if scope["from"]:
        said += f" from {str(scope['from'])[:10]} to {str(scope['to'])[:10]}"
    if found["approximate"]:
        said += "; only the newest matches were compared"
    if fresh["pending_files"]:
        said += f"; {fresh['pending_files']} files are not indexed yet"
    return said + "."


def _result(at: int, result: Mapping[str, Any]) -> list[str]:
    gone = " (deleted by the client, still recallable)" if result["vanished"] else ""
    size = f"{result['turns']} turns, ~{result['est_tokens']} tokens"
    lines = [
        f"{at}. {result['title'] or 'Untitled session'}{gone}",
        f"   thread {result['thread']}, session {result['session']}, {result['project']}",
        f"   {result['first_ts']} to {result['last_ts']}, {size}",
    ]
    card = result["card"]
    if card is not None and card["summary"]:
        made = f"generated by {card['model'] or card['source']}" if card["generated"] else "derived"
        lines.append(f"   card ({made}; {card['type']}): {card['summary']}")
    return lines + [
        f"   [{record['role']} {record['uuid']}] {record['snippet']}"
        for record in result["records"]
        if record["snippet"]
    ]

"""The socket's paths for the Vault, prunes and the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fabled.daemon import upkeep
from fabled.daemon.asked import flag, number, one_of
from fabled.daemon.forgetting import forget
from fabled.daemon.pruning import Wanted as PruneWanted
from fabled.daemon.replies import json_bytes, json_reply
from fabled.daemon.restoring import Wanted, restore_all
from fabled.daemon.shelf import event_json, generation_json
from fabled.errors import UsageError
from fabled.protocol import EVENTS, FORGET, HANDOFF, NDJSON_TYPE, PRUNE, UNDO, VAULT
from fabled.prune.values import LEVELS, MODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from fabled.daemon.errands import Say, Work
    from fabled.daemon.keeper import Keeper

MOST = 10**9
ALIVE_S = 15.0


class VaultRoutes:
    """One handler a path."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def table(self) -> list[Route]:
        """The routes."""
        post = ["POST"]
        return [
            Route(VAULT, self.generations),
            Route(VAULT + "/seal", self.seal, methods=post),
            Route(VAULT + "/verify", self.verify, methods=post),
            Route(VAULT + "/restore", self.restore, methods=post),
            Route(VAULT + "/gc", self.collect, methods=post),
            Route(VAULT + "/import", self.take_over, methods=post),
            Route(PRUNE, self.prune, methods=post),
            Route(UNDO, self.undo, methods=post),
            Route(FORGET, self.forget, methods=post),
            Route(HANDOFF, self.handoff),
            Route(EVENTS, self.events),
        ]

    def _follow(self, name: str, work: Work) -> Response:
        errand = self._keeper.errand(name, work)
        return StreamingResponse(errand.lines(), media_type=NDJSON_TYPE)

    def generations(self, request: Request) -> Response:
        """`GET /v1/vault`."""
        view = self._keeper.shelf.view()
        session = request.query_params.get("session")
        found = [
            generation_json(one)
            for name, generations in sorted(view.by_session.items())
            if not session or name.startswith(session)
            for one in generations
        ]
        return json_reply({"generations": found, "totals": view.totals._asdict()})

    def seal(self, request: Request) -> Response:
        """`POST /v1/vault/seal`."""
        wanted = _named(request)

        def work(say: Say) -> None:
            self._keeper.seal(wanted, say)

        return self._follow("seal", work)

    def verify(self, _request: Request) -> Response:
        """`POST /v1/vault/verify`."""
        return self._follow("verify", lambda say: upkeep.verify_all(self._keeper, say))

    def restore(self, request: Request) -> Response:
        """`POST /v1/vault/restore`."""
        given = request.query_params
        to = given.get("to") or None
        if to is not None and not to.startswith("/"):
            raise UsageError(f"to = {to[:200]!r}: allowed is an absolute path")
        asked = number(given, "generation", -1, 0, MOST)
        wanted = Wanted(
            tuple(_named(request)),
            asked if asked >= 0 else None,
            flag(given, "keep_mtime"),
            to,
            flag(given, "overwrite"),
        )
        return self._follow("restore", lambda say: restore_all(self._keeper, wanted, say))

    def collect(self, request: Request) -> Response:
        """`POST /v1/vault/gc`."""
        dry_run = flag(request.query_params, "dry_run")
        return self._follow(
            "collect", lambda say: upkeep.collect(self._keeper, say, dry_run=dry_run)
        )

    def take_over(self, request: Request) -> Response:
        """`POST /v1/vault/import`."""
        folder = request.query_params.get("path") or ""
        if not folder.startswith("/"):
            raise UsageError("path: allowed is an absolute folder")
        folder = folder.rstrip("/")
        return self._follow("import", lambda say: upkeep.take_over(self._keeper, folder, say))

    def prune(self, request: Request) -> Response:
        """`POST /v1/prune`."""
        given = request.query_params
        keep = number(given, "keep_prompts", -1, 0, MOST)
        output = given.get("output") or None
        wanted = PruneWanted(
            tuple(name for name in given.getlist("session") if name),
            one_of(given, "level", LEVELS, "") or None,
            one_of(given, "mode", MODES, MODES[0]),
            keep if keep >= 0 else None,
            flag(given, "dry_run"),
            output,
        )
        if output is not None and (not output.startswith("/") or len(wanted.sessions) != 1):
            raise UsageError("output: allowed is an absolute path, with exactly one session")
        return self._follow("prune", lambda say: self._keeper.pruner.by_hand(wanted, say))

    def undo(self, request: Request) -> Response:
        """`POST /v1/undo`."""
        name = request.query_params.get("session") or ""
        if not name:
            raise UsageError("name the session whose prune is to be taken back")
        return json_reply(self._keeper.pruner.undo(name))

    def forget(self, request: Request) -> Response:
        """`POST /v1/forget`."""
        given = request.query_params
        name = given.get("name") or ""
        if not name:
            raise UsageError("name the session or thread to forget")
        dry_run, live = flag(given, "dry_run"), flag(given, "live")
        return json_reply(forget(self._keeper, name, dry_run=dry_run, live=live))

    def handoff(self, request: Request) -> Response:
        """`GET /v1/handoff`."""
        name = request.query_params.get("session") or ""
        if not name:
            raise UsageError("name the session to hand over")
        return json_reply(self._keeper.answers.handoff(name))

    def events(self, request: Request) -> Response:
        """`GET /v1/events`; with `follow=1` a line an event, until the client leaves."""
        given = request.query_params
        after = number(given, "after", 0, 0, MOST)
        session = given.get("session") or None
        most = number(given, "n", 0, 0, MOST)
        if flag(given, "follow"):
            return StreamingResponse(self._tail(after, session, most), media_type=NDJSON_TYPE)
        found = self._keeper.journal.events(after, session)
        return json_reply({"events": [event_json(event) for event in found[-most:]]})

    def _tail(self, after: int, session: str | None, most: int) -> Iterator[bytes]:
        journal = self._keeper.journal
        first = True
        while not self._keeper.stopping:
            last = journal.last  # before looking: what comes meanwhile is looked for again
            found = journal.events(after, session)
            for event in found[-most:] if first else found:
                yield _line(event_json(event))
            first = False
            after = max([after, last, *(event.n for event in found)])
            if not self._wait(after):
                yield _line({"step": "alive"})

    def _wait(self, seen: int) -> bool:
        """Wait for an event past a number, or for the end; False after a long silence."""
        clock = self._keeper.system.clock
        until = clock.monotonic_s() + ALIVE_S
        while clock.monotonic_s() < until:
            if self._keeper.journal.wait(seen, 0.5) or self._keeper.stopping:
                return True
        return False


def _named(request: Request) -> list[str]:
    """The sessions named, none for all of them.

    Raises:
        UsageError: Neither sessions nor `all=1` were given, or both.
    """
    given = request.query_params
    wanted = [name for name in given.getlist("session") if name]
    if bool(wanted) == flag(given, "all"):
        raise UsageError("name sessions, or say all=1")
    return wanted


def _line(value: dict[str, Any]) -> bytes:
    return json_bytes(value) + b"\n"

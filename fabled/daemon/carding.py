"""Cards through the daemon: shown, put by hand, written by a provider, forgotten."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog

from fabled.cards import schema
from fabled.cards.prompt import Excerpt, tokens
from fabled.cards.provider import COMMAND, CommandProvider, OpenAIProvider, keyring_key
from fabled.cards.record import Record
from fabled.cards.runner import Limits, Runner
from fabled.config import environment
from fabled.errors import AccessDenied, GenerationDamaged, NotFound, ProviderFailed, StaleIndex
from fabled.map import cards, queries
from fabled.recall import threads
from fabled.recall.cards import card_json
from fabled.recall.verbatim import envelope, read
from fabled.transcript.text import spoken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.cards.provider import Provider
    from fabled.daemon.errands import Say
    from fabled.daemon.keeper import Keeper
    from fabled.map.db import Snapshot
    from fabled.model import Pointer

log = structlog.get_logger("cards")

EVERY_S, FIRST_S = 600.0, 120.0
SELECTED = 2000
"""Threads looked at in one run."""

LONG_RECORD = 4 << 20
HOME_FILE = "cards.json"


class Carding:
    """Belongs to the keeper; one run at a time."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._files = keeper.system.files
        self._lock = threading.Lock()
        self._record = Record(self._files, f"{keeper.home}/{HOME_FILE}")

    # --- one thread ---

    def show(self, name: str) -> dict[str, Any]:
        """The card of a thread, and what was wrong when a provider was asked for one."""
        thread, key = self._thread(name)
        with self._keeper.snapshots.snapshot() as snapshot:
            found = cards.load(snapshot, thread)
        failure = self._record.failures().get(key)
        told = None if failure is None else {"code": failure.code, "message": failure.message}
        return {"thread": key, "card": card_json(found), "failure": told}

    def put(self, name: str, text: str) -> dict[str, Any]:
        """Let a thread have a card that somebody wrote.

        Raises:
            BadCard: It is none.
            NotFound: There is no such thread.
        """
        card = schema.read(text, schema.MANUAL, None)
        thread, key = self._thread(name)
        self._keeper.cards.put(key, card, self._tokens(thread))
        self._again([key])
        return {"thread": key, "card": card_json(card)}

    def _thread(self, name: str) -> tuple[int, str]:
        with self._keeper.snapshots.snapshot() as snapshot:
            pointers = threads.find(snapshot, name)
            if pointers[0].thread is None:
                raise NotFound(f"{name} is a record outside of all threads; it has no card")
            return pointers[0].thread, queries.thread_key(snapshot, pointers[0].thread)

    def _tokens(self, thread: int) -> int:
        with self._keeper.snapshots.snapshot() as snapshot:
            span = queries.thread_span(snapshot, thread)
        return 0 if span is None else span.tokens

    def _again(self, keys: list[str]) -> None:
        """Have the Map take the cards in; returns when it did."""
        self._keeper.desk.restudy(keys)
        self._keeper.desk.ask_study().wait(30.0)

    # --- all of them ---

    def run(self, limit: int, say: Say, *, dry_run: bool) -> None:
        """Have cards written for threads that have none of the provider's, newest first.

        Raises:
            ProviderFailed: None is configured, or it cannot be used at all.
        """
        provider = None if dry_run else self._provider()
        done = {"written": 0, "failed": 0, "tokens": 0}
        with self._lock:
            for thread, prompt in self._prompts(limit) if dry_run else ():
                done["tokens"] += tokens(prompt)
                say({"step": "prompt", "thread": thread, "tokens": tokens(prompt), "text": prompt})
            if provider is not None:
                self._ask(provider, self._prompts(limit), say, done, None)
        say({"step": "done", **done})

    def job(self) -> str:
        """The same by itself, within the daily budget; threads that failed rest for a while."""
        budget = int(self._keeper.settings.values["cards.daily_tokens"])
        if self._keeper.settings.text("cards.provider") == schema.SOURCE or not budget:
            return "off"
        done = {"written": 0, "failed": 0, "tokens": 0}
        with self._lock:
            now = self._keeper.system.clock.now_ms()
            left = budget - self._record.spent(now)
            resting = {key for key, one in self._record.failures().items() if one.rests(now)}
            prompts = (one for one in self._prompts(SELECTED) if one[0] not in resting)
            self._ask(self._provider(), prompts, lambda _step: None, done, max(0, left))
        return f"{done['written']} written, {done['failed']} failed"

    def _ask(
        self,
        provider: Provider,
        prompts: Iterator[tuple[str, str]],
        say: Say,
        done: dict[str, int],
        budget: int | None,
    ) -> None:
        values = self._keeper.settings.values
        pause = 60 / int(values["cards.per_minute"])
        limits = Limits(int(values["cards.attempts"]), pause, budget)
        clock = self._keeper.system.clock
        for outcome in Runner(provider, limits, self._wait).run(prompts):
            done["tokens"] += outcome.tokens
            fault = outcome.fault
            noted = None if fault is None else (fault.code, fault.message)
            self._record.note(outcome.thread, outcome.tokens, noted, clock.now_ms())
            if outcome.card is None:
                done["failed"] += 1
                log.warning("no card", thread=outcome.thread, error=fault and fault.message)
                say(
                    {
                        "step": "failed",
                        "thread": outcome.thread,
                        "code": noted and noted[0],
                        "message": noted and noted[1],
                    }
                )
                continue
            done["written"] += 1
            thread = self._thread(outcome.thread)[0]
            self._keeper.cards.put(outcome.thread, outcome.card, self._tokens(thread))
            self._again([outcome.thread])
            say({"step": "card", "thread": outcome.thread, "card": card_json(outcome.card)})

    def _wait(self, seconds: float) -> bool:
        clock = self._keeper.system.clock
        until = clock.monotonic_s() + seconds
        never = threading.Event()
        while not self._keeper.stopping and clock.monotonic_s() < until:
            clock.wait(never, min(0.5, until - clock.monotonic_s()))
        return self._keeper.stopping

    def _provider(self) -> Provider:
        settings = self._keeper.settings
        values = settings.values
        timeout = settings.seconds("cards.timeout")
        kind = settings.text("cards.provider")
        if kind == schema.SOURCE:
            raise ProviderFailed("no provider of cards is configured")
        if kind == COMMAND:
            processes = self._keeper.system.processes
            return CommandProvider(
                processes, values["cards.command"], timeout, values["cards.model"]
            )
        url = values["cards.url"]
        key = environment().get(values["cards.key_env"]) or keyring_key(url)
        return OpenAIProvider(url, values["cards.model"], key, timeout)

    def _prompts(self, limit: int) -> Iterator[tuple[str, str]]:
        source = self._keeper.settings.text("cards.provider")
        if source == schema.SOURCE:
            source = COMMAND  # what a dry run would send, once a provider is configured
        with self._keeper.snapshots.snapshot() as snapshot:
            wanted = cards.without_provider(snapshot, source, limit)
        for thread in wanted:
            if self._keeper.stopping:
                return
            with self._keeper.snapshots.snapshot() as snapshot:
                found = self._prompt(snapshot, thread)
            if found is not None:
                yield found

    def _prompt(self, snapshot: Snapshot, thread: int) -> tuple[str, str] | None:
        veil = self._keeper.answers.veil._replace(redact=True)  # whatever the index holds
        excerpt = Excerpt(veil, int(self._keeper.settings.values["cards.prompt_tokens"]))
        pointers = queries.thread_records(snapshot, thread)
        for pointer in pointers:
            if pointer.kind in {"user", "assistant"} and not pointer.side:
                self._take(excerpt, pointer)
        return (queries.thread_key(snapshot, thread), excerpt.text()) if pointers else None

    def _take(self, excerpt: Excerpt, pointer: Pointer) -> None:
        if pointer.length > LONG_RECORD:
            return
        try:
            record = envelope(read(self._keeper.shelf.sources, pointer))
        except (StaleIndex, AccessDenied, GenerationDamaged):
            return  # the rest of the thread says enough
        excerpt.add(pointer.role, spoken(record).parts)

    # --- forgetting ---

    def forget(self, keys: list[str]) -> None:
        """Leave nothing of these threads."""
        for key in keys:
            self._keeper.cards.drop(key)
            self._record.forget(key)

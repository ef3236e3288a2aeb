"""Having cards written: resumable, paced, within a budget, each failure on record.

One thread after the other. Every card is kept as soon as it is there, so that whatever
ends the run, the next one goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.cards import schema
from fabled.cards.prompt import repair, tokens
from fabled.errors import BadCard, FabledError, ProviderFailed, ProviderRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.cards.provider import Answer, Provider
    from fabled.model import Card

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class Limits(NamedTuple):
    """How much may be asked.

    Attributes:
        attempts: For one prompt.
        pause_s: Between the beginnings of two prompts.
        tokens: Of prompts, in this run; None: no limit.
    """

    attempts: int
    pause_s: float
    tokens: int | None


class Outcome(NamedTuple):
    """What became of one thread: a card, or why there is none; and what it cost in tokens."""

    thread: str
    card: Card | None
    fault: FabledError | None
    tokens: int


class Runner:
    """Asks a provider.

    Args:
        provider: Who writes.
        limits: How much may be asked.
        wait: Waits for seconds; True when the run is to end.
    """

    def __init__(self, provider: Provider, limits: Limits, wait: Callable[[float], bool]) -> None:
        self._provider = provider
        self._limits = limits
        self._wait = wait

    def run(self, prompts: Iterator[tuple[str, str]]) -> Iterator[Outcome]:
        """The outcome of each (thread, prompt), as it comes; ends early when the budget does."""
        spent = 0
        first = True
        for thread, prompt in prompts:
            cost = tokens(prompt)
            if self._limits.tokens is not None and spent + cost > self._limits.tokens:
                return
            if not first and self._wait(self._limits.pause_s):
                return
            first = False
            outcome = self._one(thread, prompt)
            spent += outcome.tokens
            yield outcome

    def _one(self, thread: str, prompt: str) -> Outcome:
        cost = tokens(prompt)
        try:
            answer = self._ask(prompt)
            try:
                card = schema.read(answer.text, self._provider.name, answer.model)
            except BadCard as wrong:
                again = repair(prompt, answer.text, wrong.message)
                cost += tokens(again)
                answer = self._ask(again)
                card = schema.read(answer.text, self._provider.name, answer.model)
        except FabledError as fault:
            return Outcome(thread, None, fault, cost)
        return Outcome(thread, card, None, cost)

    def _ask(self, prompt: str) -> Answer:
        """Ask, with growing pauses between the attempts."""
        pause = FIRST_PAUSE_S
        for attempt in range(1, self._limits.attempts + 1):
            try:
                return self._provider.write(prompt)
            except ProviderFailed as fault:
                hopeless = isinstance(fault, ProviderRefused) or attempt == self._limits.attempts
                if hopeless or self._wait(pause):
                    raise
                pause = min(pause * 2, LONGEST_PAUSE_S)
        raise ProviderFailed("no attempt is allowed", hint="Set cards.attempts to 1 or more.")

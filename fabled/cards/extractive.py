"""A card without any model: the thread's own words, picked by plain rules.

It says so in its `source`. The same thread always has the same card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fabled.cards.schema import CONCEPT, DECISION, INSIGHT, SOURCE, WORKFLOW
from fabled.model import Card
from fabled.transcript import terms
from fabled.transcript.identity import clean
from fabled.transcript.sentences import decisions, sentences
from fabled.transcript.text import PROMPT, REPLY, heading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fabled.transcript.terms import Terms
    from fabled.transcript.text import Part
    from fabled.transcript.touched import Call
    from fabled.transcript.veil import Veil

TOPICS, DECISIONS, FILES = 6, 5, 12
TITLE, SENTENCE = 120, 300
_HEAD = 20_000
_TYPES = {
    DECISION: "choose decide adopt accept reject approve plan propose design define prioritize",
    WORKFLOW: "run deploy install release publish build commit merge migrate configure set setup"
    " update upgrade ship start restart backup schedule provision rename move push pull package",
    INSIGHT: "investigate debug diagnose explain analyze analyse measure profile inspect review"
    " compare find discover reproduce trace examine benchmark evaluate fix",
}
_CLASSES = {kind: frozenset(words.split()) for kind, words in _TYPES.items()}


class _Told(NamedTuple):
    titles: dict[str, str]
    prompts: list[str]
    decided: list[str]
    replies: list[str]
    files: dict[str, bool]


class Notes:
    """Takes a thread's records in order; `card` is its card.

    Args:
        veil: What may not be shown.
    """

    def __init__(self, veil: Veil) -> None:
        self._veil = veil
        self._told = _Told({}, [], [], [], {})

    def add(
        self, parts: Iterable[Part], calls: Iterable[Call], title: tuple[str, str] | None
    ) -> None:
        """Take one record: what it says, which tools it calls, and the title it gives."""
        told = self._told
        if title is not None:
            told.titles[title[0]] = title[1]
        for part in parts:
            if part.kind == PROMPT and not told.prompts:
                told.prompts.append(self._seen(part.text))
            elif part.kind == REPLY:
                text = self._seen(part.text)
                told.decided.extend(decisions(text))
                told.replies[:] = [text]
        for call in calls:
            for path, wrote in call.touched:
                told.files[path] = told.files.get(path, False) or wrote

    def _seen(self, text: str) -> str:
        return clean(self._veil.look(text, _HEAD).text)

    def card(self, found: Terms) -> Card:
        """The card, given the thread's terms."""
        told = self._told
        prompt = heading(told.prompts[0]) if told.prompts else ""
        outcome = _first(told.replies[0]) if told.replies else ""
        title = told.titles.get("custom") or told.titles.get("ai") or prompt or outcome
        changed = [path for path, wrote in told.files.items() if wrote]
        looked = [path for path, wrote in told.files.items() if not wrote]
        files = [clean(self._veil.look(path, TITLE * 4).text) for path in changed + looked]
        decided = list(dict.fromkeys(told.decided))
        return Card(
            title=_cut(title or "Untitled", TITLE),
            type=_type(found.by_kind.get(terms.OPERATIVE, {}), decided),
            topics=tuple(list(found.by_kind.get(terms.CONCEPT, {}))[:TOPICS]),
            decisions=tuple(decided[-DECISIONS:]),
            files=tuple(files[:FILES]),
            outcome=_cut(outcome, SENTENCE),
            summary=_summary(prompt, outcome),
            source=SOURCE,
        )


def _summary(prompt: str, outcome: str) -> str:
    asked = f"Asked: {_cut(prompt, SENTENCE)}" if prompt else ""
    answered = f"Answered: {_cut(outcome, SENTENCE)}" if outcome else ""
    return " ".join(filter(None, [asked, answered]))


def _first(text: str) -> str:
    """The first sentence that is more than an exclamation."""
    found = list(sentences(text))
    return next((one for one in found if len(one) > 12), found[0] if found else "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "\u2026"


def _type(operatives: Mapping[str, int], decided: list[str]) -> str:
    scores = {
        kind: sum(n for verb, n in operatives.items() if verb in words)
        for kind, words in _CLASSES.items()
    }
    scores[DECISION] += 3 * len(decided)
    best = max(scores, key=lambda kind: scores[kind])
    return best if scores[best] else CONCEPT

"""Cards as answers give them: marked as derived or generated, never mistaken for a transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabled.transcript.sentinel import neutral

if TYPE_CHECKING:
    from fabled.model import Card


def card_json(card: Card | None) -> dict[str, Any] | None:
    """A card as the socket shows it; sentinel tags in it are harmless."""
    if card is None:
        return None
    return {
        "title": neutral(card.title),
        "type": card.type,
        "topics": [neutral(one) for one in card.topics],
        "decisions": [neutral(one) for one in card.decisions],
        "files": [neutral(one) for one in card.files],
        "outcome": neutral(card.outcome),
        "summary": neutral(card.summary),
        "source": card.source,
        "model": card.model,
        "generated": card.source not in {"extractive", "manual"},
        "outdated": card.outdated,
    }

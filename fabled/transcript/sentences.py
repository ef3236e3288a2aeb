"""Sentences of prose, and the ones in which something was decided."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORTEST, LONGEST = 20, 400
_END = r".!?\n\u3002\uff01\uff1f"
_SENTENCE = re.compile(rf"[^{_END}]+(?:[.!?](?=\w)[^{_END}]*)*[{_END}]?")
_DECIDED = re.compile(
    r"\b(?:decided|decision|we(?:'ll| will) (?:use|go with|keep)|instead of|chose|rather than|"
    r"switch(?:ed|ing)? to|settled on|agreed)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, code left out; a dot inside a word ends none."""
    for found in _SENTENCE.findall(_FENCE.sub("\n", text)):
        sentence = " ".join(found.split())
        if sentence:
            yield sentence


def decisions(text: str) -> Iterator[str]:
    """The sentences that say that something was decided, picked out by their words."""
    for sentence in sentences(text):
        if SHORTEST < len(sentence) < LONGEST and _DECIDED.search(sentence):
            yield sentence

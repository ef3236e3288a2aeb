"""The lines of a record that answer a question, cut from its own words."""

from __future__ import annotations

import re
from collections import Counter

WIDTH = 240
_SPACE = re.compile(r"\s+")


def snippet(text: str, words: tuple[str, ...]) -> str:
    """About `WIDTH` characters round the place where most of the words stand close together.

    White space is folded; nothing else is changed. An ellipsis marks each cut end.
    """
    folded = _SPACE.sub(" ", text).strip()
    if len(folded) <= WIDTH:
        return folded
    places = _places(folded.lower(), words)
    start = _densest(places)
    start = max(0, min(start - WIDTH // 4, len(folded) - WIDTH))
    start = _word_start(folded, start)
    end = min(len(folded), start + WIDTH)
    return ("…" if start else "") + folded[start:end].strip() + ("…" if end < len(folded) else "")


def _places(lower: str, words: tuple[str, ...]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for word in words:
        # The index stems: what it found for "watching" may be written "watched".
        stem = word[: max(3, len(word) - 3)] if len(word) > 4 else word
        at = lower.find(stem)
        for _ in range(50):
            if at < 0:
                break
            found.append((at, word))
            at = lower.find(stem, at + 1)
    return sorted(found)


def _densest(places: list[tuple[int, str]]) -> int:
    """Where a window begins that holds the most letters of different words; linear."""
    best, best_weight, weight = 0, 0, 0
    inside: Counter[str] = Counter()
    start = 0
    for at, word in places:
        weight += 0 if inside[word] else len(word)
        inside[word] += 1
        while places[start][0] < at - WIDTH * 3 // 4:
            former = places[start][1]
            inside[former] -= 1
            weight -= 0 if inside[former] else len(former)
            start += 1
        if weight > best_weight:
            best, best_weight = places[start][0], weight
    return best


def _word_start(text: str, start: int) -> int:
    if start == 0 or text[start - 1] == " ":
        return start
    space = text.find(" ", start, start + 20)
    return space + 1 if space >= 0 else start

"""Words the way the index sees them: identifiers taken apart and joined, CJK one by one.

The index's tokenizer splits `foo_bar` at the underscore, leaves `fooBar` whole and
makes one token of a run of Chinese. The `parts` column adds what it cannot see; the
question is taken apart by the same functions.
"""

from __future__ import annotations

import re
from functools import lru_cache

CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
CJK_RUN = re.compile(f"[{CJK}]+")
LONGEST = 200
"""Characters of an identifier that is taken apart; a longer one is data."""

WORD = re.compile(r"[A-Za-z0-9_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being
below between both but by can could did do does doing don done down during each few for from
further get got had has have having he her here hers him his how i if in into is it its
itself just kind like many me might more most much my no nor not now of off on once one only
or other our ours out over own s same she should so some such t than that the their theirs
them then there these they this those through to too under until up us very was we were what
when where which while who whom why will with would you your yours ll re ve d m
"""
STOP = frozenset(_STOP_WORDS.split())


@lru_cache(maxsize=8192)
def humps(word: str) -> tuple[str, ...]:
    """The lower-case parts of one identifier: `parseHTMLFile` -> parse, html, file."""
    return tuple(part.lower() for part in _HUMPS.findall(word))


def parts(text: str) -> str:
    """What the tokenizer would miss in a text, each distinct word once."""
    found: list[str] = []
    for word in dict.fromkeys(WORD.findall(text)):
        if word.isalpha() and (word.islower() or word.istitle() or word.isupper()):
            continue  # one part, as nearly every word
        pieces = humps(word) if len(word) <= LONGEST else ()
        if len(pieces) > 1:
            if "_" not in word:
                found += pieces
            found.append("".join(pieces))
    if not text.isascii():
        for run in CJK_RUN.findall(text):
            found += run
    return " ".join(found)

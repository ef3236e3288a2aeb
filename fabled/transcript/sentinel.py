"""The mark round recalled text, so that memory is never indexed as if it were new.

A recall is wrapped in `<historical_context session=".." arcs=".." sig=".." marks="..">`.
The signature is an HMAC of the attributes and the body under a key that lives in
fabled's home: text that merely looks like a sentinel, in code or in documentation,
hides nothing from the index. The marks sign the body piece by piece, because clients
cut long output: what is left of a recall is known as far as it goes unchanged. Inside
a wrapped body every such tag is made harmless, so that transcript text can neither
nest nor break out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEY_BYTES = 32
PIECE_WORDS = 100
"""Words under one mark: a cut recall leaves fewer than these to be indexed again."""

_MARK_HEX = 6
_OPEN = re.compile(
    r'<historical_context session="([^"<>]*)" arcs="([^"<>]*)" sig="([0-9a-f]{32})"'
    r'(?: marks="([0-9a-f.]*)")?>'
)
_QUOTED = re.compile(r'<historical_context session=\\"[^<>]*>')
_NAME = "<historical_context"
_CLOSE = "</historical_context>"
_TAG = re.compile(r"<(?=\s*/?\s*(?:historical_context|consulted_arcs)\b)", re.IGNORECASE)
_WORD = re.compile(r"\S+")
_CONSULTED = re.compile(r'<consulted_arcs refs="([^"<>]{1,8192})"/>')
_REF = re.compile(r"[\w:/.@-]{4,200}")


class Stripped(NamedTuple):
    """Text without its signed spans, and the arcs those spans cited."""

    text: str
    arcs: tuple[str, ...]


class _Span(NamedTuple):
    start: int
    end: int
    arcs: list[str]


def wrap(body: str, session: str, arcs: Sequence[str], key: bytes) -> str:
    """The body between signed tags; tags inside it are harmless afterwards."""
    inner = neutral(strip(body, key, stub=True).text)
    session, refs = _attribute(session), _attribute(" ".join(arcs))
    words = inner.split()
    sig = _sign(key, session, refs, words)
    whole = len(words) // PIECE_WORDS
    marks = ".".join(_mark(key, sig, at, _piece(words, at)) for at in range(whole))
    tag = f'{_NAME} session="{session}" arcs="{refs}" sig="{sig}" marks="{marks}">'
    return f"{tag}\n{inner}\n{_CLOSE}"


def consulted(arcs: Sequence[str]) -> str:
    """The short tag that stands for a recall that was taken out of a transcript."""
    return f'<consulted_arcs refs="{" ".join(arcs)}"/>'


def strip(text: str, key: bytes, *, stub: bool = False) -> Stripped:
    """Take out every span that this key signed and nobody changed since.

    Of a span that was cut off, the part that is still as it was signed.

    Args:
        text: What one part of a record says.
        key: The home's own key.
        stub: Leave a self-closing tag with the citations where a span was.
    """
    if _NAME not in text:
        return Stripped(text, ())
    kept: list[str] = []
    arcs: list[str] = []
    position = 0
    for span in _spans(text, key):
        kept.append(text[position : span.start])
        if stub:
            kept.append(f"[recalled: {' '.join(span.arcs)}]")
        arcs += span.arcs
        position = span.end
    kept.append(text[position:])
    return Stripped("".join(kept), tuple(dict.fromkeys(arcs)))


def cited(text: str) -> tuple[str, ...]:
    """The arcs named by tags that a prune left where a recall was.

    They carry no signature: they hide nothing, and what they name has to be a thread's id.
    """
    if "<consulted_arcs" not in text:
        return ()
    found = [ref for match in _CONSULTED.finditer(text) for ref in match[1].split()]
    return tuple(dict.fromkeys(ref for ref in found if _REF.fullmatch(ref)))


def neutral(text: str) -> str:
    """The same text with sentinel tags written so that they are text and no tags."""
    return _TAG.sub("&lt;", text)


def _spans(text: str, key: bytes) -> Iterator[_Span]:
    position = 0
    found = sorted([*_OPEN.finditer(text), *_QUOTED.finditer(text)], key=lambda m: m.start())
    for opening in found:
        if opening.start() < position:
            continue
        quoted = opening.re is _QUOTED
        span = _inside_json(text, opening, key) if quoted else _span(text, opening, key)
        if span is not None:
            position = span.end
            yield span


def _span(text: str, opening: re.Match[str], key: bytes) -> _Span | None:
    session, refs, sig, marks = opening.groups()
    close = text.find(_CLOSE, opening.end())
    if close >= 0:
        words = text[opening.end() : close].split()
        if hmac.compare_digest(sig, _sign(key, session, refs, words)):
            return _Span(opening.start(), close + len(_CLOSE), refs.split())
    end = _cut_off(text, opening.end(), key, sig, marks or "")
    return None if end is None else _Span(opening.start(), end, refs.split())


def _cut_off(text: str, start: int, key: bytes, sig: str, marks: str) -> int | None:
    """Where the signed pieces that follow an opening tag end; None when not even one does."""
    end = None
    words: list[str] = []
    expected = marks.split(".")
    at = 0
    for word in _WORD.finditer(text, start):
        words.append(word[0])
        if len(words) < PIECE_WORDS:
            continue
        if at >= len(expected) or expected[at] != _mark(key, sig, at, words):
            break
        end, at, words = word.end(), at + 1, []
    return end


def _inside_json(text: str, opening: re.Match[str], key: bytes) -> _Span | None:
    """A span inside the text of a JSON string, as `--json` prints it."""
    close = text.find(_CLOSE, opening.end())
    if close < 0:
        return None
    end = close + len(_CLOSE)
    try:
        decoded = json.loads(f'"{text[opening.start() : end]}"', strict=False)
    except ValueError:
        return None  # it only looks like one
    inner = _OPEN.match(decoded)
    span = None if inner is None else _span(decoded, inner, key)
    if span is None or span.end != len(decoded):
        return None
    return _Span(opening.start(), end, span.arcs)


def _attribute(text: str) -> str:
    return re.sub(r'["<>\s]+', " ", text).strip()


def _piece(words: list[str], at: int) -> list[str]:
    return words[at * PIECE_WORDS : (at + 1) * PIECE_WORDS]


def _sign(key: bytes, session: str, refs: str, words: list[str]) -> str:
    # White space may be reflowed on the way through a terminal; words may not.
    message = "\n".join((session, refs, " ".join(words))).encode("utf-8", "replace")
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:32]


def _mark(key: bytes, sig: str, at: int, words: list[str]) -> str:
    message = "\n".join((sig, str(at), " ".join(words))).encode("utf-8", "replace")
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:_MARK_HEX]

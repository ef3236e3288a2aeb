"""The mark round recalled text, so that memory is never indexed as if it were new.

A recall is wrapped in `<historical_context session=".." arcs=".." sig="..">`. The
signature is an HMAC of the attributes and the body under a key that lives in
fabled's home: text that merely looks like a sentinel, in code or in documentation,
hides nothing from the index. Inside a wrapped body every such tag is made harmless,
so that transcript text can neither nest nor break out.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_BYTES = 32
_OPEN = re.compile(
    r'<historical_context session="([^"<>]*)" arcs="([^"<>]*)" sig="([0-9a-f]{32})">'
)
_CLOSE = "</historical_context>"
_TAG = re.compile(r"<(?=\s*/?\s*(?:historical_context|consulted_arcs)\b)", re.IGNORECASE)


class Stripped(NamedTuple):
    """Text without its signed spans, and the arcs those spans cited."""

    text: str
    arcs: tuple[str, ...]


def wrap(body: str, session: str, arcs: Sequence[str], key: bytes) -> str:
    """The body between signed tags; tags inside it are harmless afterwards."""
    inner = neutral(strip(body, key, stub=True).text)
    session, refs = _attribute(session), _attribute(" ".join(arcs))
    sig = _sign(key, session, refs, inner)
    return f'<historical_context session="{session}" arcs="{refs}" sig="{sig}">\n{inner}\n{_CLOSE}'


def strip(text: str, key: bytes, *, stub: bool = False) -> Stripped:
    """Take out every span that this key signed and nobody changed since.

    Args:
        text: What a record says.
        key: The home's own key.
        stub: Leave a self-closing tag with the citations where a span was.
    """
    if _CLOSE not in text:
        return Stripped(text, ())
    kept: list[str] = []
    arcs: list[str] = []
    position = 0
    for opening in _OPEN.finditer(text):
        if opening.start() < position:
            continue
        end = text.find(_CLOSE, opening.end())
        if end < 0:
            break
        session, refs, sig = opening.groups()
        if not hmac.compare_digest(sig, _sign(key, session, refs, text[opening.end() : end])):
            continue
        kept.append(text[position : opening.start()])
        arcs += refs.split()
        if stub:
            kept.append(f"[recalled: {refs}]")
        position = end + len(_CLOSE)
    kept.append(text[position:])
    return Stripped("".join(kept), tuple(dict.fromkeys(arcs)))


def neutral(text: str) -> str:
    """The same text with sentinel tags written so that they are text and no tags."""
    return _TAG.sub("&lt;", text)


def _attribute(text: str) -> str:
    return re.sub(r'["<>\s]+', " ", text).strip()


def _sign(key: bytes, session: str, refs: str, body: str) -> str:
    # White space may be reflowed on the way through a terminal; words may not.
    words = " ".join(body.split())
    message = "\n".join((session, refs, words)).encode("utf-8", "replace")
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:32]

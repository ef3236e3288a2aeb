"""What of a record's words is neither indexed nor shown: signed recalls, and secrets."""

from __future__ import annotations

from typing import NamedTuple

from fabled.transcript.secrets import redact
from fabled.transcript.sentinel import cited, strip

LOOK_AHEAD = 4096
"""Characters beyond a cut that are looked at, so that no cut leaves half a secret."""


class Seen(NamedTuple):
    """What is left of a text, and the arcs that it cites."""

    text: str
    arcs: tuple[str, ...]


class Veil(NamedTuple):
    """Lets through what may be indexed and shown.

    Attributes:
        key: The home's sentinel key: spans it signed are recalls, not news.
        redact: Replace secrets.
    """

    key: bytes
    redact: bool = True

    def look(self, text: str, limit: int | None = None, *, stub: bool = False) -> Seen:
        """A text without recalls and secrets, cut to a limit after both are out.

        Args:
            text: One part of a record; a recall never spans two.
            limit: Characters kept.
            stub: Leave a short note where a recall was.
        """
        found = strip(text, self.key, stub=stub)
        shown = found.text if limit is None else found.text[: limit + LOOK_AHEAD]
        if self.redact:
            shown = redact(shown)
        return Seen(shown[:limit], tuple(dict.fromkeys((*found.arcs, *cited(found.text)))))

    def text(self, text: str) -> str:
        """A text as it is shown: recalls as a short note, secrets replaced."""
        return self.look(text, stub=True).text

"""Where a run shows things: data on standard output, sentences on standard error.

On a terminal text is made harmless and may have colour; anywhere else bytes go out as
they came.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

from fabled.client.layout import safe
from fabled.errors import AccessDenied, DiskFull, FabledError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabled.client.asking import Answer

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_RESET = "\x1b[0m"
_LEAST_COLUMNS = 40

# Control characters that JSON may hold unescaped, and a terminal might obey.
_JSON_OBEYED = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ReaderLeft(Exception):
    """Whoever read our output has seen enough. No `OSError`: click would exit 1 on that."""


class Screen:
    """Standard output and standard error of this process.

    Args:
        out: Standard output; None when it is closed.
        err: Standard error; None when it is closed.
        environ: The process's environment.

    Attributes:
        terminal: Whether standard output is one.
        colour: Whether it may have colour.
        columns: Its width; None when it is no terminal, so that nothing is cut.
        progress: Whether standard error is a terminal, and progress may be drawn there.
    """

    def __init__(self, out: TextIO | None, err: TextIO | None, environ: Mapping[str, str]) -> None:
        self._out = out
        self._err = err
        self.terminal = out is not None and out.isatty()
        self.progress = err is not None and err.isatty()
        plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.may_colour = not plain
        self.colour = self.terminal and self.may_colour
        self.columns = _columns(out, environ) if out is not None and self.terminal else None

    def raw(self, piece: bytes) -> None:
        """Write exactly these bytes.

        Raises:
            ReaderLeft: Nobody reads any more.
            DiskFull: The file behind standard output cannot grow.
            AccessDenied: Standard output is closed, or cannot be written to.
        """
        if self._out is None:
            raise AccessDenied("standard output is closed")
        try:
            self._out.buffer.write(piece)
        except BrokenPipeError:
            raise ReaderLeft from None
        except OSError as fault:
            raise _unwritable(fault) from fault

    def flush(self) -> None:
        """Hand everything over; raises what `raw` does."""
        if self._out is None:
            return
        try:
            self._out.flush()
        except BrokenPipeError:
            raise ReaderLeft from None
        except OSError as fault:
            raise _unwritable(fault) from fault

    def text(self, text: str) -> None:
        """Write text: exactly, or on a terminal without what a terminal would obey."""
        if self.terminal:
            text = safe(text)
            text += "" if text.endswith("\n") else "\n"
        self.raw(self._encode(text))

    def line(self, text: str = "") -> None:
        """Write a line that was made to be shown: safe already, perhaps painted."""
        self.raw(self._encode(text + "\n"))

    def json(self, answer: Answer) -> None:
        """Write the object: as it was sent, or on a terminal indented."""
        if not self.terminal:
            self.raw(answer.raw.strip(b"\n") + b"\n")
            return
        self.value(answer.value)

    def value(self, value: Mapping[str, Any]) -> None:
        """Write an object that the client itself knows."""
        text = json.dumps(value, ensure_ascii=False, indent=2 if self.terminal else None)
        escaped = _JSON_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        self.raw(escaped.encode("utf-8", "backslashreplace") + b"\n")

    def _encode(self, text: str) -> bytes:
        encoding = self._out.encoding if self._out is not None and self.terminal else "utf-8"
        return text.encode(encoding, "replace")

    def say(self, sentence: str) -> None:
        """A message, not data, after all data so far; lost when standard error is closed."""
        self.flush()
        if self._err is None:
            return
        shown = safe(sentence) if self.progress else sentence
        try:
            self._err.write(shown + "\n")
            self._err.flush()
        except BrokenPipeError:
            raise ReaderLeft from None

    def paint(self, text: str, *styles: str) -> str:
        """The text in these styles, where there is colour."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}{_RESET}"


def standard(environ: Mapping[str, str]) -> Screen:
    """The screen of this process."""
    return Screen(sys.stdout, sys.stderr, environ)


def silence(*streams: TextIO | None) -> None:
    """Let what they still hold go nowhere, so that the interpreter's own flush cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in streams:
            if stream is not None:
                os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def _columns(out: TextIO, environ: Mapping[str, str]) -> int:
    asked = environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and len(asked) < 6 and int(asked):
        return max(_LEAST_COLUMNS, int(asked))
    try:
        found = os.get_terminal_size(out.fileno()).columns
    except OSError:
        found = 0
    return max(_LEAST_COLUMNS, found or 80)


def _unwritable(fault: OSError) -> FabledError:
    reason = fault.strerror or str(fault)
    if fault.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DiskFull(f"cannot write to standard output: {reason}", hint="Free some space.")
    return AccessDenied(
        f"cannot write to standard output: {reason}", hint="Send the output somewhere else."
    )

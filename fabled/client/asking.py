"""What every command starts from: the daemon to ask, the screen to show on, shared options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from fabled import config
from fabled.client.http import error_in, request
from fabled.errors import DaemonUnreachable, InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from fabled.client.terminal import Screen

Given = str | int | tuple[str, ...] | None
"""A query parameter, or several of one name; None and the empty string are not sent."""


class Answer(NamedTuple):
    """A JSON object as it was sent, and what it says."""

    raw: bytes
    value: dict[str, Any]


class Daemon:
    """The daemon whose socket the environment names. Nothing is looked up before it is asked.

    Args:
        environ: The process's environment.
        file: The configuration file of the command line.
    """

    def __init__(self, environ: Mapping[str, str], file: Path | None) -> None:
        self.environ = environ
        self.file = file

    @property
    def _socket(self) -> Path:
        return config.places(self.environ, self.file).socket

    def ask(self, path: str, /, **given: Given) -> Answer:
        """The JSON object that a path answers; raises what `request` does."""
        with request(self._socket, "GET", target(path, given)) as reply:
            raw = reply.body()
        return Answer(raw, _object(raw))

    def exact(self, path: str, /, **given: Given) -> Iterator[bytes]:
        """The bytes that a path answers, as they arrive; raises what `request` does."""
        with request(self._socket, "GET", target(path, given)) as reply:
            yield from reply.pieces()

    def post(self, path: str, /, **given: Given) -> Answer:
        """The JSON object answered to an order; raises what `request` does."""
        with request(self._socket, "POST", target(path, given)) as reply:
            raw = reply.body()
        return Answer(raw, _object(raw))

    def put(self, path: str, body: bytes, /) -> Answer:
        """The JSON object answered to something sent; raises what `request` does."""
        with request(self._socket, "PUT", target(path, {}), body=body) as reply:
            raw = reply.body()
        return Answer(raw, _object(raw))

    def steps(self, path: str, /, **given: Given) -> Iterator[Answer]:
        """The steps of long work, each when it arrives; ends after the step "done".

        Raises:
            FabledError: A line carried an error.
            DaemonUnreachable: The connection ended before the work did.
        """
        with request(self._socket, "POST", target(path, given), wait_s=None) as reply:
            for raw in reply.lines():
                step = _object(raw)
                fault = error_in(step)
                if fault is not None:
                    raise fault
                yield Answer(raw, step)
                if step.get("step") == "done":
                    return
        raise DaemonUnreachable("the daemon ended before its work was done")

    def lines(self, path: str, /, **given: Given) -> Iterator[Answer]:
        """The lines of a reply that never ends, each when it arrives; raises as `steps`."""
        with request(self._socket, "GET", target(path, given), wait_s=None) as reply:
            for raw in reply.lines():
                line = _object(raw)
                fault = error_in(line)
                if fault is not None:
                    raise fault
                yield Answer(raw, line)


class Run(NamedTuple):
    """One run of `fablectl`."""

    daemon: Daemon
    screen: Screen


def target(path: str, given: Mapping[str, Given]) -> str:
    """A path with its parameters. Bytes of the command line that are no text go as they are."""
    pairs = [
        (name, one)
        for name, value in given.items()
        for one in (value if isinstance(value, tuple) else (value,))
    ]
    query = "&".join(f"{name}={encoded(str(value))}" for name, value in pairs if value)
    return f"{path}?{query}" if query else path


def encoded(text: str) -> str:
    """The text as one segment of a path, or as a parameter's value."""
    return quote(text, safe="", errors="surrogateescape")


def named(kind: str, text: str) -> str:
    """An id of the command line, as a segment of a path.

    Raises:
        UsageError: It is empty.
    """
    if not text.strip():
        raise UsageError(f"the id of the {kind} is empty", hint="Copy one from: fablectl search")
    return encoded(text)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InternalError("the daemon's answer is not a JSON object")
    return value


def exclusive(first: str, second: str, *, both: bool) -> None:
    """Refuse two options that say different things about the same output.

    Raises:
        UsageError: Both were given.
    """
    if both:
        raise UsageError(f"{first} and {second} exclude each other", hint="Give one of them.")


json_option: Callable[..., Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with stable keys."
)

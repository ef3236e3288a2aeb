"""The daemon's log: one line an event on stderr, for a machine or for a person.

Log ids, sizes, paths and counts; never text of a transcript. Tracebacks carry no
local variables, and long values are cut, so that a record that slips into an error
message does not spill into the log.
"""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from fabled.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    from structlog.typing import Processor

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
LONGEST_VALUE = 1000
"""Characters of one value that reach the log; a traceback keeps all of its lines."""

SIZE, ROTATED = 5_000_000, 3
_LIBRARIES = {
    "watchdog": logging.WARNING,
    "asyncio": logging.WARNING,
    "uvicorn": logging.WARNING,
    # Its warnings say that a job still runs when it is due again, which is meant to be so.
    "apscheduler": logging.ERROR,
}


def configure(level: str, stream: TextIO) -> None:
    """Send every log of this process to the stream: JSON lines, or readable on a terminal.

    A stream that can no longer be written (closed pipe, full disk) loses lines and
    nothing else. Calling it again replaces the former set-up.

    Args:
        level: One of `LEVELS`.
        stream: Not closed here.
    """
    _configure(level, logging.StreamHandler(stream), readable=stream.isatty())


def configure_file(level: str, path: Path) -> None:
    """The same into a private file, JSON lines, that never grows beyond `ROTATED` times `SIZE`.

    For service managers that keep no log themselves.

    Raises:
        AccessDenied: The file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = RotatingFileHandler(path, maxBytes=SIZE, backupCount=ROTATED, encoding="utf-8")
        path.chmod(0o600)
    except OSError as fault:
        raise AccessDenied(f"cannot write the log {path}: {fault.strerror}") from fault
    _configure(level, handler, readable=False)


def _configure(level: str, handler: logging.Handler, *, readable: bool) -> None:
    logging.raiseExceptions = False
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _tidy,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(readable=readable),
            ],
        )
    )
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    set_level(level)
    logging.captureWarnings(capture=True)


def set_level(level: str) -> None:
    """Log what is at least this important; libraries only from their own floor on."""
    wanted = LEVELS[level]
    logging.getLogger().setLevel(wanted)
    for name, floor in _LIBRARIES.items():
        logging.getLogger(name).setLevel(max(wanted, floor))


def _renderer(*, readable: bool) -> Processor:
    if readable:
        return structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.JSONRenderer(serializer=_json)


def _json(event: MutableMapping[str, Any], **_: object) -> str:
    return json.dumps(event, ensure_ascii=False, default=repr)


def _tidy(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Cut long values and spell out bytes that are no text, such as odd file names."""
    for key, value in event.items():
        if isinstance(value, str):
            text = value.encode("utf-8", "backslashreplace").decode()
            cut = key != "exception" and len(text) > LONGEST_VALUE
            event[key] = text[:LONGEST_VALUE] + "..." if cut else text
    return event

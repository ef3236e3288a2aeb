"""What the daemon's log looks like, and what never gets into it."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import warnings

import pytest
import structlog

from fabled.daemon import log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored():
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], level, logging.raiseExceptions = before
    root.setLevel(level)
    for name in ("watchdog", "uvicorn", "apscheduler", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def lines(stream) -> list[dict]:
    """Every line, parsed."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_log_to_a_pipe_is_one_json_object_a_line():
    """Event, level, logger, UTC time and the given facts, a traceback inside its line."""
    out = io.StringIO()
    log.configure("info", out)
    structlog.get_logger("fabled.x").info("indexed", files=3, path="a\nb")
    try:
        int("bad")
    except ValueError:
        structlog.get_logger("fabled.x").exception("failed")
    first, second = lines(out)
    stamp = first.pop("timestamp")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", stamp)
    assert first == {
        "event": "indexed", "level": "info", "logger": "fabled.x", "files": 3, "path": "a\nb"
    }  # fmt: skip
    assert second["exception"].endswith("with base 10: 'bad'")
    assert second["level"] == "error"


def test_log_to_a_terminal_is_readable():
    """Words instead of JSON, and no colour codes."""
    out = Terminal()
    log.configure("info", out)
    structlog.get_logger().warning("careful", path="/a")
    assert "careful" in out.getvalue()
    assert "path=/a" in out.getvalue()
    assert "{" not in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_log_takes_in_the_libraries_above_their_floor():
    """Warnings of watchdog and uvicorn come in our form, their chatter does not come."""
    out = io.StringIO()
    log.configure("debug", out)
    for name in ("watchdog.observers.inotify_c", "uvicorn.error"):
        logging.getLogger(name).info("chatter")
        logging.getLogger(name).warning("lost %d", 3)
    logging.getLogger("apscheduler.scheduler").warning("skipped: still running")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
    found = [(row["logger"], row["event"]) for row in lines(out)]
    assert found[:2] == [("watchdog.observers.inotify_c", "lost 3"), ("uvicorn.error", "lost 3")]
    assert [name for name, _ in found[2:]] == ["py.warnings"]


def test_log_level_filters_and_can_change():
    """Less important events are dropped, until the level is lowered."""
    out = io.StringIO()
    log.configure("warning", out)
    logger = structlog.get_logger()
    logger.info("quiet")
    log.set_level("debug")
    logger.debug("loud")
    assert [row["event"] for row in lines(out)] == ["loud"]


def test_log_configured_again_writes_once():
    """A second set-up replaces the first instead of doubling every line."""
    first, second = io.StringIO(), io.StringIO()
    log.configure("info", first)
    log.configure("info", second)
    structlog.get_logger().info("once")
    assert (first.getvalue(), len(lines(second))) == ("", 1)


def test_log_cuts_long_values_and_shows_no_local_variables():
    """A record that slips into a message does not spill whole; locals stay out of tracebacks."""
    out = io.StringIO()
    log.configure("debug", out)
    secret = "sk-ant-" + "x" * 20
    try:
        bytes(len(secret) - 1000)
    except ValueError:
        structlog.get_logger().exception("failed", text="y" * 100_000)
    (row,) = lines(out)
    assert secret not in out.getvalue()
    assert len(row["text"]) == log.LONGEST_VALUE + 3


def test_log_of_a_name_that_is_no_text_is_still_valid_utf8():
    """File names with odd bytes are spelled out."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "utf-8", errors="strict", write_through=True)
    log.configure("info", out)
    structlog.get_logger().info("seen", path=os.fsdecode(b"/a/\xff"))
    assert json.loads(raw.getvalue())["path"] == "/a/\\udcff"


def test_log_to_a_closed_pipe_loses_lines_and_nothing_else(capfd):
    """The caller goes on, and stderr gets no complaint about logging."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", buffering=1) as out:
        log.configure("info", out)
        structlog.get_logger().info("into the void")
        structlog.get_logger().info("again")
        logging.getLogger().handlers.clear()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, write)  # so that closing can flush
        os.close(null)
    assert capfd.readouterr().err == ""

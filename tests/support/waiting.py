"""Waiting for what threads and processes do, with an end and without naps."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 20.0


class Heard:
    """A list that threads add to, and a test waits on."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, item: Any = None) -> Any:
        """Add one item and return it; a callback with or without an argument."""
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()
        return item

    def wait(self, wanted: Callable[[list[Any]], Any], timeout: float = PATIENCE_S) -> Any:
        """Block until `wanted(items)` is true; returns what it returned."""
        with self._changed:
            found = self._changed.wait_for(lambda: wanted(self.items), timeout)
            assert found, f"not within {timeout} s; heard {self.items[-20:]}"
            return found

    def wait_for(self, item: Any, timeout: float = PATIENCE_S) -> None:
        """Block until the item was heard."""
        self.wait(lambda items: item in items, timeout)

    def clear(self) -> None:
        """Forget what was heard."""
        with self._changed:
            self.items.clear()


def until(true: Callable[[], Any], timeout: float = PATIENCE_S) -> Any:
    """Ask again and again until the answer is true; returns it."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {timeout} s"
        pause.wait(0.005)
    return found

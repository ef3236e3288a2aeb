"""Telling the service manager how it goes: the protocol of sd_notify(3), a datagram a message.

Without a manager that listens (no NOTIFY_SOCKET) every call does nothing.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_STATUS = 200


class Manager:
    """Safe to share between threads: each message is one datagram.

    Args:
        environ: Where the manager says how it listens, and how often it wants to hear.
        pid: Ours: a watchdog meant for another process is not ours to feed.
    """

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        usec = environ.get("WATCHDOG_USEC", "")
        meant = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
        self.watchdog_s = int(usec) / 1e6 if usec.isdigit() and meant and self._address else 0.0
        self._status = ""

    def ready(self) -> None:
        """The socket answers."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for whoever asks the manager; the same line is sent once."""
        line = " ".join(text.split())[:LONGEST_STATUS]
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def reloading(self, monotonic_s: float) -> None:
        """The configuration is being read again; `ready` says when that is over."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic_s * 1e6)}")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A leading @ stands for the NUL of the abstract namespace.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(message.encode("utf-8", "replace"), address)
            except OSError:
                return  # the manager is gone or busy: nothing that we do depends on it

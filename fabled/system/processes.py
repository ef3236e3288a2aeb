"""The real clock and the real processes.

What each method promises stands on `fabled.system.ports`. psutil and subprocess are
imported when first needed: reading the clock must not cost 30 ms.
"""
# ruff: noqa: TID251, PLC0415, S603 - this is the Processes port; it starts what its caller names
# ruff: noqa: D102 - the docstrings stand on the port

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from fabled.system import leases
from fabled.system.opened import refusals
from fabled.system.ports import Ran

if TYPE_CHECKING:
    import subprocess
    import threading
    from collections.abc import Mapping, Sequence


_M_ARENA_MAX = -8
_START_FIELD = 19
"""The 22nd field of /proc/PID/stat, counted from the one after the command's name."""

CLIENT_NAME = "claude"
_REMOTE = (
    "nfs",
    "cifs",
    "smb",
    "fuse.sshfs",
    "fuse.rclone",
    "9p",
    "afpfs",
    "webdav",
    "ceph",
    "lustre",
)
_ARENAS = 2
RAN_LIMIT = 1 << 20
"""Bytes of a program's output that are read."""


def _end_group(pid: int) -> None:
    """End a program that leads a group, and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class SystemClock:
    """`Clock` of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


def _allocator(name: str, *numbers: int) -> None:
    """Call one of glibc's own functions; other C libraries manage without."""
    if sys.platform == "linux":
        import ctypes

        function = getattr(ctypes.CDLL(None), name, None)
        if function is not None:
            function(*numbers)


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdin(self) -> IO[bytes]:
        return cast("IO[bytes]", self.process.stdin)

    @property
    def stdout(self) -> IO[bytes]:
        return cast("IO[bytes]", self.process.stdout)

    def wait(self, timeout: float) -> int | None:
        import subprocess

        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended with input unread
            self.stdin.close()
        self.stdout.close()


class PosixProcesses:
    """`Processes` by psutil, imported when first asked."""

    def settle_in(self) -> None:
        os.umask(0o077)
        leases.ignore_breaks()
        _allocator("mallopt", _M_ARENA_MAX, _ARENAS)

    def start_ticks(self, pid: int) -> str | None:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - no Path needed
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return None
        return fields[_START_FIELD].decode()

    def clients(self) -> list[str | None]:
        import psutil

        every = [process.info for process in psutil.process_iter(["name", "cwd"])]
        return [info["cwd"] for info in every if info["name"] == CLIENT_NAME]

    def remote(self, path: str) -> bool:
        import psutil

        best, kind = "", ""
        for mount in psutil.disk_partitions(all=True):
            point = mount.mountpoint.rstrip("/") + "/"
            if (path + "/").startswith(point) and len(point) >= len(best):
                best, kind = point, mount.fstype
        return kind.startswith(_REMOTE)

    def release_memory(self) -> None:
        _allocator("malloc_trim", 0)

    def pid(self) -> int:
        return os.getpid()

    def uid(self) -> int:
        return os.geteuid()

    def rss_bytes(self) -> int:
        import psutil

        return int(psutil.Process().memory_info().rss)

    def cpu_s(self) -> float:
        used = os.times()
        return used.user + used.system

    def alive(self, pid: int) -> bool:
        import psutil

        if pid <= 0:
            return False
        try:
            return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    def run(self, argv: Sequence[str], data: bytes, timeout_s: float) -> Ran:
        import subprocess

        with refusals(argv[0]), tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
            )
            try:
                process.communicate(data, timeout=timeout_s)
                status: int | None = process.returncode
            except subprocess.TimeoutExpired:
                _end_group(process.pid)
                process.communicate()
                status = None
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read(RAN_LIMIT))
        return Ran(status, *texts)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        pass_fds: tuple[int, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> _Child:
        import subprocess

        with refusals(argv[0]):
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=pass_fds,
                env=env,
                start_new_session=True,  # a terminal's Ctrl-C is ours to handle, not the child's
            )
        return _Child(process)

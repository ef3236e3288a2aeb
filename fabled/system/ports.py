"""What the rest of fabled sees of the operating system: values and `Protocol` classes.

Paths are `str` as `os.fsdecode` makes them, so any name a disk can hold is a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Mapping, Sequence


class FileStat(NamedTuple):
    """What one `stat` said; `mode` is the whole st_mode, `kind` its type in a word.

    Attributes:
        links: How many names the file has.
        uid: Whose it is.
    """

    dev: int
    ino: int
    size: int
    mtime_ns: int
    mode: int
    kind: str
    """One of "file", "dir", "link", "other"."""
    links: int = 1
    uid: int = -1


class Entry(NamedTuple):
    """One name in a folder; `kind` as in `FileStat`, links not followed."""

    name: str
    path: str
    kind: str


class OpenFile(Protocol):
    """A regular file open for reading; the caller closes it. Failed reads are `AccessDenied`."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`, unbuffered; empty at the end only."""

    def seek(self, offset: int, /) -> object:
        """Make the next `read` begin at this offset from the start."""

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes of that range, shorter only where the file ends; `read` is not moved."""

    def stat(self) -> FileStat:
        """What the open file is now, whatever its path names meanwhile."""

    def close(self) -> None:
        """Let the file go; a second call does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class LiveFile(OpenFile, Protocol):
    """A file of somebody else's, open for reading, on which a lease can be had (Linux).

    A read lease is granted only while nobody has the file open for writing; whoever opens it
    for writing afterwards waits in the kernel until the lease is given back, 45 s at most.
    """

    def lease(self) -> bool:
        """Take a read lease; False when somebody has the file open for writing."""

    def unlease(self) -> None:
        """Give it back; whoever waits goes on."""


class NewFile(OpenFile, Protocol):
    """A file being made under a temporary name in its final folder, open for both.

    Leaving its `with` block removes it, unless `publish` or `replace` gave it its name.
    """

    path: str

    def write(self, data: bytes) -> None:
        """Append all of it, or raise `DiskFull` or `AccessDenied`."""

    def sync(self) -> None:
        """Make the bytes survive a power cut. After a refusal, throw the file away."""

    def take_after(self, model: OpenFile) -> None:
        """The mode, times and extended attributes of another file."""

    def set_mode(self, mode: int) -> None:
        """Its permissions."""

    def set_mtime(self, mtime_ns: int) -> None:
        """When it counts as changed last; later writes change that again."""

    def knows_leases(self) -> bool:
        """Whether its disk keeps others waiting for a lease; tried on this very file."""

    def lease(self) -> bool:
        """Take a write lease: whoever opens it, under any name, waits. False when refused."""

    def leased(self) -> bool:
        """Whether that lease is still held; closing the file gives it back."""

    def write_at_end(self, data: bytes) -> None:
        """Append, the last byte first.

        If we are killed in the middle, what is there is a closed line and damaged, and never
        one that swallows what others append next. A refusal takes back what was written; the
        caller holds a write lease.
        """

    def publish(self, target: str) -> bool:
        """Give it its name, durably; False when the name is taken. `sync` it before."""

    def replace(self, target: str, *, durably: bool = True) -> None:
        """Give it its name in place of what has it now. `sync` it before.

        Args:
            target: The name.
            durably: Sync the folder as well; otherwise the caller does.
        """

    def exchange(self, target: str) -> bool:
        """Take a name and give whatever had it our temporary one, at one moment.

        Returns:
            False where the file system cannot do that; nothing happened then.
        """

    def discard(self) -> None:
        """Close it, and remove it if it never got its name."""


class Lock(Protocol):
    """A file lock that is held. Children given `fd` hold it too, until the last one ends."""

    @property
    def fd(self) -> int:
        """The descriptor that holds the lock, for `Processes.spawn(pass_fds=...)`."""

    def write(self, text: str) -> None:
        """Replace the lock file's content, for instance by the holder's pid."""

    def release(self) -> None:
        """Let go; the file stays, because unlinking a lock file breaks locks."""


class Opener(Protocol):
    """Whatever opens what a path names; raises as `Files.open_read` does."""

    def open_read(self, path: str) -> OpenFile:
        """Open it for reading; the caller closes it."""


class Files(Protocol):
    """The file system. Every method may raise `AccessDenied`, every writing one `DiskFull`."""

    def stat(self, path: str, *, follow: bool = False) -> FileStat | None:
        """What is there, the link itself unless `follow`; None when nothing is."""

    def open_read(self, path: str) -> OpenFile:
        """Open a regular file; never waits, not even on a pipe.

        Raises:
            NotFound: Nothing is there.
            AccessDenied: It is a link, pipe, device or folder, or may not be read.
        """

    def open_live(self, path: str) -> LiveFile:
        """The same, for a lease to be taken on it; raises as `open_read`."""

    def leases(self, folder: str) -> bool:
        """Whether this disk knows leases: tried on a scratch file in the folder."""

    def touch(self, path: str, mtime_ns: int | None) -> None:
        """Say when a file was changed last; None: now."""

    def resolve(self, path: str) -> str:
        """The path with every link and every `..` in it followed; it need not be there."""

    def append_live(self, path: str, data: bytes) -> int | None:
        """Append to a file that is there, with one write where the system lets us.

        Returns:
            How many bytes were taken: fewer than asked when room ran out in between. None
            when there is no such file.
        """

    def fill(self, path: str, offset: int, data: bytes) -> None:
        """Write over bytes of a file that is there, its size unchanged."""

    def sync_file(self, path: str) -> None:
        """Make the bytes of a file that is there survive a power cut."""

    def scan(self, folder: str) -> list[Entry]:
        """Everything in the folder, sorted by name: all of it or an error.

        Raises:
            NotFound: There is no such folder.
            AccessDenied: It cannot be listed.
        """

    def make_private_dir(self, path: str) -> None:
        """Make the folder and its missing parents, mode 0700; tighten one that is there.

        Raises:
            AccessDenied: It belongs to somebody else, is shared (sticky), or is not a folder.
        """

    def create(self, target: str, *, mode: int = 0o600, label: str | None = None) -> NewFile:
        """A new file in the target's folder, without that name yet; errors name the target.

        Args:
            target: The name it is to have in the end.
            mode: Its permissions.
            label: Sixteen hex digits that its temporary name ends in; random when None.
        """

    def append(self, path: str, data: bytes) -> None:
        """Add bytes to the end of a file, made with mode 0600 if there is none, durably."""

    def make_dirs(self, path: str) -> None:
        """Make the folder's missing parts, mode 0700; what is there stays as it is."""

    def write_private(self, path: str, data: bytes) -> None:
        """Replace the file by these bytes, mode 0600, durably: the old or the new, never a mix."""

    def read_small(self, path: str, limit: int) -> bytes | None:
        """The whole file; None when nothing is there; `AccessDenied` when it is longer."""

    def create_exclusive(self, path: str, data: bytes) -> bool:
        """Write a new complete file, mode 0600, durably; False when the name is taken."""

    def remove(self, path: str) -> bool:
        """Remove a file; False when it was not there."""

    def remove_folder(self, path: str) -> bool:
        """Remove an empty folder; False when it is not there or not empty."""

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder survive a power cut."""

    def link(self, source: str, target: str, *, durably: bool = True) -> bool:
        """A second name for a file; False when the name is taken."""

    def replace(self, source: str, target: str) -> None:
        """Rename over the target, durably. Raises `NotFound` when the source is missing."""

    def lock(self, path: str) -> Lock | None:
        """Lock this file, made with mode 0600; None when somebody else holds it."""

    def free_bytes(self, path: str) -> int:
        """Room left for us on the disk that holds this path. Raises `NotFound`."""

    def bind_socket(self, path: str) -> socket.socket | None:
        """A Unix stream socket bound there, mode 0600 from the start; None when taken."""


class Clock(Protocol):
    """Time."""

    def now_ms(self) -> int:
        """Milliseconds of UTC since 1970; may jump."""

    def monotonic_s(self) -> float:
        """Seconds that never go back; only differences mean something."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until the event is set (True) or the time is over (False)."""


class Child(Protocol):
    """A process we started; the caller waits for it, then closes it."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input, buffered: flush what must arrive."""

    @property
    def stdout(self) -> IO[bytes]:
        """Its standard output."""

    def wait(self, timeout: float) -> int | None:
        """Its exit status (negative: killed by that signal); None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""

    def close(self) -> None:
        """Close both pipes."""


class Ran(NamedTuple):
    """How a program ended: its status, None when the time was over, and what it said."""

    status: int | None
    out: bytes
    err: bytes


class Processes(Protocol):
    """Our own process and others."""

    def settle_in(self) -> None:
        """Make this process a good daemon: what it makes is private, its heap stays small.

        Call it before the first thread: otherwise each thread gets a heap of its own.
        """

    def start_ticks(self, pid: int) -> str | None:
        """When a process started, in the system's own count.

        It tells a process from a later one of the same number. None when it is gone, or the
        system has no such count.
        """

    def clients(self) -> list[str | None]:
        """The working folder of each running client program; None where it is not ours to see."""

    def remote(self, path: str) -> bool:
        """Whether a path lies on a network file system, as far as the mount table says."""

    def release_memory(self) -> None:
        """Give memory that is free, but kept for later, back to the machine."""

    def pid(self) -> int:
        """Our process id."""

    def uid(self) -> int:
        """Whose files we make."""

    def rss_bytes(self) -> int:
        """Our resident memory."""

    def cpu_s(self) -> float:
        """Processor time we used, user and system."""

    def alive(self, pid: int) -> bool:
        """Whether such a process runs; a zombie does not."""

    def run(self, argv: Sequence[str], data: bytes, timeout_s: float) -> Ran:
        """Run a program to its end: `data` on its stdin, a bounded stdout and stderr.

        It gets our environment and, on time out, is ended with everything it started.

        Raises:
            NotFound: There is no such program.
            AccessDenied: It may not be run.
        """

    def spawn(
        self,
        argv: Sequence[str],
        *,
        pass_fds: tuple[int, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a program in its own session, stderr shared with ours, no other descriptors.

        Raises:
            NotFound: There is no such program.
            AccessDenied: It cannot be started.
        """


@dataclass(frozen=True, slots=True)
class System:
    """The three ports together."""

    files: Files
    clock: Clock
    processes: Processes

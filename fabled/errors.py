"""One class per condition that stops a request.

Damage inside a transcript is not an error: it is a value in a report. An absent
result ("nothing found") is not an error either. What remains is here, so that the
daemon can raise it, the socket can carry it and the client can turn it back into an
exit status without importing anything else.

Each class has a stable wire `code`, an `exit_status` of the interface, the HTTP
status that fits, whether trying again can help, and a `hint`: one imperative
sentence that tells the user what to do.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Retry = Literal["never", "now", "later"]


class FabledError(Exception):
    """A request was stopped for a reason the user can act on.

    Args:
        message: One sentence that says what happened, with the names involved.
        hint: What to do; the class's own hint when omitted.
    """

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retry: ClassVar[Retry] = "never"
    default_hint: ClassVar[str] = (
        "Look at the daemon's log, then report it with the log's last lines."
    )

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[FabledError], message: str, hint: str) -> FabledError:
    return kind(message, hint=hint)


class InternalError(FabledError):
    """A fault of fabled itself; the daemon's log has the traceback under an id."""

    code = "internal_error"


class UsageError(FabledError):
    """The request is not one that fabled understands."""

    code = "usage"
    exit_status = 2
    http_status = 400
    default_hint = "Run the command with --help."


class AmbiguousId(FabledError):
    """A prefix names more than one thing."""

    code = "ambiguous_id"
    exit_status = 2
    http_status = 409
    default_hint = "Give more characters of the id."


class RequestTooLarge(FabledError):
    """A request is larger than the socket accepts."""

    code = "request_too_large"
    exit_status = 2
    http_status = 413
    default_hint = "Send less in one request."


class DaemonUnreachable(FabledError):
    """Nothing answers on the socket."""

    code = "daemon_unreachable"
    exit_status = 3
    http_status = 503
    retry = "later"
    default_hint = "Start it with: fabled"


class DaemonBusy(FabledError):
    """The daemon is there but has no room or no time for this request now."""

    code = "daemon_busy"
    exit_status = 3
    http_status = 503
    retry = "now"
    default_hint = "Try again in a moment; see: fablectl status"


class ProtocolMismatch(FabledError):
    """Client and daemon speak different protocol numbers."""

    code = "protocol_mismatch"
    exit_status = 3
    http_status = 426
    default_hint = "Restart the daemon so that it is of the client's version."


class NotFound(FabledError):
    """The id or path names nothing that fabled knows."""

    code = "not_found"
    exit_status = 4
    http_status = 404
    default_hint = "List what there is with: fablectl sessions"


class AlreadyRunning(FabledError):
    """Another daemon owns this home."""

    code = "already_running"
    exit_status = 5
    http_status = 409
    default_hint = "Use the running daemon, or stop it first."


class SocketPathTaken(FabledError):
    """Something that is not a socket stands where the socket belongs."""

    code = "socket_path_taken"
    exit_status = 5
    http_status = 409
    default_hint = "Move that file away, or set FABLED_SOCKET to another path."


class FileBusy(FabledError):
    """Somebody has the transcript open for writing."""

    code = "file_busy"
    exit_status = 5
    http_status = 409
    retry = "later"
    default_hint = "Try again when it is quiet; the automatic prune does so by itself."


class FileChanged(FabledError):
    """The transcript changed while it was being worked on; it is as its writer left it."""

    code = "file_changed"
    exit_status = 5
    http_status = 409
    retry = "later"
    default_hint = "Try again in a moment."


class SessionLive(FabledError):
    """A client process is working on this session."""

    code = "session_live"
    exit_status = 5
    http_status = 409
    retry = "later"
    default_hint = "End that session first; the automatic prune waits by itself."


class NotQuiet(FabledError):
    """The transcript was changed too recently."""

    code = "not_quiet"
    exit_status = 5
    http_status = 409
    retry = "later"
    default_hint = "Wait, or set prune.quiet to fewer seconds."


class PruneDeclined(FabledError):
    """This transcript is of a kind that is left alone."""

    code = "prune_declined"
    exit_status = 5
    http_status = 409
    default_hint = "It stays searchable and archived as it is."


class NothingToGain(FabledError):
    """A prune would save too little, or nothing."""

    code = "nothing_to_gain"
    exit_status = 5
    http_status = 409
    default_hint = "See what it would save with --dry-run; another --level may save more."


class GateRefused(FabledError):
    """The evict gate found no proof that everything is kept; nothing was touched."""

    code = "gate_refused"
    exit_status = 5
    http_status = 409
    default_hint = "Run: fablectl index --wait; then try again."


class ResumeCheckFailed(FabledError):
    """The pruned image would not resume as the original does; nothing was touched."""

    code = "resume_check_failed"
    exit_status = 5
    http_status = 409
    default_hint = "Report it with the message; the session is left as it is."


class UndoImpossible(FabledError):
    """There is no prune to take back, or the transcript no longer begins as it left it."""

    code = "undo_impossible"
    exit_status = 5
    http_status = 409
    default_hint = (
        "See: fablectl session SESSION; any generation comes back with vault restore --to."
    )


class NewerData(FabledError):
    """Something else stands where a file was to be restored."""

    code = "newer_data"
    exit_status = 5
    http_status = 409
    default_hint = (
        "Restore it elsewhere with --to, or say --overwrite: what is there is sealed first."
    )


class StaleIndex(FabledError):
    """The file behind a pointer changed, and reading it again did not settle it."""

    code = "stale_index"
    exit_status = 6
    http_status = 409
    retry = "later"
    default_hint = "Run: fablectl index --wait"

    def __init__(self, message: str, *, hint: str | None = None, path: str = "") -> None:
        """Args: path: the file to read again; it stays inside the daemon."""
        super().__init__(message, hint=hint)
        self.path = path


class BadCard(FabledError):
    """What was written is no card."""

    code = "bad_card"
    exit_status = 2
    http_status = 400
    default_hint = "See what a card has with: fablectl cards put --help"


class ProviderFailed(FabledError):
    """The program or the endpoint that writes cards failed, or is not set up."""

    code = "provider_failed"
    exit_status = 1
    http_status = 502
    retry: ClassVar[Retry] = "later"
    default_hint = "See the [cards] section of: fablectl config show"


class ProviderRefused(ProviderFailed):
    """The endpoint will not answer this request, however often it is asked."""

    code = "provider_refused"
    retry = "never"
    default_hint = "Check cards.url, cards.model and the key; then run it again."


class ClientRefused(FabledError):
    """Claude Code's own command failed."""

    code = "client_refused"
    exit_status = 1
    http_status = 502
    default_hint = "Run the printed command yourself to see more."


class NoServiceManager(FabledError):
    """There is nothing here that could run the daemon as a service."""

    code = "no_service_manager"
    exit_status = 5
    http_status = 409
    default_hint = (
        "Run the daemon itself: fabled; in a container or WSL start it with your own init."
    )


class ServiceFailed(FabledError):
    """The service manager refused a command."""

    code = "service_failed"
    exit_status = 1
    http_status = 502
    default_hint = "See: fablectl service logs; and fablectl doctor"


class GenerationDamaged(FabledError):
    """A generation in the Vault is missing, or is not what its sidecar says."""

    code = "generation_damaged"
    exit_status = 6
    http_status = 409
    default_hint = "Run: fablectl vault verify"

    def __init__(self, message: str, *, hint: str | None = None, path: str = "") -> None:
        """Args: path: the strand that was being read; it stays inside the daemon."""
        super().__init__(message, hint=hint)
        self.path = path


class MapCorrupt(FabledError):
    """SQLite found the Map damaged; it is set aside and rebuilt."""

    code = "map_corrupt"
    exit_status = 6
    http_status = 503
    retry = "later"
    default_hint = "Wait for the rebuild; see: fablectl status"


class MapTooNew(FabledError):
    """The Map was written by a newer fabled."""

    code = "map_too_new"
    exit_status = 6
    http_status = 503
    default_hint = "Install the newer fabled again, or move the Map away: it is rebuilt."


class ConfigError(FabledError):
    """A setting is unknown, of the wrong type, or impossible."""

    code = "configuration"
    exit_status = 7
    http_status = 400
    default_hint = "Correct the file, then run: fablectl config check"


class SocketPathTooLong(FabledError):
    """The platform cannot bind a socket at a path of this length."""

    code = "socket_path_too_long"
    exit_status = 7
    http_status = 400
    default_hint = "Set FABLED_SOCKET to a shorter path."


class DiskFull(FabledError):
    """There is no room left for what had to be written."""

    code = "disk_full"
    exit_status = 8
    http_status = 507
    retry = "later"
    default_hint = "Free some space; fabled goes on by itself."


class AccessDenied(FabledError):
    """The operating system refused access to a file or folder, or reading it failed."""

    code = "access_denied"
    exit_status = 8
    http_status = 403
    retry = "later"
    default_hint = "Check the owner and mode of that path."


def error_classes() -> list[type[FabledError]]:
    """Every concrete error class, in the order of their exit status, then code."""
    return sorted(FabledError.__subclasses__(), key=lambda kind: (kind.exit_status, kind.code))


def from_wire(code: str, message: str, hint: str) -> FabledError:
    """The error a reply carries; an unknown code becomes `InternalError` that names it."""
    for kind in FabledError.__subclasses__():
        if kind.code == code:
            return kind(message, hint=hint)
    return InternalError(f"{message} ({code})", hint=hint)

"""The one closed table of errors.

Every error a user can meet has a class here, a stable `code`, and the HTTP status it travels with. On a wire only
the code, the message and `details` are sent; `error_from_code` makes the same class again on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class HutchError(Exception):
    """Anything Hutch raises on purpose; by itself a mistake of Hutch's own, please report it.

    `details` is plain data that may cross a wire.
    """

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def __str__(self) -> str:
        return self.message


class InvalidRequest(HutchError, ValueError):
    """An argument has the wrong type, range or shape."""

    code = "invalid_request"
    http_status = 422


class SettingsInvalid(HutchError, ValueError):
    """A setting cannot be used; the message names the variable and the remedy."""

    code = "settings_invalid"
    http_status = 500


class CommandRejected(HutchError, ValueError):
    """The command policy refused a command. details: `word`, `reason`, `allowed` (names), `hint`."""

    code = "command_rejected"
    http_status = 400


class LimitExceeded(HutchError, ValueError):
    """A call would pass a limit of its sandbox. details: `limit`, `maximum`, `actual`."""

    code = "limit_exceeded"
    http_status = 413


class NoActiveSession(HutchError, ValueError):
    """This task or thread has not called `get_or_create_session` yet."""

    code = "no_active_session"
    http_status = 400


class SessionExpiredError(HutchError):
    """The session ended, or never was this caller's; its files are gone. `get_or_create_session` makes a new one."""

    code = "session_expired"
    http_status = 404  # a server must not tell an ended one from another tenant's


class ThreadOwnedByOther(HutchError):
    """The thread belongs to another user."""

    code = "thread_owned_by_other"
    http_status = 403


class SandboxNotFound(HutchError, LookupError):
    """There is no such sandbox (any more)."""

    code = "sandbox_not_found"
    http_status = 404


class ProcessNotFound(HutchError, LookupError):
    """There is no such process, or its output is no longer kept."""

    code = "process_not_found"
    http_status = 404


class ProcessEnded(HutchError):
    """The process has ended, so it takes no more input or signals."""

    code = "process_ended"
    http_status = 409


class SandboxFileNotFound(HutchError, FileNotFoundError):
    """No such file or folder in the sandbox (or, for uploads, on this machine)."""

    code = "file_not_found"
    http_status = 404


class DriveFileNotFound(HutchError, FileNotFoundError):
    """No such file, folder or version in this user's drive. details: `path`."""

    code = "drive_file_not_found"
    http_status = 404


class PathRejected(HutchError, ValueError):
    """The path leaves the workspace, or is not the kind of file the call needs."""

    code = "path_rejected"
    http_status = 400


class FileConflict(HutchError, FileExistsError):
    """Something else already has that name."""

    code = "file_conflict"
    http_status = 409


class PortUnreachable(HutchError, ConnectionError):
    """Nothing in the sandbox listens on that port."""

    code = "port_unreachable"
    http_status = 502
    retryable = True


class PortMisbehaved(HutchError, ConnectionError):
    """What listens on that port does not answer as HTTP wants it, or not in time."""

    code = "port_misbehaved"
    http_status = 502


class PoolExhausted(HutchError):
    """All places for running sandboxes are taken."""

    code = "pool_exhausted"
    http_status = 503
    retryable = True


class SandboxUnavailable(HutchError):
    """The provider could not make, reach or keep the sandbox; says why and what to do."""

    code = "sandbox_unavailable"
    http_status = 503
    retryable = True


class WallMissing(SandboxUnavailable):
    """A required wall cannot be built here, so no sandbox is started. details: `walls`, `remedy`."""

    code = "wall_missing"
    http_status = 503
    retryable = False


class StoreUnavailable(HutchError):
    """The data folder or database cannot be used (unwritable, full, locked); names the cause and the remedy."""

    code = "store_unavailable"
    http_status = 503
    retryable = True


class NotSupported(HutchError):
    """This provider, template or machine cannot do that, and says so instead of ignoring it."""

    code = "not_supported"
    http_status = 501


class ClientClosed(HutchError):
    """The client, or the program it belongs to, has ended."""

    code = "client_closed"
    http_status = 400


class Unauthorized(HutchError):
    """The server wants an API key, and got none, or one it does not know (any more)."""

    code = "unauthorized"
    http_status = 401


class Forbidden(HutchError):
    """The key may not do that, or the request came by a name or address that is not served."""

    code = "forbidden"
    http_status = 403


class RouteNotFound(HutchError, LookupError):
    """The server has nothing at that address."""

    code = "route_not_found"
    http_status = 404


class MethodNotAllowed(HutchError):
    """There is something at that address, but not for this HTTP method."""

    code = "method_not_allowed"
    http_status = 405


class IdempotencyConflict(HutchError):
    """That Idempotency-Key came with another request before."""

    code = "idempotency_conflict"
    http_status = 409


class RequestTooLarge(HutchError, ValueError):
    """A request's body or headers are larger than the server takes. details: `maximum`."""

    code = "request_too_large"
    http_status = 413


class RateLimited(HutchError):
    """This key made too many calls. details: `retry_after` (seconds)."""

    code = "rate_limited"
    http_status = 429
    retryable = True


class SandboxMoved(HutchError):
    """Another worker has the sandbox: nothing was done. A coordinator finds it; calls to one worker do not."""

    code = "sandbox_moved"
    http_status = 421
    retryable = True


class WorkerLost(HutchError):
    """The machine that ran the sandbox does not answer. What was under way may or may not have been done."""

    code = "worker_lost"
    http_status = 503
    retryable = True


class ServerUnreachable(HutchError, ConnectionError):
    """The server could not be reached, or did not answer in time. details: `sent` (whether it may have acted)."""

    code = "server_unreachable"
    http_status = 503
    retryable = True


class InterpreterMissing(HutchError):
    """The packages that `code.run` needs are not there and could not be fetched. `hutch trees build` fetches them."""

    code = "interpreter_missing"
    http_status = 503


class ContextNotFound(HutchError, LookupError):
    """The sandbox has no such context for code (any more)."""

    code = "context_not_found"
    http_status = 404


class GitFailed(HutchError):
    """git refused. details: `exit_code`, `stderr`, `timed_out`."""

    code = "git_failed"
    http_status = 422


ERRORS: Mapping[str, type[HutchError]] = {
    cls.code: cls
    for cls in (
        HutchError,
        InvalidRequest,
        SettingsInvalid,
        CommandRejected,
        LimitExceeded,
        NoActiveSession,
        SessionExpiredError,
        ThreadOwnedByOther,
        SandboxNotFound,
        ProcessNotFound,
        ProcessEnded,
        SandboxFileNotFound,
        DriveFileNotFound,
        PathRejected,
        FileConflict,
        PortUnreachable,
        PortMisbehaved,
        PoolExhausted,
        SandboxUnavailable,
        WallMissing,
        StoreUnavailable,
        NotSupported,
        ClientClosed,
        Unauthorized,
        Forbidden,
        RouteNotFound,
        MethodNotAllowed,
        IdempotencyConflict,
        RequestTooLarge,
        RateLimited,
        SandboxMoved,
        WorkerLost,
        ServerUnreachable,
        InterpreterMissing,
        ContextNotFound,
        GitFailed,
    )
}


def error_from_code(code: str, message: str, details: Mapping[str, Any]) -> HutchError:
    """The error a peer reported. An unknown code stays visible in the details of a plain `HutchError`."""
    cls = ERRORS.get(code)
    if cls is None:
        return HutchError(message, **{**details, "unknown_code": code})
    return cls(message, **details)

"""Names that older programs catch, for the errors there are."""

from __future__ import annotations

from hutch.model.errors import CommandRejected, HutchError, ServerUnreachable

SandboxError = HutchError
SandboxConnectionError = ServerUnreachable
SandboxNotRunningError = ServerUnreachable
SandboxTimeoutError = ServerUnreachable
SandboxExecutionError = CommandRejected  # a command that ran and failed is a result

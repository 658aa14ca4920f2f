"""How a failure is told to a model. Pure."""

from __future__ import annotations

from hutch.model.errors import HutchError


class NotUtf8(Exception):
    """A text with half a character in it."""


def utf8(text: str) -> bytes:
    """Raises: NotUtf8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotUtf8(f"the text cannot be stored: {error}") from None


def told(error: Exception) -> str:
    return f"{error.code}: {error}" if isinstance(error, HutchError) else str(error)


def error_word(error: HutchError | OSError) -> str:
    """One of deepagents' four words where one fits, else our code and message."""
    if isinstance(error, FileNotFoundError):
        return "file_not_found"
    if isinstance(error, IsADirectoryError):
        return "is_directory"
    if isinstance(error, PermissionError):
        return "permission_denied"
    if isinstance(error, HutchError):
        return "invalid_path" if error.code == "path_rejected" else told(error)
    return str(error)

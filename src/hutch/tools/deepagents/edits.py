"""Edits of a text, with the line endings it has. Pure."""

from __future__ import annotations

from deepagents.backends.protocol import EditResult

EMPTY_OLD_STRING = "Error: old_string cannot be empty. Provide the exact text to replace."
WORDS = {
    "file_not_found": "Error: File '{path}' not found",
    "permission_denied": "Error: Permission denied editing file '{path}'",
    "not_a_file": "Error: '{path}' is not a regular file",
    "not_a_text_file": "Error: File '{path}' is not a text file",
    "string_not_found": "Error: String not found in file: '{old}'",
    "multiple_occurrences": (
        "Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."
    ),
}


class EditRefused(Exception):
    """`code` is one of WORDS."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code

    def result(self, path: str, old: str) -> EditResult:
        return EditResult(error=WORDS[self.code].format(path=path, old=old))


def edited(raw: bytes, old: str, new: str, *, replace_all: bool) -> tuple[bytes, int]:
    """The bytes with `new` for `old`, and how often. Raises: EditRefused."""
    old, new, count = matching(raw, old, new, replace_all=replace_all)
    return raw.replace(old.encode(), new.encode()), count


def matching(raw: bytes, old: str, new: str, *, replace_all: bool) -> tuple[str, str, int]:
    """`old` and `new` with the line ends of the text, and how often `old` is in it.

    A model was shown LF only: `old` is tried as it came, then with CRLF, then with LF.

    Raises: EditRefused.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise EditRefused("not_a_text_file") from None
    for ends in (_as_it_is, _crlf, _lf):
        count = text.count(ends(old))
        if count > 1 and not replace_all:
            raise EditRefused("multiple_occurrences")
        if count:
            return ends(old), ends(new), count
    raise EditRefused("string_not_found")


def _as_it_is(text: str) -> str:
    return text


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _crlf(text: str) -> str:
    return _lf(text).replace("\n", "\r\n")

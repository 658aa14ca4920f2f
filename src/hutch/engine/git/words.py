"""What git is asked, as argument vectors. Pure.

No name of the caller's can be taken for an option: a leading `-` is refused, and `--` stands before paths.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit, urlunsplit

from hutch.model.errors import InvalidRequest
from hutch.model.git import Credentials

LONGEST_WORD = 4096
MOST_PATHS = 10_000
LONGEST_MESSAGE = 100_000
MOST_ENTRIES = 10_000  # of a log
SCHEMES = frozenset({"http", "https", "ssh", "git", "file"})
# What a call needs to be the same everywhere and to ask nobody anything; hooks of the repository itself may run.
ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TEMPLATE_DIR": "",  # the system's templates may hold hooks
    "GIT_LITERAL_PATHSPECS": "1",
    "LC_ALL": "C.UTF-8",
}
# Reading runs nothing that a repository names.
READING = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=true", "--no-optional-locks")
HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$HUTCH_GIT_USERNAME" "$HUTCH_GIT_PASSWORD"; }; f'
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?:\.[^\x00-\x1f\x7f]+)?\.[A-Za-z][A-Za-z0-9-]*\Z")
_LIKE_SCP = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9._-]+:(?!:)[^\x00-\x1f]*\Z")


def word(value: str, what: str) -> str:
    """A name that git takes by its place. Raises: InvalidRequest."""
    if not isinstance(value, str) or not value or len(value) > LONGEST_WORD or _CONTROL.search(value):
        raise InvalidRequest(f"{what} must be a name without control characters, not {value!r:.80}.")
    if value.startswith("-"):
        raise InvalidRequest(f"{what} may not begin with '-', as {value!r:.80} does: git would read it as an option.")
    return value


def paths(values: Sequence[str], *, needed: bool = True) -> list[str]:
    """Names of files, which may hold any character but NUL. Raises: InvalidRequest."""
    if isinstance(values, str) or len(values) > MOST_PATHS or (needed and not values):
        raise InvalidRequest(f"paths must be a list of 1 to {MOST_PATHS} paths, not {values!r:.80}.")
    for value in values:
        if not isinstance(value, str) or not value or "\0" in value or len(value) > LONGEST_WORD:
            raise InvalidRequest(f"A path must be a text without NUL characters, not {value!r:.80}.")
        if value.startswith("-"):
            raise InvalidRequest(f"A path may not begin with '-': write {'./' + value!r:.80}.")
    return list(values)


def message(text: str) -> str:
    """Raises: InvalidRequest."""
    if not isinstance(text, str) or not text.strip() or "\0" in text or len(text) > LONGEST_MESSAGE:
        raise InvalidRequest(f"message must be a text of 1 to {LONGEST_MESSAGE} characters without NUL.")
    return text


def number(value: int | None, what: str, most: int) -> int | None:
    """Raises: InvalidRequest."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most):
        raise InvalidRequest(f"{what} must be a number from 1 to {most}, not {value!r:.40}.")
    return value


def key(value: str) -> str:
    """Raises: InvalidRequest."""
    if not isinstance(value, str) or len(value) > LONGEST_WORD or not _KEY.match(value):
        raise InvalidRequest(f"A key of git's configuration is like user.name, not {value!r:.80}.")
    return value


def address(url: str) -> tuple[str, Credentials | None]:
    """The address without what is secret in it, and that. Raises: InvalidRequest."""
    word(url, "url")
    scheme, marked, _ = url.partition("://")
    if not marked:
        if "::" in url.split("/", 1)[0]:
            raise InvalidRequest(f"url {url!r:.80} names a program of git's; use https, ssh, git, file, or a path.")
        if not _LIKE_SCP.match(url) and ":" in url.split("/", 1)[0]:
            raise InvalidRequest(f"url {url!r:.80} is no address that git knows.")
        return url, None
    if scheme.lower() not in SCHEMES:
        raise InvalidRequest(f"url {scheme:.20}://… cannot be used: {', '.join(sorted(SCHEMES))} can.")
    try:
        parts = urlsplit(url)
        password, user = parts.password, parts.username
    except ValueError:
        raise InvalidRequest("url is no address.") from None
    if password is None or scheme.lower() not in ("http", "https"):
        return url, None
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, Credentials(unquote(user or ""), unquote(password))


def scope(url: str) -> str:
    """What credentials are for: scheme, host and port. Raises: InvalidRequest."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise InvalidRequest("Credentials are for addresses that begin with https:// or http://.")
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2]}"


def secret_environment(credentials: Credentials, url: str) -> dict[str, str]:
    """Makes git ask us, and nobody else, who is calling, and only for that host; nothing of it is written down.

    Raises: InvalidRequest.
    """
    for what, value in (("username", credentials.username), ("password", credentials.password)):
        if not isinstance(value, str) or _CONTROL.search(value) or len(value) > LONGEST_WORD:
            raise InvalidRequest(f"{what} must be a text without control characters.")
    values = (("credential.helper", ""), (f"credential.{scope(url)}.helper", HELPER))  # the empty one drops all others
    return {
        "GIT_CONFIG_COUNT": str(len(values)),
        **{f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in enumerate(values)},
        **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(values)},
        "HUTCH_GIT_USERNAME": credentials.username,
        "HUTCH_GIT_PASSWORD": credentials.password,
    }


def folder_of(url: str) -> str:
    """The folder a clone goes to when none is given. Raises: InvalidRequest."""
    name = posixpath.basename(url.rstrip("/").rpartition(":")[2].rstrip("/")).removesuffix(".git")
    if name in ("", ".", ".."):
        raise InvalidRequest(f"url {url!r:.80} does not say what to call the folder: give path.")
    return word(name, "path")

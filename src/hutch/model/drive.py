"""The drive: files of a user that outlive every sandbox. Its shapes, and the rules of its paths. Pure."""

from __future__ import annotations

from typing import Literal, TypedDict

from hutch.model.errors import InvalidRequest, PathRejected

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 64
MAX_USER_CHARACTERS = 512
VERSIONS_KEPT = 20  # of one file, the current one included
MATCHES_AT_MOST = 10_000
HITS_AT_MOST = 100

DriveKind = Literal["file", "directory"]
SearchedBy = Literal["words", "words+meaning"]


class DriveEntry(TypedDict):
    """One row of `ls`, and the answer of `stat`. A folder is there while files are below it."""

    path: str
    name: str
    kind: DriveKind
    size_bytes: int  # of a folder: 0
    modified: str  # ISO 8601, UTC
    created: str
    version: int  # of a folder: 0
    sha256: str  # of a folder: empty


class DriveFile(TypedDict):
    """A file as it was stored just now."""

    path: str
    name: str
    size_bytes: int
    modified: str
    version: int
    sha256: str


class DriveEdit(TypedDict):
    path: str
    version: int
    replacements: int


class DriveVersion(TypedDict):
    version: int
    size_bytes: int
    created: str
    sha256: str
    current: bool


class DriveMatch(TypedDict):
    path: str
    line: int  # from 1
    text: str


class DriveMatches(TypedDict):
    matches: list[DriveMatch]
    truncated: bool


class DriveHit(TypedDict):
    path: str
    score: float
    snippet: str


class DriveHits(TypedDict):
    hits: list[DriveHit]
    by: SearchedBy
    note: str | None  # what the answer lacks, and why


class DriveUsage(TypedDict):
    bytes: int  # of the files as they are now
    kept_bytes: int  # of earlier versions and deleted files, which can be had back
    files: int
    quota_bytes: int | None


class PlacedFile(TypedDict):
    """A file that was put into a sandbox."""

    drive_path: str
    path: str  # absolute, in the sandbox
    name: str
    size_bytes: int
    sent: bool  # False: it was there already, unchanged


def drive_path(path: str, *, folder: bool = False) -> str:
    """`path` as the drive knows it: absolute, without empty parts; of a `folder` also "/".

    Raises: PathRejected.
    """
    if not isinstance(path, str):
        raise PathRejected(f"A path must be a string, not {type(path).__name__}.")
    if "\0" in path:
        raise PathRejected("A path cannot hold a NUL character.", path=path)
    if not path.startswith("/"):
        raise PathRejected(f"{path!r:.200} is not absolute: paths of the drive begin with /.", path=path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PathRejected(f"{path!r:.200} holds '..'; name the file by its full path.", path=path)
    if not folder and (not parts or path.endswith(("/", "/."))):
        raise PathRejected(f"{path!r:.200} names a folder; name a file.", path=path)
    if any(len(_encoded(part)) > MAX_NAME_BYTES for part in parts):
        raise PathRejected(f"A name in the path is longer than {MAX_NAME_BYTES} bytes.", path=path)
    clean = "/" + "/".join(parts)
    if len(_encoded(clean)) > MAX_PATH_BYTES:
        raise PathRejected(f"The path is longer than {MAX_PATH_BYTES} bytes.", path=path)
    if len(parts) > MAX_DEPTH:
        raise PathRejected(f"The path is more than {MAX_DEPTH} folders deep.", path=path)
    return clean


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise PathRejected("The path holds bytes that are no text; the drive names files in UTF-8.") from None


def drive_user(user_id: str) -> str:
    """Raises: InvalidRequest for what cannot be a user's id."""
    if not isinstance(user_id, str) or not 0 < len(user_id) <= MAX_USER_CHARACTERS or "\0" in user_id:
        raise InvalidRequest(f"user_id must be a text of 1 to {MAX_USER_CHARACTERS} characters without NUL.")
    try:
        user_id.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("user_id holds bytes that are no text.") from None
    return user_id


def folder_of(path: str) -> str:
    """The folder that a clean path lies in."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    return path.rpartition("/")[2] or "/"


def folders_above(path: str) -> list[str]:
    """Those of a clean path, the nearest first; the last one is "/"."""
    found = []
    while path != "/":
        path = folder_of(path)
        found.append(path)
    return found


def below(folder: str) -> tuple[str, str]:
    """Between these two, byte by byte, are all paths below a clean folder, and no others."""
    stem = "" if folder == "/" else folder
    return stem + "/", stem + "0"  # 0 comes right behind /

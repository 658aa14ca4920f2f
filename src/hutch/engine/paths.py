"""The shape of a path below the workspace, checked before it reaches a sandbox.

What links do is the sandbox kernel's business (the guest opens beneath the workspace); here only the text is judged.
"""

from __future__ import annotations

from hutch.model.errors import PathRejected
from hutch.model.session import WORKSPACE_DIR

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4095 - len(WORKSPACE_DIR) - 1


def workspace_path(path: str, *, allow_root: bool = False) -> str:
    """`path`, relative or absolute below /workspace, as a clean relative path ("." is the workspace itself).

    Raises: PathRejected.
    """
    if not isinstance(path, str):
        raise PathRejected(f"A path must be a string, not {type(path).__name__}.")
    if "\0" in path:
        raise PathRejected("A path cannot hold a NUL character.", path=path)
    relative = path
    if path.startswith("/"):
        if path != WORKSPACE_DIR and not path.startswith(WORKSPACE_DIR + "/"):
            raise PathRejected(f"{path!r} lies outside {WORKSPACE_DIR}; use a path below it.", path=path)
        relative = path[len(WORKSPACE_DIR) :]
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PathRejected(f"{path!r} holds '..'; name the file by its path below {WORKSPACE_DIR}.", path=path)
    if not parts and not (allow_root and relative.strip("/") in ("", ".") and path):
        raise PathRejected("The path is empty or names the workspace itself; name a file in it.", path=path)
    if parts and path.endswith(("/", "/.")) and not allow_root:
        raise PathRejected(f"{path!r} names a folder; name a file.", path=path)
    if any(len(_encoded(part)) > MAX_NAME_BYTES for part in parts):
        raise PathRejected(f"A name in the path is longer than {MAX_NAME_BYTES} bytes.", path=path)
    clean = "/".join(parts) or "."
    if len(_encoded(clean)) > MAX_PATH_BYTES:
        raise PathRejected(f"The path is longer than {MAX_PATH_BYTES} bytes.", path=path)
    return clean


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise PathRejected("The path holds characters that no file name can have.", path=repr(text)) from error

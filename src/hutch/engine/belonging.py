"""A data folder belongs to one database: to any other, its sandboxes would look like leftovers, and be deleted."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hutch.model.errors import SettingsInvalid

NAME = "database"


def check_belonging(data_dir: Path, database_id: str) -> None:
    """The first database that uses the folder is the one; a folder without sandboxes may go to another.

    Raises: SettingsInvalid, OSError.
    """
    file = data_dir / NAME
    if _known(file) == database_id:
        return
    handle, written = tempfile.mkstemp(dir=data_dir, prefix=f".{NAME}-")
    try:
        with os.fdopen(handle, "w") as opened:
            opened.write(database_id + "\n")
        if next((data_dir / "sandboxes").iterdir(), None) is None:
            os.replace(written, file)
            return
        os.link(written, file)  # of two that come first at once, one fails
    except FileExistsError:
        if _known(file) != database_id:
            raise SettingsInvalid(
                f"The sandboxes in {str(data_dir)!r} belong to another database than the one that is set, which would "
                "delete their files as leftovers. Set HUTCH_DATA_DIR to a folder of its own, or DATABASE_URL to "
                f"the database they belong to; if that one is gone for good, remove {str(file)!r}.",
                variable="HUTCH_DATA_DIR",
            ) from None
    finally:
        Path(written).unlink(missing_ok=True)


def _known(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""

"""Brings sqlite-vec into connections of this process that ask for it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator


def missing() -> str | None:
    """Why a connection opened within `offered` cannot compare vectors; None when it can."""
    try:
        import sqlite_vec  # noqa: F401 - asked for in vain is an answer, too
    except ImportError:
        return "sqlite-vec is not installed (pip install 'hutch[search]')"
    with offered():
        connection = sqlite3.connect(":memory:")
    try:
        load(connection)
        connection.execute("SELECT vec_version()")
    except sqlite3.Error as error:
        return f"sqlite-vec cannot be loaded into this Python's SQLite ({error})"
    finally:
        connection.close()
    return None


@contextlib.contextmanager
def offered() -> Iterator[None]:
    """Connections opened within have it, where Python's module was built without a way to load it (pyenv does so).

    SQLite itself can: it is asked to give it to each new connection, for this moment. One that another thread opens
    meanwhile has some functions more.
    """
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        yield
        return
    with contextlib.ExitStack() as ending:
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import _sqlite3
            import ctypes

            import sqlite_vec

            begin = ctypes.CDLL(sqlite_vec.loadable_path() + ".so").sqlite3_vec_init
            library = ctypes.CDLL(_sqlite3.__file__)  # finds the SQLite that the module itself uses
            library.sqlite3_auto_extension(begin)
            ending.callback(library.sqlite3_cancel_auto_extension, begin)
        yield


def load(connection: sqlite3.Connection) -> None:
    """The plain way. Raises: sqlite3.Error."""
    if not hasattr(connection, "enable_load_extension"):
        return
    with contextlib.suppress(ImportError):
        import sqlite_vec

        connection.enable_load_extension(True)
        try:
            sqlite_vec.load(connection)
        finally:
            connection.enable_load_extension(False)

"""Standard input as a file: an upload wants to know the size before it begins."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hutch.model.errors import PathRejected

PIECE_BYTES = 1024 * 1024


@contextmanager
def standard_input_as_file() -> Iterator[Path]:
    """The path of a file that holds what we were piped; it is gone afterwards.

    Raises: PathRejected when it cannot be read or kept.
    """
    with tempfile.NamedTemporaryFile(prefix="hutch-") as kept:
        try:
            while piece := os.read(sys.stdin.fileno(), PIECE_BYTES):
                kept.write(piece)
            kept.flush()
        except OSError as error:
            raise PathRejected(f"Standard input cannot be read or kept: {error.strerror}.") from error
        yield Path(kept.name)

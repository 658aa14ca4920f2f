"""Nothing of a sandbox test may stay behind on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.hostile.walls_rig import DATA


@pytest.fixture(scope="session", autouse=True)
def _data_folder() -> Iterator[None]:
    """The tests of the walls share what is prepared once, with the processes they start too."""
    if DATA in os.environ:
        yield
        return
    folder = tempfile.mkdtemp(prefix="hutch-test-walls-")
    os.environ[DATA] = folder
    yield
    del os.environ[DATA]
    shutil.rmtree(folder)

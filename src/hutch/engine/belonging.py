"""A data folder belongs to one database, and to one worker of it unless workers share their folders: to any other, its
sandboxes would look like leftovers, and be deleted.

Whoever uses the folder holds a shared lock on the file that says so, so that it never changes under them.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hutch.model.errors import SettingsInvalid

NAME = "database"
SHARED = "*"  # stands for every worker


class Belonging:
    """The claim of one engine on a data folder, as long as it lives."""

    def __init__(self, data_dir: Path, database_id: str, worker_id: str) -> None:
        """It is the first one's that uses the folder; without sandboxes, and while nobody uses it, it may change hands.

        Raises: SettingsInvalid, OSError.
        """
        wanted = f"{database_id} {worker_id}"
        self._descriptor = os.open(data_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if self._alone() and self._said() != wanted and self._may_change(data_dir, database_id, worker_id):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, wanted.encode(), 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            said = self._said()
            if said != wanted:
                raise _belongs(data_dir, said, database_id)
        except BaseException:
            self.close()
            raise

    def _alone(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _said(self) -> str:
        return os.pread(self._descriptor, 1000, 0).decode("utf-8", "replace").strip()

    def _may_change(self, data_dir: Path, database_id: str, worker_id: str) -> bool:
        said = self._said()
        if not said or (worker_id == SHARED and said.partition(" ")[0] == database_id):
            return True  # who shares knows the sandboxes of all workers
        return next((data_dir / "sandboxes").iterdir(), None) is None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _belongs(data_dir: Path, said: str, database_id: str) -> SettingsInvalid:
    place, file = str(data_dir), str(data_dir / NAME)
    keeper, _, worker = said.partition(" ")
    if keeper == database_id:
        whose = (
            "workers that share it (HUTCH_SHARED_DATA)" if worker == SHARED else f"the worker {worker!r} (WORKER_ID)"
        )
    else:
        whose = "another database (DATABASE_URL)"
    return SettingsInvalid(
        f"The sandboxes in {place!r} belong to {whose}; to this one they would be leftovers, and be deleted. Set "
        f"HUTCH_DATA_DIR to a folder of its own, or start with the settings they belong to. If nobody needs these "
        f"sandboxes any more, end what uses the folder and remove {file!r}.",
        variable="HUTCH_DATA_DIR",
    )

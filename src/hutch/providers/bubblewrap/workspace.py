"""The folder of a sandbox on the host: made before a start, emptied at its end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from hutch.model.errors import SandboxUnavailable
from hutch.providers.bubblewrap import trees

FILES, WORK, SOCKET = "files", "work", "guest.sock"
BACKLOG = 128


def prepare(folder: Path, uid: int, gid: int) -> None:
    """Make the folder and its workspace if missing; give the workspace to the sandbox's uid.

    Raises: SandboxUnavailable.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, trees.FOLDER_FLAGS)
        try:
            _prepare(descriptor, uid, gid)
        finally:
            os.close(descriptor)
    except (OSError, trees.TreeMoved) as failure:
        raise SandboxUnavailable(f"The sandbox's folder {folder} cannot be used: {failure}.") from failure


def _prepare(folder: int, uid: int, gid: int) -> None:
    # What a volatile overlay leaves behind forbids the next mount, on purpose: nobody promises that all was written
    # back when the machine crashed. A sandbox's files are as good as the page cache then, and no worse.
    trees.remove(folder, WORK)
    os.mkdir(WORK, 0o700, dir_fd=folder)
    try:
        os.mkdir(FILES, 0o700, dir_fd=folder)
    except FileExistsError:
        pass
    files = os.open(FILES, trees.FOLDER_FLAGS, dir_fd=folder)
    try:
        if os.fstat(files).st_uid != uid:
            os.fchown(files, uid, gid)
    finally:
        os.close(files)


def listen(folder: Path) -> socket.socket:
    """The socket on which the guest will listen. Its path may be longer than a Unix address holds.

    Raises: SandboxUnavailable.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    descriptor = -1
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        short = f"/proc/self/fd/{descriptor}/{SOCKET}"
        try:
            os.unlink(short)
        except FileNotFoundError:
            pass
        listening.bind(short)
        os.chmod(short, 0o600)
        listening.listen(BACKLOG)
        return listening
    except OSError as failure:
        listening.close()
        raise SandboxUnavailable(f"Cannot listen in {folder}: {failure.strerror}.") from failure
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def forget_socket(folder: Path) -> None:
    (folder / SOCKET).unlink(missing_ok=True)


def destroy(folder: Path) -> None:
    """Remove the folder, whatever is in it. Missing is fine.

    Raises: SandboxUnavailable.
    """
    try:
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        trees.remove(parent, folder.name)
    except (OSError, trees.TreeMoved) as failure:
        raise SandboxUnavailable(f"The sandbox's folder {folder} cannot be removed: {failure}.") from failure
    finally:
        os.close(parent)

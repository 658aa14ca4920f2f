"""What an errno of the guest means to a caller: one table from errno to the errors of the model."""

from __future__ import annotations

import errno
import os

from hutch.model.errors import (
    FileConflict,
    HutchError,
    InvalidRequest,
    LimitExceeded,
    NotSupported,
    PathRejected,
    PortUnreachable,
    SandboxFileNotFound,
    SandboxUnavailable,
)

_FULL = {
    errno.ENOSPC: ("workspace", "the sandbox's disk space or number of files is used up: remove files first"),
    errno.EDQUOT: ("workspace", "the sandbox's disk quota is used up: remove files first"),
    errno.EFBIG: ("file_size", "the file would be larger than one file may be: split it"),
}
_REJECTED = {
    errno.EXDEV: "it leads out of the workspace (by a link or by ..): name the file itself",
    errno.ELOOP: "its links lead in a circle, or a link stands where none may: name the file itself",
    errno.EINVAL: "it is not the kind of file this call needs: only regular files and folders can be used",
    errno.ENXIO: "it is a pipe, socket or device: only regular files and folders can be used",
    errno.EISDIR: "it is a folder: this call needs a file",
    errno.ENOTDIR: "a part of it is a file, where a folder is needed",
    errno.ENAMETOOLONG: "it is too long: names have at most 255 bytes, paths 4,095",
    errno.EACCES: "its permissions forbid it: change them with chmod in the sandbox",
    errno.EPERM: "the sandbox is not allowed to do that with this file",
    errno.EROFS: "it lies where nothing can be written: use /workspace or /tmp",
    errno.EBUSY: "it is a place the sandbox is built on, and cannot be changed",
    errno.ETXTBSY: "it is a program that runs right now: end it first",
    errno.EILSEQ: "the file system does not take such a name",
}
_CONFLICT = {
    errno.EEXIST: "something already has that name",
    errno.ENOTEMPTY: "the folder is not empty: ask for a recursive removal, or another target",
}
_USED_UP = {
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files on this machine",
    errno.ENOMEM: "out of memory",
    errno.EAGAIN: "too busy, or its limit of processes is reached: end some of them",
    errno.EDEADLK: "too busy",
}


def reason(number: int) -> str:
    return os.strerror(number) if number > 0 else f"unknown error {number}"


def file_error(number: int, path: str) -> HutchError:
    """The error of a call about `path` that failed with errno `number`."""
    name = repr(path or ".")
    if number == errno.ENOENT:
        return SandboxFileNotFound(f"No such file or folder in the sandbox: {name}", path=path)
    if number in _REJECTED:
        return PathRejected(f"Cannot use {name}: {_REJECTED[number]}.", path=path)
    if number in _CONFLICT:
        return FileConflict(f"Cannot use {name}: {_CONFLICT[number]}.", path=path)
    if number in _FULL:
        limit, what = _FULL[number]
        return LimitExceeded(f"Cannot write {name}: {what}.", limit=limit, path=path)
    return _other_error(number, f"Cannot use {name}", path)


def _other_error(number: int, what: str, path: str) -> HutchError:
    if number == errno.EAGAIN:
        return LimitExceeded(f"{what}: the sandbox is {_USED_UP[number]}.", limit="pids", path=path)
    if number == errno.ENOMEM:
        return LimitExceeded(f"{what}: the sandbox is {_USED_UP[number]}.", limit="memory", path=path)
    if number in _USED_UP:
        return SandboxUnavailable(f"{what}: {_USED_UP[number]}. Try again.", path=path)
    if number in (errno.ENOSYS, errno.EOPNOTSUPP):
        return NotSupported(
            f"{what}: the kernel or file system of this machine lacks it ({reason(number)}).", path=path
        )
    return SandboxUnavailable(f"{what}: {reason(number)}.", path=path)


def spawn_error(number: int, step: str, program: str, cwd: str) -> HutchError:
    """The error of a command that could not be started at all."""
    if step == "cwd":
        if number == errno.ENOENT:
            return SandboxFileNotFound(f"The command's folder does not exist in the sandbox: {cwd!r}", path=cwd)
        return PathRejected(f"The command's folder {cwd!r} cannot be used: {reason(number)}.", path=cwd)
    if step == "exec":
        return _exec_error(number, program)
    if step in ("fork", "handler"):
        return LimitExceeded("The sandbox has no room for one more process: end some of them.", limit="pids")
    if step == "pty":
        if number in (errno.ENOSPC, errno.EAGAIN, errno.ENFILE, errno.EMFILE):
            return LimitExceeded("All terminals of the sandbox are in use: close some of them.", limit="ptys")
        return SandboxUnavailable(f"The sandbox could not open a terminal: {reason(number)}.")
    return SandboxUnavailable(f"The sandbox could not start the command ({step or 'unknown step'}): {reason(number)}.")


def _exec_error(number: int, program: str) -> HutchError:
    if number == errno.ENOENT:
        return SandboxFileNotFound(f"No such program in the sandbox: {program!r}", path=program)
    if number == errno.E2BIG:
        return InvalidRequest("The command and its environment are longer than the kernel takes: use a file.")
    if number == errno.ENOEXEC:
        return PathRejected(f"Not a program this machine can run: {program!r}. A script needs a #! line.", path=program)
    if number in (errno.ENOMEM, errno.EAGAIN):
        limit = "memory" if number == errno.ENOMEM else "pids"
        return LimitExceeded(f"The sandbox has no room to run {program!r}: {reason(number)}.", limit=limit)
    return PathRejected(f"The sandbox may not run {program!r}: {reason(number)}.", path=program)


def port_error(number: int, port: int) -> HutchError:
    if number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return _other_error(number, f"Cannot reach port {port} of the sandbox", "")
    return PortUnreachable(f"Nothing in the sandbox answers on port {port} ({reason(number)}).", port=port)


def listen_error(number: int, port: int) -> HutchError:
    if number == errno.EADDRINUSE:
        return FileConflict(f"Something in the sandbox listens on port {port} already: end it, or stop the sandbox.")
    return _other_error(number, f"Cannot listen on port {port} of the sandbox", "")

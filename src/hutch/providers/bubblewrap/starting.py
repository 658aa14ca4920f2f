"""Starting a machine: everything blocking first (`begin`, in a thread), then waiting for the guest (`settle`)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hutch.model.errors import HutchError, SandboxUnavailable
from hutch.providers.base import MachineSpec
from hutch.providers.bubblewrap import cgroup_files, workspace
from hutch.providers.bubblewrap.cgroup_files import MachineCgroups
from hutch.providers.bubblewrap.failures import start_failure, wall_missing
from hutch.providers.bubblewrap.plan import Blueprint, bubblewrap_arguments, plan_words, steps
from hutch.providers.bubblewrap.record import Lock, ProcessId, process_id
from hutch.providers.bubblewrap.site import Site
from hutch.providers.guest.connection import GuestGone, open_connection
from hutch.providers.guest.connection import close_all as close_descriptors
from hutch.providers.guest.protocol import Kind, Op, pack_request, unpack_answer

T = TypeVar("T")

ANSWER_SECONDS = 30.0
TEXT_BYTES = 4096


@dataclass(slots=True)
class Start:
    """A machine on its way up, and all that must be undone if it does not come up."""

    spec: MachineSpec
    lock: Lock
    cgroups: MachineCgroups
    watched: int = -1
    pid: int = -1
    errors: int = -1
    info: int = -1
    lent: list[int] = field(default_factory=list[int])  # descriptors that only the launched process needs

    def take_watched(self) -> int:
        watched, self.watched = self.watched, -1
        return watched

    def return_lent(self) -> None:
        while self.lent:
            os.close(self.lent.pop())

    def close_pipes(self) -> None:
        for name in ("errors", "info"):
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def undo(self) -> None:
        """Blocks until nothing is left but the files."""
        self.return_lent()
        try:
            if self.watched >= 0:
                _kill(self.watched)
                os.close(self.take_watched())
            cgroup_files.kill_members(self.cgroups.paths)
            self.cgroups.close()
            cgroup_files.remove(self.cgroups.paths)
            workspace.forget_socket(self.spec.folder)
        finally:
            self.close_pipes()
            self.lock.release()


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(10_000)


async def begin_in_thread(site: Site, spec: MachineSpec) -> Start:
    """`begin`, off the loop. A cancelled call undoes what the thread did before it ends."""
    beginning = asyncio.ensure_future(asyncio.to_thread(begin, site, spec))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        start = await to_the_end(beginning)
        await to_the_end(asyncio.to_thread(start.undo))
        raise


async def to_the_end(work: Awaitable[T]) -> T:
    """Await what must not be left half done, whoever cancels the caller meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
        except HutchError:
            break  # raised again below
    return task.result()


def begin(site: Site, spec: MachineSpec) -> Start:
    """Raises: WallMissing, SandboxUnavailable, InvalidRequest."""
    try:
        spec.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if spec.trees is not None:
            spec.trees.mkdir(mode=0o755, exist_ok=True)
        lock = Lock(spec.folder)
    except OSError as failure:
        raise SandboxUnavailable(f"The sandbox's folder {spec.folder} cannot be used: {failure}.") from failure
    start = Start(spec, lock, MachineCgroups(site.discovery, spec.sandbox_id))
    try:
        blue = site.blueprint(spec, start.cgroups)
        workspace.prepare(spec.folder, blue.uid, blue.gid)
        lock.write(cgroups={name: str(path) for name, path in start.cgroups.folders.items()})
        try:
            start.cgroups.make(site.discovery, spec.limits)
        except OSError as failure:
            raise wall_missing(
                "cgroup_limits", str(failure), "Give the server write access to its cgroup."
            ) from failure
        _launch(site, start, blue)
    except BaseException:
        start.undo()
        raise
    return start


def _launch(site: Site, start: Start, blue: Blueprint) -> None:
    start.errors, errors = os.pipe2(os.O_CLOEXEC)
    start.lent.append(errors)
    start.lent.append(_arguments_file(bubblewrap_arguments(blue)))
    start.info, info = os.pipe2(os.O_CLOEXEC)
    start.lent.append(info)
    start.lent.append(workspace.listen(start.spec.folder).detach())
    if blue.has("seccomp"):
        start.lent += site.filters.open(strict=blue.strict and blue.has("memfd"))
    if not blue.has("no_descriptors"):
        start.lent.append(os.memfd_create("leak", os.MFD_CLOEXEC))
    launched = site.launcher.launch(plan_words(steps(blue)), start.lent)
    start.watched, start.pid = launched.pidfd, launched.pid
    start.return_lent()


def _arguments_file(arguments: tuple[str, ...]) -> int:
    descriptor = os.memfd_create("arguments", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def settle(start: Start) -> ProcessId:
    """Wait until the guest answers; its identity on this host.

    Raises: WallMissing, SandboxUnavailable. Whatever happens, nothing is left half started.
    """
    try:
        await _answered(start.spec.folder / workspace.SOCKET)
        init = _init(start)
        start.lock.write(monitor=process_id(start.pid), init=init)
        start.close_pipes()
        return init
    except GuestGone:
        # The listening socket went with the process: it has ended, and said why.
        _kill(start.watched)
        text = os.read(start.errors, TEXT_BYTES).decode(errors="replace") if _readable(start.errors) else ""
        await to_the_end(asyncio.to_thread(start.undo))
        raise start_failure(text) from None
    except BaseException:
        await to_the_end(asyncio.to_thread(start.undo))
        raise


def _readable(descriptor: int) -> bool:
    poll = select.poll()  # select() fails for descriptors past 1023, which a thousand sandboxes reach
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


async def _answered(socket_path: Path) -> None:
    """Raises: GuestGone, SandboxUnavailable."""
    try:
        connection = await open_connection(socket_path)
    except SandboxUnavailable as failure:
        raise GuestGone from failure
    try:
        connection.send(pack_request(Op.PING))
        data, descriptors = await connection.receive(seconds=ANSWER_SECONDS)
    finally:
        connection.close()
    close_descriptors(descriptors)
    if unpack_answer(data).kind is not Kind.OK:
        raise SandboxUnavailable("The sandbox's init answers nonsense. Build it again: `python guest/build.py`.")


def _init(start: Start) -> ProcessId:
    """The guest's pid, as bubblewrap tells it before it starts the guest."""
    try:
        told = json.loads(os.read(start.info, TEXT_BYTES)) if _readable(start.info) else {}
        found = process_id(int(told["child-pid"]))
    except (ValueError, KeyError, TypeError) as failure:
        raise SandboxUnavailable("bubblewrap did not tell its child's pid. Use version 0.8.0 or newer.") from failure
    if found is None:
        raise SandboxUnavailable("The sandbox ended while it was starting.")
    return found

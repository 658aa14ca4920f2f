"""What the guest itself keeps up: the limit on execution, and its own life when nothing can be forked."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hutch.model.errors import LimitExceeded, PathRejected
from hutch.providers.base import SpawnRequest
from tests.guest_rig import PATH, Kept, RigMachine, needs_bubblewrap, rig, run

pytestmark = needs_bubblewrap
LOADERS = "/usr/lib64/ld-linux-x86-64.so.2:/usr/lib/ld-linux-aarch64.so.1"
PIDS = Path("/sys/fs/cgroup/pids")


def test_only_what_is_listed_can_be_executed() -> None:
    async def work() -> None:
        listed = f"/usr/bin/true:{LOADERS}:/usr/bin/cat:/nowhere:{Path('/usr/bin/bash').resolve()}"
        async with rig(options=["--landlock-exec", listed], shell_descriptor=True) as machine:
            script = "true; cat /dev/null; ls; echo $?; cp /usr/bin/true mine 2>/dev/null; ./mine; echo $?"
            _, kept = await machine.bash(script)
            assert kept.stdout.split() == ["126", "127"]
            with pytest.raises(PathRejected, match="may not run"):
                await machine.spawn(SpawnRequest(argv=("/usr/bin/ls",), env={"PATH": PATH}, cwd=""), Kept())

    run(work())


@contextmanager
def no_more_processes(machine: RigMachine) -> Iterator[None]:
    """For root by a cgroup, as no other limit holds for it; for others by the kernel's count in their namespace."""
    if os.geteuid() != 0:
        resource.prlimit(machine.init_pid(), resource.RLIMIT_NPROC, (1, 1))
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="hutch-test-", dir=PIDS))
    home = _pids_cgroup()
    try:
        (folder / "cgroup.procs").write_text(str(machine.init_pid()))
        (folder / "pids.max").write_text("1")
        yield
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(pid)
        folder.rmdir()


def _pids_cgroup() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            return PIDS / path.lstrip("/")
    return PIDS


@pytest.mark.skipif(os.geteuid() == 0 and not os.access(PIDS, os.W_OK), reason="needs a writable pids cgroup (v1)")
def test_the_init_outlives_a_lack_of_processes() -> None:
    async def work() -> None:
        async with rig() as machine:
            machine.drop_idle()
            with no_more_processes(machine):
                for _ in range(20):
                    with pytest.raises(LimitExceeded) as caught:
                        await machine.bash("true")
                    assert caught.value.details["limit"] == "pids"
                    with pytest.raises(LimitExceeded):
                        await machine.stat(".")
                    assert await machine.ping()
            assert machine.alive
            if os.geteuid() == 0:
                assert (await machine.bash("exit 3"))[0].exit_code == 3

    run(work())

"""The contract's scripts, played for the fake provider: what bash would do with each, as a behaviour."""

from __future__ import annotations

import posixpath
import signal
from collections.abc import Callable

from hutch.model.errors import PortUnreachable
from hutch.testing import contract_scripts as scripts
from hutch.testing.fake_files import File, Folder, Link, Special
from hutch.testing.fake_ports import FakeStream
from hutch.testing.fake_process import Behaviour, Running
from hutch.testing.fake_provider import FakeProvider


def teach(provider: FakeProvider) -> None:
    """Make `provider` understand every script of the contract."""
    for text, behaviour in _behaviours().items():
        provider.on(text, behaviour)


def _prints(data: bytes, code: int = 0) -> Behaviour:
    async def run(me: Running) -> int:
        me.out(data)
        return code

    return run


async def _sleep(me: Running) -> None:
    await me.sleep(60)


def _signals_itself(signum: signal.Signals) -> Behaviour:
    async def run(me: Running) -> None:
        me.deliver(signum)
        await me.forever()

    return run


async def _stops_itself(me: Running) -> None:
    me.out("ready\n")
    me.deliver(signal.SIGSTOP)
    await me.sleep(0)
    me.out("went on\n")


async def _arguments(me: Running) -> None:
    me.out("".join(f"{word}\0" for word in me.request.argv[4:]))


async def _variables(me: Running) -> None:
    for name, value in me.request.env.items():
        me.out(f'declare -x {name}="{value}"\n')


async def _own_pid(me: Running) -> None:
    me.out(f"{me.pid}\n")


async def _both_streams(me: Running) -> None:
    me.out("out\n")
    me.err("err\n")
    me.out("out again\n")


async def _detached(me: Running) -> None:
    me.child("sleep", _sleep, own_group=True)
    me.out("started\n")


async def _late_writer(me: Running) -> None:
    async def late(child: Running) -> None:
        await child.sleep(0.3)
        child.out("late\n")
        child.computer.tree.write("late.txt", b"done\n")

    me.child("bash", late)
    me.out("started\n")


async def _family(me: Running) -> None:
    async def branch(child: Running) -> None:
        child.child("sleep", _sleep)
        await child.child("sleep", _sleep).ended

    me.child("bash", branch)
    first = me.child("sleep", _sleep)
    me.out("ready\n")
    await first.ended


async def _deaf(me: Running) -> None:
    async def deaf_sleep(child: Running) -> None:
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            child.on_signal(signum, None)
        await child.sleep(60)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        me.on_signal(signum, None)
    me.out("ready\n")
    while True:
        await me.child("sleep", deaf_sleep).ended


async def _catches(me: Running) -> None:
    def caught() -> None:
        me.out("got\n")
        me.exit(7)

    me.on_signal(signal.SIGUSR1, caught)
    me.out("ready\n")
    await me.forever()


def _catches_before(seconds: float, own_group: bool) -> Behaviour:
    async def nap(child: Running) -> None:
        await child.sleep(seconds)

    async def run(me: Running) -> None:
        def caught() -> None:
            me.out("caught\n")

        me.on_signal(signal.SIGTERM, caught)
        me.out("ready\n")
        ended = await me.child("sleep", nap, own_group=own_group).ended
        me.out(f"after {ended.exit_code}\n")

    return run


async def _count_sleepers(me: Running) -> None:
    me.out(f"{sum(task.name == 'sleep' for task in me.computer.running())}\n")


async def _read_line(me: Running) -> None:
    line = b""
    while not line.endswith(b"\n") and (byte := await me.read(1)):
        line += byte
    me.out(b"got " + line.rstrip(b"\n") + b"\n")


async def _closed_input(me: Running) -> None:
    await me.process.input.break_off()
    me.out("ready\n")
    await me.child("sleep", _sleep).ended


async def _on_terminal(me: Running) -> int:
    if me.process.size is None:
        return 1
    me.out("yes\n")
    return 0


def _show_size(me: Running) -> None:
    rows, columns = me.process.size or (0, 0)
    me.out(f"{rows} {columns}\n")


async def _terminal_size(me: Running) -> None:
    _show_size(me)


async def _terminal_resized(me: Running) -> None:
    def resized() -> None:
        _show_size(me)
        me.exit(0)

    me.on_signal(signal.SIGWINCH, resized)
    me.out("ready\n")
    await me.forever()


async def _terminal_waits(me: Running) -> None:
    me.out("ready\n")
    await me.child("sleep", _sleep).ended
    me.out("survived\n")


async def _links(me: Running) -> None:
    tree = me.computer.tree
    tree.mkdir("real", parents=False)
    tree.put("real/file", File(b"inside\n"))
    for name, target in (
        ("inner", "real/file"),
        ("inner_folder", "real"),
        ("dangling", "nowhere"),
        ("circle", "circle"),
        ("out", "/etc/passwd"),
        ("out_folder", "../../../../etc"),
        ("magic", "/proc/self/root"),
    ):
        tree.put(name, Link(target))
    tree.put("pipe", Special())
    me.out("made\n")


async def _odd_names(me: Running) -> None:
    for name in ("new\nline", "-rf", "\udcff\udcfe", "é ü", "n" * 255):
        me.computer.tree.put(name, File())
    me.out("made\n")


def _makes(folder: str, change: Callable[[Running], None]) -> Behaviour:
    async def run(me: Running) -> None:
        me.computer.tree.mkdir(folder, parents=True)
        change(me)
        me.out("made\n")

    return run


def _lock(me: Running) -> None:
    me.computer.tree.put("locked/below/file", File(b"x\n"))
    for path in ("locked/below", "locked"):
        node = me.computer.tree.find(path).existing()
        assert isinstance(node, Folder)
        node.mode = 0


async def _call_host(me: Running) -> int:
    try:
        stream = await me.computer.connect(scripts.PORT)
    except PortUnreachable:
        return 1
    await stream.send(b"from inside")
    await stream.send_eof()
    while data := await stream.receive():
        me.out(data)
    return 0


async def _echo_server(me: Running) -> None:
    async def answer(stream: FakeStream) -> None:
        while data := await stream.receive():
            await stream.send(data)

    me.computer.serve(scripts.PORT, answer)
    me.out("ready\n")
    try:
        await me.forever()
    finally:
        me.computer.unserve(scripts.PORT)


def _behaviours() -> dict[str, Behaviour]:
    return {
        scripts.KILL_SELF: _signals_itself(signal.SIGKILL),
        scripts.TERMINATE_SELF: _signals_itself(signal.SIGTERM),
        scripts.STOP_SELF: _stops_itself,
        scripts.ARGUMENTS: _arguments,
        scripts.VARIABLES: _variables,
        scripts.OWN_PID: _own_pid,
        scripts.NUMBERS: _prints(b"".join(b"%d\n" % number for number in range(20000))),
        scripts.MEGABYTE: _prints(b" " * 999_999 + b"x"),
        scripts.ALL_BYTES: _prints(bytes(range(256))),
        scripts.BOTH_STREAMS: _both_streams,
        scripts.CLOSED_OUTPUT: _prints(b"", 4),
        scripts.CHANGED_SHELL: _prints(b""),
        scripts.SHOW_CHANGES: _prints(b"nothing /workspace\n"),
        scripts.DETACHED: _detached,
        scripts.LATE_WRITER: _late_writer,
        scripts.FAMILY: _family,
        scripts.DEAF: _deaf,
        scripts.CATCHES: _catches,
        scripts.CATCHES_BEFORE_SLEEP: _catches_before(60, own_group=False),
        scripts.CATCHES_BEFORE_NAP: _catches_before(0.2, own_group=False),
        scripts.CATCHES_BEFORE_FAR_SLEEP: _catches_before(60, own_group=True),
        scripts.COUNT_SLEEPERS: _count_sleepers,
        scripts.READ_LINE: _read_line,
        scripts.CALL_HOST: _call_host,
        scripts.CLOSED_INPUT: _closed_input,
        scripts.ON_TERMINAL: _on_terminal,
        scripts.TERMINAL_SIZE: _terminal_size,
        scripts.TERMINAL_RESIZED: _terminal_resized,
        scripts.TERMINAL_WAITS: _terminal_waits,
        scripts.LINKS: _links,
        scripts.ODD_NAMES: _odd_names,
        scripts.LOCKED_FOLDERS: _makes("locked/below", _lock),
        scripts.DEEP_FOLDERS: _makes(posixpath.join(*["d"] * 300), lambda me: None),
        scripts.ECHO_SERVER: _echo_server,
    }

"""A shell started ahead of its command behaves as one started for it: each script runs both ways and says the same."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping
from pathlib import Path

import pytest

from hutch.model.ids import new_sandbox_id
from hutch.model.process import ProcessExit, StreamName
from hutch.model.template import BASH, OPEN
from hutch.providers.base import MachineSpec, SpawnRequest
from hutch.providers.bubblewrap import BubblewrapProvider
from hutch.providers.bubblewrap.machine import BubblewrapMachine
from tests.guest_rig import needs_bubblewrap

pytestmark = needs_bubblewrap

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/workspace", "ODD": "a b\n'\"$x"}
IS_PREPARED = "grep -c hutch-warm /proc/$$/maps; true"  # a last command would take the place of the shell

# No pid, no time, no pipe number: what is left must be the same to the byte.
SCRIPTS = [
    "echo hi",
    "true",
    "false",
    "exit 3",
    "exit 256",
    "exit -1",
    "kill -9 $$",
    "kill -TERM $$",
    "kill -SEGV $$",
    "set -e; false; echo not reached",
    "set -u; echo $undefined; echo not reached",
    "set -o pipefail; false | true",
    "nosuchprogram",
    "/nosuchfile",
    "/etc",
    "./missing.sh",
    "echo 'unterminated",
    "if true; then",
    "for",
    "echo )",
    "echo $(",
    "((1+",
    "case x in",
    "a b c (",
    "done",
    "}",
    "echo a\necho b\nfi",
    "cat <<E\nno end",
    "echo $0",
    "echo $#",
    'echo "$@"',
    'echo "[$*]"',
    "echo $-",
    "echo $SHLVL",
    "echo $BASH_VERSION $BASH_SUBSHELL",
    "echo $BASH",
    'echo "$BASH_EXECUTION_STRING"',
    'echo "${BASH_ARGV[@]}" "${BASH_ARGC[@]}" "${BASH_SOURCE[@]}"',
    "echo $BASH_COMMAND $LINENO",
    "echo $FUNCNAME",
    "shopt",
    "shopt -o",
    "set -o",
    "ulimit -a",
    "ulimit -Ha",
    "umask",
    "pwd; pwd -P",
    "echo $PWD $OLDPWD",
    "cd /tmp && pwd; cd - >/dev/null; pwd",
    "env | sort",
    "export -p",
    "declare -p ODD",
    "printenv ODD",
    "declare -F; alias; trap",
    "compgen -v | grep -v -e RANDOM -e EPOCH | sort",
    "set | grep -v -e PPID -e BASHPID -e RANDOM -e EPOCH -e SECONDS -e SRANDOM",
    "type cd; type -a cat; hash",
    "jobs; wait; echo $?",
    "sleep 0.01 & wait; echo $?",
    "(exit 7); echo $?",
    "( echo $BASH_SUBSHELL; ( echo $BASH_SUBSHELL ) )",
    "echo a | (read x; echo $x)",
    "read x; echo $?",
    "cat; echo $?",
    "ls /proc/$$/fd; true",
    "ls /proc/self/fd",
    "readlink /proc/$$/exe | sed 's/.*hidden//'",
    "cat /proc/$$/comm",
    "while read -r x; do [[ $x =~ ^(Sig[IBC]|Cap|NoNew|Seccomp|Groups|Umask) ]] && echo $x; done < /proc/$$/status",
    "cat /proc/$$/oom_score_adj",
    "cat /proc/$$/limits",
    "tr '\\0' ' ' < /proc/$$/cmdline | sed 's/ *$//'",
    "test $(ps -o sid= -p $$) -eq $$ && echo leader",
    "[ -t 0 ]; [ -t 1 ]; [ -t 2 ]; echo $?",
    "tty",
    "trap 'echo bye' EXIT; exit 4",
    "trap 'echo caught' TERM; kill -TERM $$; echo on",
    "exec echo replaced; echo not reached",
    "exec false",
    "exec nosuchprogram",
    "exec 1>&-; echo lost",
    "exec 2>&1; nosuchprogram",
    "echo out; echo err >&2",
    "printf '\\377\\376\\000x'",
    "printf 'no newline'",
    "seq 20000",
    "echo ${x:?is missing}",
    "echo ${x:=set}; echo $x",
    "f() { echo $FUNCNAME $#; return 5; }; f 1 2; echo $?",
    "a=(1 2 3); echo ${#a[@]} ${a[-1]}",
    "declare -A m=([k]=v); echo ${m[k]}",
    "echo $((2**10)) $((1/0))",
    "echo {a..e} ~ /et[c]",
    "diff <(echo a) <(echo b)",
    "cat <<< here; cat <<E\n$((1+1))\nE",
    "for i in 1 2 3; do echo $i; done",
    "case x in x) echo yes;; esac",
    "select x in a b; do echo $x; done",
    "[[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}",
    "echo a\\\nb",
    "# only a comment",
    "  \n\t ",
    "!",
    "! true; echo $?",
    "{ time -p true; } 2>&1 | cut -d ' ' -f 1; echo $?",
    "bash -c 'echo $0 $PPID' | sed 's/[0-9]*$//'",
    "bash nofile",
    "return 3",
    "break; continue; echo $?",
    "logout; echo $?",
    "history; fc -l; echo $?",
    "printf '%s\\n' 'é' '日本' $'\\u00e9'",
    "LC_ALL=nowhere true; echo $?",
    "echo " + "x" * 5000,
]


class Kept:
    def __init__(self) -> None:
        self.data: dict[StreamName, bytes] = {"stdout": b"", "stderr": b""}

    def feed(self, stream: StreamName, data: bytes) -> bool:
        self.data[stream] += data
        return True


class Shells:
    """Runs a command in a shell started for it, or in one started ahead."""

    def __init__(self, machine: BubblewrapMachine) -> None:
        self.machine = machine

    async def run(
        self, command: str, *, ahead: bool, env: Mapping[str, str] = ENV, cwd: str = "/workspace"
    ) -> tuple[ProcessExit, dict[StreamName, bytes]]:
        if ahead:
            await self._run("true", ENV, "/workspace")
            self.machine.expect_command()
        else:
            self.machine.drop_idle()
        return await self._run(command, env, cwd)

    async def _run(self, command: str, env: Mapping[str, str], cwd: str) -> tuple[ProcessExit, dict[StreamName, bytes]]:
        kept = Kept()
        process = await self.machine.spawn(SpawnRequest((None, "-c", command), env, cwd), kept)
        return await asyncio.wait_for(process.wait(), 30), kept.data

    async def is_prepared(self, **options: object) -> bool:
        _, printed = await self.run(IS_PREPARED, ahead=True, **options)  # type: ignore[arg-type]  # passed through
        return printed["stdout"].strip() != b"0"


async def with_shells(folder: Path, strict: bool) -> list[str]:
    provider = BubblewrapProvider(folder)
    name = new_sandbox_id()
    uid = provider.allocate_uid(frozenset())
    template = BASH if strict else OPEN
    spec = MachineSpec(name, folder / "sandboxes" / name, template.limits, strict, uid)
    machine = await provider.start(spec)
    assert isinstance(machine, BubblewrapMachine)
    shells = Shells(machine)
    differing: list[str] = []
    try:
        assert await shells.is_prepared()
        for script in SCRIPTS:
            fresh, fresh_printed = await shells.run(script, ahead=False)
            ahead, ahead_printed = await shells.run(script, ahead=True)
            same = (fresh.exit_code, fresh.signal, fresh_printed) == (ahead.exit_code, ahead.signal, ahead_printed)
            if not same:
                differing.append(f"{script!r}: {fresh.exit_code} {fresh_printed} / {ahead.exit_code} {ahead_printed}")
    finally:
        await provider.destroy(spec)
        await provider.aclose()
    return differing


@pytest.mark.parametrize("strict", [False, True])
def test_every_script_says_the_same_both_ways(tmp_path: Path, strict: bool) -> None:
    assert len(SCRIPTS) >= 100
    assert asyncio.run(with_shells(tmp_path, strict)) == []


def test_what_a_prepared_shell_could_not_do_exactly_is_left_to_a_fresh_one(tmp_path: Path) -> None:
    async def body() -> None:
        provider = BubblewrapProvider(tmp_path)
        name = new_sandbox_id()
        spec = MachineSpec(name, tmp_path / "sandboxes" / name, OPEN.limits, False, provider.allocate_uid(frozenset()))
        machine = await provider.start(spec)
        assert isinstance(machine, BubblewrapMachine)
        shells = Shells(machine)
        try:
            assert await shells.is_prepared()
            assert await shells.is_prepared(cwd="/tmp")
            for variable in ("LD_LIBRARY_PATH", "GLIBC_TUNABLES", "MALLOC_PERTURB_"):
                assert not await shells.is_prepared(env={**ENV, variable: "1"})
            assert not await shells.is_prepared(env={f"V{number}": "x" for number in range(2000)} | ENV)
            with pytest.raises(FileNotFoundError):
                await shells.run("pwd", ahead=True, cwd="/workspace/missing")
            with pytest.raises(ValueError, match=r"folder|directory|enter"):
                await shells.run("pwd", ahead=True, cwd="/etc/passwd")
            # One that is killed before its command comes is replaced.
            await shells.run("true", ahead=False)
            await asyncio.sleep(0.05)
            _, found = await shells._run("true", ENV, "/workspace")
            assert found == {"stdout": b"", "stderr": b""}
        finally:
            await provider.destroy(spec)
            await provider.aclose()

    asyncio.run(body())


def test_a_prepared_shell_gets_the_limits_of_its_command(tmp_path: Path) -> None:
    """They are set from outside, after it was started."""

    async def body() -> None:
        provider = BubblewrapProvider(tmp_path)
        name = new_sandbox_id()
        spec = MachineSpec(name, tmp_path / "sandboxes" / name, BASH.limits, False, provider.allocate_uid(frozenset()))
        machine = await provider.start(spec)
        assert isinstance(machine, BubblewrapMachine)
        try:
            assert {one[0]: one[1] for one in machine.rlimits()}[resource.RLIMIT_FSIZE] == BASH.limits.file_bytes
            shells = Shells(machine)
            assert await shells.is_prepared()
            ended, _ = await shells.run("head -c 110000000 /dev/zero > big", ahead=True)
            assert ended.exit_code != 0
            assert (await machine.stat("big"))["size_bytes"] == BASH.limits.file_bytes
        finally:
            await provider.destroy(spec)
            await provider.aclose()

    asyncio.run(body())

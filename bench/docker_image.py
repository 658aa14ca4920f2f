"""The image of the Docker reference: a minimal Debian made by debootstrap, cached outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SUITE = "bookworm"


def image_archive() -> Path:
    """A tar of the root filesystem; made once. Raises: RuntimeError saying what is missing."""
    cache = Path("/var/cache/hutch-bench")
    archive = cache / f"{SUITE}-minbase.tar"
    if archive.exists():
        return archive
    if shutil.which("debootstrap") is None:
        raise RuntimeError("debootstrap is not installed, and no image was made before")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as folder:
        root = Path(folder) / "root"
        _run(["debootstrap", "--variant=minbase", SUITE, str(root)])
        shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
        part = Path(folder) / "image.tar"
        # Devices are the container engine's to make.
        _run(["tar", "--create", "--file", str(part), "--directory", str(root), "--exclude=./dev/*", "."])
        os.replace(part, archive)
    return archive


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{argv[0]} failed: {' '.join(tail)}")

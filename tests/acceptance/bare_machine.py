"""A machine with nothing on it but a minimal Debian or Ubuntu and Python, made of a folder.

The tree is made once by debootstrap and kept in a cache outside the repository; each test works on a copy. It is
entered by pivot_root in namespaces of its own: in a chroot the kernel refuses user namespaces, which sandboxes need.
How this machine reaches its package sources (resolver, certificates, pip's and apt's settings) is read from it at run
time and put into the copy.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = "python3,python3-venv,ca-certificates"
CA_BUNDLE = Path("etc/ssl/certs/ca-certificates.crt")
CARRIED_ENVIRONMENT = re.compile(
    r"(https?_proxy|no_proxy|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|PROXY|.*TIMEOUT))$", re.IGNORECASE
)
CARRIED_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
CARRIED_APT_KEYS = re.compile(r"Acquire::(https?::|Check-Valid-Until|Retries)")

# Becomes PID 1 of the machine: $1 is its root, $2 the user, $3 the home, $4 the folder to start in, the rest a command.
ENTER = r"""
set -eu
root=$1 user=$2 home=$3 folder=$4
shift 4
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
cd "$root"
pivot_root . .
umount -l .
cd "$folder"
exec setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$home" USER="$user" "$@"
"""


# A new network namespace has a loopback that is down; an offline machine has one that is up.
LOOPBACK_ONLY = """
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Ran:
    exit_code: int
    output: str  # stdout and stderr as they came
    seconds: float


@dataclass(frozen=True)
class BareMachine:
    root: Path

    def run(self, *command: str, user: str = "root", folder: str, network: bool = True, timeout: float = 900) -> Ran:
        """Run a command to its end; nothing of it survives, since its PID namespace ends with it."""
        unshare = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--ipc",
            "--uts",
        ]
        if not network:
            unshare += ["--net", sys.executable, "-c", LOOPBACK_ONLY]
        home = "/root" if user == "root" else f"/home/{user}"
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        environment |= {name: value for name, value in os.environ.items() if CARRIED_ENVIRONMENT.match(name)}
        environment |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), f"/{CA_BUNDLE}")
        started = time.monotonic()
        done = subprocess.run(
            [*unshare, "bash", "-c", ENTER, "enter", str(self.root), user, home, folder, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout, time.monotonic() - started)

    def clone_checkout(self, folder: str, user: str) -> None:
        target = self.root / folder.lstrip("/")
        subprocess.run(
            ["git", "-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(target)],
            check=True,
        )
        owned = self.run("chown", "-R", f"{user}:{user}", folder, folder="/")
        assert owned.exit_code == 0, owned.output

    def add_user(self, name: str) -> None:
        added = self.run("useradd", "--create-home", "--shell", "/bin/bash", name, folder="/")
        assert added.exit_code == 0, added.output


def new_bare_machine(root: Path) -> BareMachine:
    """A fresh copy of the cached tree at `root`, told how to reach this machine's package sources."""
    subprocess.run(["cp", "-a", "--reflink=auto", str(_cached_tree()), str(root)], check=True)
    _carry_in(root)
    return BareMachine(root)


def _cached_tree() -> Path:
    suite = _os_release()["VERSION_CODENAME"]
    cache = Path("/var/cache/hutch-tests")
    cache.mkdir(parents=True, exist_ok=True)
    tree = cache / f"bare-{suite}-{os.uname().machine}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as scratch:
                fresh = Path(scratch) / "tree"
                command = [
                    "debootstrap",
                    "--variant=minbase",
                    f"--include={PACKAGES}",
                    suite,
                    str(fresh),
                    _mirror(suite),
                ]
                made = subprocess.run(command, capture_output=True, text=True, check=False)
                assert made.returncode == 0, f"debootstrap failed:\n{made.stdout[-3000:]}{made.stderr[-1000:]}"
                shutil.rmtree(fresh / "var/cache/apt/archives")
                fresh.rename(tree)
    return tree


def _os_release() -> dict[str, str]:
    rows = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {name: value.strip('"') for name, _, value in rows}


def _mirror(suite: str) -> str:
    """Where this machine's own apt finds the packages of its distribution."""
    form = "$(RELEASE) $(COMPONENT) $(REPO_URI)"
    listed = subprocess.run(["apt-get", "indextargets", "--format", form], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        release, component, address = line.split()
        if release == suite and component == "main":
            return address
    raise AssertionError(f"apt on this machine has no source for {suite} main")


def _carry_in(root: Path) -> None:
    for name in ("etc/resolv.conf", "etc/hosts"):
        if (Path("/") / name).exists():
            (root / name).unlink(missing_ok=True)
            shutil.copyfile(Path("/") / name, root / name)
    bundle = Path(os.environ.get("SSL_CERT_FILE", Path("/") / CA_BUNDLE))
    shutil.copyfile(bundle, root / CA_BUNDLE)
    (root / "etc/pip.conf").write_text(_pip_settings())
    (root / "etc/apt/apt.conf.d/90carried-in").write_text(_apt_settings())


def _pip_settings() -> str:
    """This machine's pip settings on where to find packages, without places on its own disk."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    rows = ["[global]"]
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        reachable = [word for word in value.strip("'\"").split() if not word.startswith(("file:", "/"))]
        if key in CARRIED_PIP_KEYS and reachable and not name.startswith(":env:"):
            rows.append(f"{key} = {' '.join(reachable)}")
    return "\n".join(rows) + "\n"


def _apt_settings() -> str:
    dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    return "".join(f"{line}\n" for line in dumped.stdout.splitlines() if CARRIED_APT_KEYS.match(line))

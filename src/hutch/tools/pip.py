"""pip in a sandbox, whatever the sandbox's Python has of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

INSTALL_SECONDS = 600.0
# Debian's python3 comes without pip, but venv leaves pip's wheel, which runs as it is.
_PIP = r"""
if python3 -m pip --version >/dev/null 2>&1; then set -- python3 -m pip "$@"
else
  for wheel in /usr/share/python-wheels/pip-*.whl /opt/hutch/*/pip-*.whl; do [ -e "$wheel" ] && break; done
  [ -e "$wheel" ] || exit 127
  set -- python3 "$wheel/pip" "$@"
fi
exec "$@"
"""
# As variables, which an older pip does not mind. The packages go into the workspace, so no system's are broken.
OPTIONS = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
# For a Python that began before there were packages of the user's: it does not look for them by itself.
LOOK_AGAIN = "import importlib, site; site.addsitedir(site.getusersitepackages()); importlib.invalidate_caches()"


def install_command(arguments: Sequence[str], *, cut_off: bool) -> str:
    """What to run, with OPTIONS; it ends with 127 where there is no pip.

    Args:
        cut_off: no host may be reached: files of the workspace may be installed, no more will come.
    """
    retries = ["--retries=0"] if cut_off else []
    return f"set -- {shlex.join(['install', '--user', *retries, *arguments])}\n{_PIP}"

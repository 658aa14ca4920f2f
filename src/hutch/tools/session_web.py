"""Tools that reach hosts: from inside the sandbox, so that its rules for hosts hold."""

from __future__ import annotations

import base64
import binascii
import json
import shlex
from typing import Annotated, Any, Literal

from hutch.model.errors import InvalidRequest, NotSupported, PortUnreachable
from hutch.tools import pip
from hutch.tools.answers import cut
from hutch.tools.egress import HOW, is_cut_off, no_hosts
from hutch.tools.workspace import NOT_FOUND, Workspace, finished, missing

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
MAX_PACKAGES = 50
# Python is in every sandbox of template open; curl need not be.
_REQUEST = r"""
import base64, json, sys, urllib.error, urllib.request
order = json.load(sys.stdin)
body = order["body"].encode() if order["body"] is not None else None
request = urllib.request.Request(order["url"], body, order["headers"], method=order["method"])
try:
    answer = urllib.request.urlopen(request, timeout=order["timeout"])
except urllib.error.HTTPError as error:
    answer = error
except Exception as error:
    print(json.dumps({"failed": f"{type(error).__name__}: {getattr(error, 'reason', error)}"}))
    sys.exit()
data = answer.read(4 << 20)
rest = len(answer.read(1))
print(json.dumps({"status": answer.status, "headers": list(answer.headers.items()), "more": rest,
                  "url": answer.url, "data": base64.b64encode(data).decode()}))
"""


class WebTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def http_request(
        self,
        method: Method,
        url: Annotated[str, "With http:// or https://"],
        headers: Annotated[dict[str, str] | None, "Of the request"] = None,
        body: Annotated[str | None, "Of the request"] = None,
    ) -> str:
        """Send an HTTP request from the sandbox, to hosts it may reach, and show the answer."""
        if not url.lower().startswith(("http://", "https://")):
            raise InvalidRequest(f"{url!r:.200} is no address: write it with http:// or https://.")
        order = {
            "method": method,
            "url": url,
            "headers": headers or {},
            "body": body,
            "timeout": self._workspace.timeout,
        }
        command = f"python3 -c {shlex.quote(_REQUEST)}"
        result = await self._workspace.run(command, stdin=json.dumps(order).encode())
        if result["exit_code"] == NOT_FOUND:
            raise missing("python3")
        answer = _parsed(result["stdout"])
        if answer is None:
            raise InvalidRequest(f"The request was not sent: {result['stderr'].strip()[-500:]}")
        if "failed" in answer:
            if await is_cut_off(self._workspace, url):
                raise NotSupported(HOW)
            raise PortUnreachable(f"{url} did not answer: {str(answer['failed'])[:500]}")
        return _response(answer)

    async def pip_install(self, packages: Annotated[list[str], 'Like ["requests", "numpy==2.1"]']) -> str:
        """Install Python packages for this session's python3, from an index that the sandbox may reach."""
        if not packages or len(packages) > MAX_PACKAGES:
            raise InvalidRequest(f"Name 1 to {MAX_PACKAGES} packages.")
        options = [package for package in packages if package.startswith("-") or not package.strip()]
        if options:
            raise InvalidRequest(f"{options[0]!r:.100} is no package; for options of pip use shell_exec.")
        cut_off = not await self._workspace.client.egress.rules()
        command = pip.install_command(["--", *packages], cut_off=cut_off)
        result = await self._workspace.run(command, env=pip.OPTIONS, timeout=pip.INSTALL_SECONDS)
        if result["exit_code"] == NOT_FOUND:
            raise missing("pip")
        text = finished(result, "Install fewer packages at once.")
        if result["exit_code"] != 0:
            async with no_hosts(self._workspace, self._workspace.env.get("PIP_INDEX_URL", "an index")):
                raise InvalidRequest(f"pip failed:\n{text}")
        await self._show_to_interpreters()
        return text

    async def _show_to_interpreters(self) -> None:
        """A Python that began before there were packages of the user's does not look for them."""
        code = self._workspace.client.code
        for context in await code.contexts():
            if context["status"] == "idle":
                await code.run(pip.LOOK_AGAIN, context=context["context_id"])


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _response(answer: dict[str, Any]) -> str:
    try:
        data = base64.b64decode(str(answer.get("data", "")), validate=True)
    except binascii.Error:
        data = b""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"[binary, {len(data):,} bytes: fetch it with shell_exec into a file]"
    pairs = answer.get("headers")
    headers = [f"{pair[0]}: {pair[1]}" for pair in pairs if isinstance(pair, list)] if isinstance(pairs, list) else []
    more = "\n[the answer is longer than 4 MiB: fetch it with shell_exec into a file]" if answer.get("more") else ""
    whole = "\n".join([f"HTTP {answer.get('status')} {answer.get('url')}", *headers, "", text])
    return cut(whole, "Fetch it with shell_exec into a file.") + more

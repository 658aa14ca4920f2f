"""A headless Chromium inside a sandbox, and one page of it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from typing import Any

from hutch.client.async_shell import AsyncConnection
from hutch.model.egress import PROXY_PORT
from hutch.model.errors import InvalidRequest, PortMisbehaved, PortUnreachable, ProcessNotFound
from hutch.tools.cdp import Cdp, ask, within
from hutch.tools.workspace import NOT_FOUND, Workspace, missing

VIEWPORT = (1280, 720)
START_SECONDS = 60.0
LOAD_SECONDS = 30.0
# Debian's /usr/bin/chromium is a script that wants an /etc of its own, so the program itself comes first.
# Chromium cannot nest its own sandbox in ours, which allows no namespaces: ours is the wall. What it would ask the
# network for by itself is switched off. All but the sandbox's own addresses goes through the proxy of the rules for
# hosts, which is there as soon as there are rules.
_START = f"""
for program in /usr/lib/chromium/chromium chromium-browser google-chrome chromium; do
  program=$(command -v "$program") && break
done
[ -n "$program" ] || exit {NOT_FOUND}
folder=$(mktemp -d) && export HOME="$folder" || exit 1
exec "$program" --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage \\
  --no-first-run --disable-background-networking --disable-component-update --disable-sync --disable-breakpad \\
  --window-size={VIEWPORT[0]},{VIEWPORT[1]} --user-data-dir="$folder" --remote-debugging-port="$PORT" \\
  --proxy-server=http://127.0.0.1:{PROXY_PORT} --proxy-bypass-list="localhost;127.0.0.1;[::1];<-loopback>" about:blank
"""


class Browser:
    """Started at its first use; ended with the session."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._client = workspace.client
        self._process_id: str | None = None
        self._port = 0
        self._page: Cdp | None = None
        self._starting = asyncio.Lock()
        workspace.on_reset(self.close)

    async def page(self) -> Cdp:
        """Raises: NotSupported where no browser is installed, SandboxUnavailable, PortMisbehaved."""
        async with self._starting:
            if self._page is None or self._page.closed:
                if self._page is not None:
                    await self.close()
                try:
                    self._page = await self._start()
                except BaseException:
                    await self.close()
                    raise
            return self._page

    async def _start(self) -> Cdp:
        self._port = 20_000 + secrets.randbelow(10_000)  # another session object may have a browser in this sandbox
        started = await self._client.start(_START, env={"PORT": str(self._port)}, tag="browser")
        self._process_id = started["process_id"]
        async with within(START_SECONDS, "The browser did not start"):
            address = await self._address(started["process_id"])
        page = await Cdp.open(self._connect, address)
        for domain in ("Page", "Runtime"):
            await page.call(f"{domain}.enable")
        await resize(page, *VIEWPORT)
        return page

    async def _address(self, process_id: str) -> str:
        """Of its first page, as soon as it listens."""
        while True:
            ended = await self._client.wait(process_id, 0)
            if ended is not None and ended["exit_code"] == NOT_FOUND:
                raise missing("chromium")
            if ended is not None:
                raise PortMisbehaved(f"The browser ended at its start: {(ended['stderr'] or '')[-500:]}")
            try:
                pages = await ask(self._connect, "/json/list")
                found = [page["webSocketDebuggerUrl"] for page in pages if page.get("type") == "page"]
            except PortUnreachable:
                found = []
            except (AttributeError, KeyError, TypeError) as error:
                raise PortMisbehaved("The browser's list of pages is none.") from error
            if found:
                return str(found[0])
            await asyncio.sleep(0.1)

    async def _connect(self) -> AsyncConnection:
        return await self._client.connect(self._port)

    async def close(self) -> None:
        page, process_id = self._page, self._process_id
        self._page = self._process_id = None
        if page is not None:
            await page.aclose()
        if process_id is not None:
            try:
                await self._client.kill(process_id)
            except ProcessNotFound:
                pass

    async def address(self) -> str:
        """Where the browser listens, inside the sandbox. Raises: HutchError."""
        await self.page()
        version = await ask(self._connect, "/json/version")
        return str(version.get("webSocketDebuggerUrl", ""))[:500] if isinstance(version, dict) else ""

    async def evaluate(self, script: str) -> Any:
        """Raises: InvalidRequest when the page's script fails."""
        page = await self.page()
        answer = await page.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise InvalidRequest(f"The page refused: {str(answer['exceptionDetails'])[:500]}")
        result = answer.get("result")
        return result.get("value") if isinstance(result, dict) else None

    async def go(self, url: str) -> bool:
        """Open an address; whether it has loaded within the time. Raises: InvalidRequest, HutchError."""
        page = await self.page()
        loaded = page.event("Page.loadEventFired")
        answer = await page.call("Page.navigate", LOAD_SECONDS, url=url)
        if answer.get("errorText"):
            raise InvalidRequest(f"{url!r:.300} could not be opened: {str(answer['errorText'])[:300]}")
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await loaded
        except TimeoutError:
            return False
        return True

    async def screenshot(self) -> bytes:
        """A PNG of what is seen. Raises: HutchError."""
        answer = await (await self.page()).call("Page.captureScreenshot", format="png")
        try:
            return base64.b64decode(str(answer.get("data", "")), validate=True)
        except binascii.Error as error:
            raise PortMisbehaved("The browser sent a picture that is none.") from error


async def resize(page: Cdp, width: int, height: int) -> None:
    """Of the viewport. Raises: PortMisbehaved."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    await page.call("Emulation.setDeviceMetricsOverride", **size)

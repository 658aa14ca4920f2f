"""Browser tools of a session."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

from hutch.model.errors import InvalidRequest
from hutch.tools.answers import cut
from hutch.tools.browser import VIEWPORT, Browser
from hutch.tools.cdp import Cdp
from hutch.tools.egress import no_hosts
from hutch.tools.keys import key_events, text_events
from hutch.tools.workspace import Workspace

Action = Literal["click", "double_click", "right_click", "move_to", "scroll", "typing", "press", "hotkey", "wait"]
MAX_WAIT = 60.0
_PAGE = """({
  title: document.title, url: location.href,
  text: document.body ? document.body.innerText.slice(0, 200000) : "",
})"""


class BrowserTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._browser = Browser(workspace)

    async def browser_open(self, url: Annotated[str, "Like http://localhost:8000/ or https://example.com"]) -> str:
        """Open an address in the sandbox's browser, and show the title and the text of the page."""
        if not url.lower().startswith(("http://", "https://", "about:", "data:", "file:///workspace/")):
            raise InvalidRequest(f"{url!r:.200} is no address for a browser: write it with http:// or https://.")
        async with no_hosts(self._workspace, url):
            loaded = await self._browser.go(url)
        page = await self._browser.evaluate(_PAGE)
        if not isinstance(page, dict):
            raise InvalidRequest("The page has nothing to read.")
        slow = "" if loaded else "\n[the page is still loading]"
        text = f"{page.get('title')}\n{page.get('url')}{slow}\n\n{page.get('text')}"
        return cut(text, "Use browser_action to scroll, and browser_screenshot to look.")

    async def browser_info(self) -> str:
        """Where the browser listens in the sandbox, its viewport, and the page it shows."""
        address = await self._browser.address()
        page = await self._browser.evaluate("({url: location.href, width: innerWidth, height: innerHeight})")
        shown: dict[str, Any] = page if isinstance(page, dict) else {}
        width, height = shown.get("width", VIEWPORT[0]), shown.get("height", VIEWPORT[1])
        return f"cdp_url: {address} (inside the sandbox)\nviewport: {width}x{height}\npage: {shown.get('url')}"

    async def browser_screenshot(self) -> str:
        """A picture of what the browser shows, as a PNG data URL."""
        picture = await self._browser.screenshot()
        return f"[SCREENSHOT]\ndata:image/png;base64,{base64.b64encode(picture).decode()}"

    async def browser_action(
        self,
        action_type: Action,
        x: Annotated[float | None, "Pixels from the left"] = None,
        y: Annotated[float | None, "Pixels from the top"] = None,
        text: Annotated[str | None, "For typing"] = None,
        key: Annotated[str | None, "For press, like Enter or a"] = None,
        keys: Annotated[list[str] | None, 'For hotkey, like ["Control", "a"]'] = None,
        delta_x: Annotated[float | None, "For scroll"] = None,
        delta_y: Annotated[float | None, "For scroll; positive is down"] = None,
        duration: Annotated[float | None, "Seconds, for wait"] = None,
    ) -> str:
        """Act in the page: click, double_click, right_click, move_to, scroll, typing, press, hotkey, wait."""
        if action_type == "wait":
            seconds = 1.0 if duration is None else duration
            if not 0 <= seconds <= MAX_WAIT:
                raise InvalidRequest(f"duration must be 0 to {MAX_WAIT:g} seconds.")
            await asyncio.sleep(seconds)
            return f"Waited {seconds:g} s"
        page = await self._browser.page()
        if action_type in ("typing", "press", "hotkey"):
            return await _keyboard(page, action_type, text, key, keys)
        if action_type == "scroll":
            where = {"x": x or 0, "y": y or 0}
            wheel = {"deltaX": delta_x or 0, "deltaY": 0 if delta_y is None else delta_y}
            await mouse(page, "mouseWheel", **where, **wheel)
            return f"Scrolled by {wheel['deltaX']:g}, {wheel['deltaY']:g}"
        if x is None or y is None:
            raise InvalidRequest(f"{action_type} needs x and y.")
        return await _pointer(page, action_type, x, y)


async def _pointer(page: Cdp, action: str, x: float, y: float) -> str:
    await mouse(page, "mouseMoved", x=x, y=y)
    button = "right" if action == "right_click" else "left"
    for click in range(1, {"move_to": 0, "double_click": 2}.get(action, 1) + 1):
        for kind in ("mousePressed", "mouseReleased"):
            await mouse(page, kind, x=x, y=y, button=button, clickCount=click)
    return f"{action} at {x:g}, {y:g}"


async def mouse(page: Cdp, kind: str, **params: Any) -> None:
    await page.call("Input.dispatchMouseEvent", type=kind, **params)


async def _keyboard(page: Cdp, action: str, text: str | None, key: str | None, keys: list[str] | None) -> str:
    """Raises: InvalidRequest for keys there are not."""
    if action == "typing":
        if text is None:
            raise InvalidRequest("typing needs text.")
        for event in text_events(text):
            await page.call(event.pop("method"), **event)
        return f"Typed {len(text)} characters"
    chord = keys if action == "hotkey" else [key] if key else None
    if not chord:
        raise InvalidRequest(f"{action} needs {'keys' if action == 'hotkey' else 'key'}.")
    for event in key_events(chord):
        await page.call("Input.dispatchKeyEvent", **event)
    return f"Pressed {'+'.join(chord)}"

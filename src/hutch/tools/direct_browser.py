"""Browser tools of the direct toolkit: more actions, and the size of the window."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast, get_args

from hutch.model.errors import InvalidRequest
from hutch.tools.browser import resize
from hutch.tools.keys import key_events
from hutch.tools.session_browser import Action, BrowserTools, mouse
from hutch.tools.workspace import Workspace

More = Literal["move_rel", "drag_to", "drag_rel", "key_down", "key_up"]
RESOLUTIONS = (
    "640x480 800x600 1024x768 1152x864 1280x720 1280x800 1280x1024 1366x768 1440x900 1600x900 1680x1050 1920x1080 "
    "1920x1200"
).split()


class DirectBrowser(BrowserTools):
    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._at = (0.0, 0.0)  # the pointer

    async def browser_action(  # it takes more
        self,
        action_type: Action | More,
        x: Annotated[float | None, "Pixels from the left; for …_rel: to the right"] = None,
        y: Annotated[float | None, "Pixels from the top; for …_rel: down"] = None,
        text: Annotated[str | None, "For typing"] = None,
        key: Annotated[str | None, "For press, key_down and key_up"] = None,
        keys: Annotated[list[str] | None, "For hotkey"] = None,
        delta_x: Annotated[float | None, "For scroll"] = None,
        delta_y: Annotated[float | None, "For scroll; positive is down"] = None,
        duration: Annotated[float | None, "Seconds, for wait"] = None,
    ) -> str:
        """Act in the page."""
        if action_type not in get_args(More):
            known = cast(Action, action_type)
            answer = await super().browser_action(known, x, y, text, key, keys, delta_x, delta_y, duration)
            if x is not None and y is not None:
                self._at = (x, y)
            return answer
        page = await self._browser.page()
        if action_type in ("key_down", "key_up"):
            if not key:
                raise InvalidRequest(f"{action_type} needs key.")
            event = key_events([key])[0 if action_type == "key_down" else 1]
            await page.call("Input.dispatchKeyEvent", **event)
            return f"{action_type} {key}"
        target = self._target(action_type, x, y)
        if action_type.startswith("drag"):
            held: dict[str, Any] = {"button": "left", "clickCount": 1}
            await mouse(page, "mousePressed", x=self._at[0], y=self._at[1], **held)
            await mouse(page, "mouseMoved", x=target[0], y=target[1], button="left", buttons=1)
            await mouse(page, "mouseReleased", x=target[0], y=target[1], **held)
        else:
            await mouse(page, "mouseMoved", x=target[0], y=target[1])
        self._at = target
        return f"{action_type} to {target[0]:g}, {target[1]:g}"

    def _target(self, action: str, x: float | None, y: float | None) -> tuple[float, float]:
        if x is None or y is None:
            raise InvalidRequest(f"{action} needs x and y.")
        return (self._at[0] + x, self._at[1] + y) if action.endswith("_rel") else (x, y)

    async def browser_config(self, resolution: Annotated[str, f"One of {', '.join(RESOLUTIONS)}"] = "1280x720") -> str:
        """Set the size of the browser's window."""
        if resolution not in RESOLUTIONS:
            raise InvalidRequest(f"There is no resolution {resolution!r:.50}; there are {', '.join(RESOLUTIONS)}.")
        width, height = (int(side) for side in resolution.split("x"))
        await resize(await self._browser.page(), width, height)
        return f"The window has {resolution} pixels"

"""Drive a page of a real browser. A test sends the page keys, clicks and JavaScript, and reads the page's requests.

`Page.wait_for` evaluates its expression in every frame that the browser draws. `Page.errors` collects every error of
the page.
"""

import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.chromium import DevTools, DevToolsError, devtools

WAIT_S = 60.0
DESKTOP, PHONE = (1280, 900), (360, 740)
_TOLD = "rankcurveTestTold"
# The event of a violation of the content security policy names file and line. The console message does not.
_TELL_VIOLATIONS = f"""addEventListener("securitypolicyviolation", (event) => globalThis.{_TOLD}(
  `policy: ${{event.violatedDirective}} forbids ${{event.blockedURI}} ${{event.sourceFile}}:${{event.lineNumber}}`))"""
_LOOK = """new Promise((resolve) => {{
  const until = performance.now() + {wait_ms};
  const look = () => {{
    let found = null, error = null;
    try {{ found = ({expression}); }} catch (caught) {{ error = String(caught); }}
    if (found) resolve({{ found }});
    else if (performance.now() > until)
      resolve({{ error, text: location.href + " " + (document.body?.innerText ?? "").slice(0, 1500) }});
    else requestAnimationFrame(look);
  }};
  look();
}})"""
# A part that loads late moves the parts below it. The page does not see a click that lands beside its element for that.
_AIM = """(() => {{
  const find = () => document.querySelector({selector});
  const element = find();
  if (!element) return null;
  globalThis.rankcurveTestClick?.end.abort();
  const click = globalThis.rankcurveTestClick = {{ hit: false, end: new AbortController() }};
  const judge = (event) => {{
    const hit = find()?.contains(event.target) ?? false;
    if (!hit) {{ event.preventDefault(); event.stopImmediatePropagation(); }}
    if (event.type === "click") {{ click.hit = hit; click.end.abort(); }}
  }};
  for (const kind of ["pointerdown", "mousedown", "pointerup", "mouseup", "click"])
    addEventListener(kind, judge, {{ capture: true, signal: click.end.signal }});
  element.scrollIntoView({{ block: "center", behavior: "instant" }});
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}})()"""
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "/": 191}
_SHIFT = 8


class PageError(Exception):
    """An expression failed in the page or did not become true in time, or a page did not load."""


@dataclass(slots=True)
class Sent:
    """One request of a page and the response so far. `encoded_bytes` is the response's size as sent, with headers."""

    url: str
    method: str
    status: int = 0
    media_type: str = ""
    encoded_bytes: int = 0
    ended: bool = False

    @property
    def settled(self) -> bool:
        """Return True if the response is complete, or if it is an event stream, which never ends by itself."""
        return self.ended or self.media_type == "text/event-stream"


class Page:
    def __init__(self, tools: DevTools, session: str) -> None:
        self._tools, self._session = tools, session
        self._sent: dict[str, Sent] = {}
        self.errors: list[str] = []
        tools.listen(session, self._hear)

    async def prepare(self) -> None:
        """Subscribe to all events of the page, and focus the page."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.command(f"{domain}.enable")
        await self.command("Runtime.addBinding", name=_TOLD)
        await self.command("Page.addScriptToEvaluateOnNewDocument", source=_TELL_VIOLATIONS)
        await self.command("Emulation.setFocusEmulationEnabled", enabled=True)
        await self.show()

    async def command(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        return await self._tools.send(method, self._session, **parameters)

    async def show(self, size: tuple[int, int] = DESKTOP, *, dark: bool = False, motion: bool = False) -> None:
        """Set the screen size, and whether the user prefers dark colours and allows animations."""
        width, height = size
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == PHONE
        )
        preferences = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "no-preference" if motion else "reduce",
        }
        features = [{"name": name, "value": value} for name, value in preferences.items()]
        await self.command("Emulation.setEmulatedMedia", features=features)

    async def poll_faster(self) -> None:
        """Let the next documents wait a tenth of the time, wherever they wait for more than a second."""
        source = "{ const wait = setTimeout; globalThis.setTimeout = (f, ms) => wait(f, ms > 1000 ? ms / 10 : ms); }"
        await self.command("Page.addScriptToEvaluateOnNewDocument", source=source)

    async def goto(self, url: str) -> None:
        """Go to an address. Return when the document is complete. Raises PageError if no server responds."""
        found = await self.command("Page.navigate", url=url)
        if "errorText" in found:
            raise PageError(f"{url}: {found['errorText']}")
        await self.wait_for("document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or the result if the value is a promise.

        Raises PageError if that fails.
        """
        found = await self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    async def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value.

        Raises PageError with the page's text after WAIT_S seconds.
        """
        until = time.monotonic() + WAIT_S
        look = _LOOK.format(expression=expression, wait_ms=1000 * WAIT_S)
        while True:
            try:
                found = await self.evaluate(look)
            # The browser replaced the document, and the expression may become true in the new document.
            except DevToolsError:
                if time.monotonic() > until:
                    raise
                continue
            if "found" in found:
                return found["found"]
            raise PageError(f"never true: {expression}\n{found['error']}\n{found['text']}")

    async def wait_for_text(self, text: str, *, within: str = "body") -> None:
        """Wait until the element that `within` selects shows a text."""
        await self.wait_for(f"document.querySelector({json.dumps(within)})?.innerText.includes({json.dumps(text)})")

    async def text(self, selector: str = "body") -> str:
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def texts(self, selector: str) -> list[str]:
        found = await self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")
        return list(found)

    async def click(self, selector: str) -> None:
        """Click an element. Click again if the page moved the element away from the pointer in the meantime."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            x, y = await self.wait_for(_AIM.format(selector=json.dumps(selector)))
            for kind in ("mousePressed", "mouseReleased"):
                await self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            try:
                if await self.evaluate("globalThis.rankcurveTestClick?.hit ?? true"):
                    return
            except DevToolsError:  # the click replaced the document
                return
        raise PageError(f"no click reaches {selector}")

    async def press(self, key: str, *, shift: bool = False) -> None:
        code, text = _CODES[key], {"Enter": "\r", " ": " ", "/": "/"}.get(key, "")
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        named["modifiers"] = _SHIFT if shift else 0
        await self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **named)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **named)

    async def type(self, text: str) -> None:
        await self.command("Input.insertText", text=text)

    async def screenshot(self, height_px: int) -> bytes:
        """Return a picture of the first `height_px` pixels of the page, as PNG."""
        box = (await self.command("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": height_px, "scale": 1}
        found = await self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    async def settle(self) -> None:
        """Wait until the response of every request is complete, except event streams."""
        until = time.monotonic() + WAIT_S
        while under_way := [sent.url for sent in self.sent if not sent.settled]:
            await self.evaluate("new Promise(requestAnimationFrame)")
            if time.monotonic() > until:
                raise PageError(f"never answered: {under_way}")

    @property
    def sent(self) -> list[Sent]:
        return list(self._sent.values())

    def hosts(self) -> set[str]:
        """Return every server to which the page sent requests, each as scheme, host and port."""
        parts = (urlsplit(sent.url) for sent in self.sent)
        return {f"{part.scheme}://{part.netloc}" for part in parts if part.scheme not in ("data", "about")}

    def _hear(self, method: str, event: dict[str, Any]) -> None:
        if method.startswith("Network."):
            self._hear_network(method.removeprefix("Network."), event)
        elif method == "Runtime.bindingCalled" and event["name"] == _TOLD:
            self.errors.append(event["payload"])
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(f"exception: {details.get('exception', {}).get('description') or details['text']}")
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert", "warning"):
            self.errors.append(f"console: {' '.join(str(each.get('value', each)) for each in event['args'])}")
        elif method == "Log.entryAdded":
            entry = event["entry"]
            # An error status does not count as an error of the page, because the page must handle it. `sent` has the
            # status.
            if entry["level"] in ("error", "warning") and entry["source"] != "network":
                self.errors.append(f"{entry['source']}: {entry['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {event['message']}")

    def _hear_network(self, name: str, event: dict[str, Any]) -> None:
        if name == "requestWillBeSent":
            request = event["request"]
            self._sent[event["requestId"]] = Sent(request["url"], request["method"])
        sent = self._sent.get(event.get("requestId", ""))
        if sent is None:
            return
        if name == "responseReceived":
            sent.status, sent.media_type = event["response"]["status"], event["response"]["mimeType"]
            sent.encoded_bytes += int(event["response"]["encodedDataLength"])
        elif name == "dataReceived":
            sent.encoded_bytes += int(event["encodedDataLength"])
        elif name == "loadingFinished":
            sent.encoded_bytes, sent.ended = int(event["encodedDataLength"]), True
        elif name == "loadingFailed":
            sent.ended = True


@contextlib.asynccontextmanager
async def open_page(address: str) -> AsyncIterator[Page]:
    """Open a page in a new browser profile, without cookies, storage and cached files. Close the page at the end."""
    async with devtools(address) as tools:
        context = (await tools.send("Target.createBrowserContext"))["browserContextId"]
        target = (await tools.send("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        attached = await tools.send("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(tools, attached["sessionId"])
        try:
            await page.prepare()
            yield page
        finally:
            await tools.send("Target.disposeBrowserContext", browserContextId=context)

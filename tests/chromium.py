"""Start a real Chromium without a window for tests, and connect to the DevTools of that browser.

Only one browser runs at a time. The browser connects only to the pages that a test opens. The browser ends
with all its child processes.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.servers import HOST, READY_S, Folder, ended, program

PACKAGE = "chromium"
_FLAGS = (
    "--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--disable-default-apps", "--disable-breakpad", "--hide-scrollbars",
    "--password-store=basic", "--force-color-profile=srgb", "--remote-debugging-port=0",
    # The browser opens the pages of tests only. Its sandbox needs rights that neither root nor every user has.
    "--no-sandbox",
    # Without this argument, the browser would send its own look-ups of other hosts to the network.
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {HOST}",
)  # fmt: skip
ANSWER_S = 2 * READY_S  # longer than any expression waits in the page, so that the page tells what it waited for

Listener = Callable[[str, dict[str, Any]], None]


class DevToolsError(Exception):
    """An error that the browser returned in answer to a command."""


class Chromium:
    """The browser process. DevTools listens on `address`."""

    def __init__(self) -> None:
        self._program = program(PACKAGE, PACKAGE)
        self._folder = Folder("rankcurve-chromium-", "pid", user=None, last_signal="KILL")
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        """Start the browser, and return when it accepts connections. Raises RuntimeError if it does not."""
        folder = self._folder.path
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(self._program), *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder,
                env={**os.environ, "HOME": str(folder), "LANG": "en_US.UTF-8", "LANGUAGE": "en", "TZ": "UTC"},
            )  # fmt: skip
        # The minus sign sends the signal to the whole process group: the browser and its child processes.
        (folder / "pid").write_text(f"-{self._process.pid}\n")
        told, until = folder / "profile" / "DevToolsActivePort", time.monotonic() + READY_S
        while not (told.exists() and len(lines := told.read_text().split()) == 2):
            if ended(self._process) or time.monotonic() > until:
                raise RuntimeError(f"Chromium did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}")
        self.address = f"ws://{HOST}:{lines[0]}{lines[1]}"

    def remove(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.remove()


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    browser = Chromium()
    try:
        browser.start()
        yield browser
    finally:
        browser.remove()


class DevTools:
    """A connection to DevTools. Answers may come in any order. Each session has a listener that receives its events."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, Listener] = {}

    def listen(self, session: str, listener: Listener) -> None:
        self._listeners[session] = listener

    async def send(self, method: str, session: str = "", /, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result. Raises DevToolsError if the browser refuses the command."""
        number = next(self._ids)
        answer = self._awaited[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        )
        return await asyncio.wait_for(answer, ANSWER_S)

    async def read(self) -> None:
        """Dispatch incoming messages until the connection ends."""
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                break
            found = message.json()
            if "id" not in found:
                if (listener := self._listeners.get(found.get("sessionId", ""))) is not None:
                    listener(found["method"], found["params"])
                continue
            awaited = self._awaited.pop(found["id"])
            if awaited.done():
                continue
            if "error" in found:
                awaited.set_exception(DevToolsError(found["error"]["message"]))
            else:
                awaited.set_result(found["result"])
        for awaited in self._awaited.values():
            awaited.cancel()


@contextlib.asynccontextmanager
async def devtools(address: str) -> AsyncIterator[DevTools]:
    async with ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
        made = DevTools(socket)
        reader = asyncio.create_task(made.read())
        try:
            yield made
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

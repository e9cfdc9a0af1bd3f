"""Follow the page of a game without a server literally, and play the game in a browser."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankcurve import Client

from tests.browser import Page, open_page
from tests.clients.typescript_builds import build_typescript
from tests.pages import shell_environment
from tests.servers import HOST, READY_S, free_port
from tests.service.real_service import ROOT, Process
from tests.test_tutorial import follow

RIVALS = {f"p{index}": 100 - index for index in range(20)}
RECORD = "const send = fetch, sent = globalThis.sent = []; globalThis.fetch = (...to) => (sent.push(to), send(...to))"
POSTED = (
    "globalThis.sent.filter(([url]) => url.endsWith('/posts')).map(([url, { signal, ...init }]) => ({ url, init }))"
)


@contextlib.contextmanager
def running(text: str, folder: Path, environment: dict[str, str], port: int) -> Iterator[None]:
    """Run lines of a shell until the end of the block, which begins when a process accepts connections on the port."""
    process = subprocess.Popen(["bash", "-c", text], cwd=folder, env=environment, start_new_session=True)
    until = time.monotonic() + READY_S
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    break
            assert process.poll() is None
            assert time.monotonic() < until, text
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def play_match(page: Page) -> int:
    """Guess the number of the page by halves. Return the xp that it says."""
    low, high = 1, 100
    while True:
        guess = (low + high) // 2
        await page.evaluate(
            f"document.querySelector('output').value = ''; document.querySelector('input').value = {guess}"
        )
        await page.click("button")
        said = await page.wait_for("document.querySelector('output').value")
        if "xp" in said:
            return int(said.split()[0])
        low, high = (guess + 1, high) if said == "higher" else (low, guess - 1)


async def test_a_game_without_a_server_is_played_as_its_page_says(tmp_path: Path, chromium_address: str) -> None:
    environment = shell_environment() | {"PROJECT": str(ROOT), "PAGE_PORT": str(free_port())}
    environment["CLIENT"] = str(build_typescript(tmp_path))
    port, folder = int(environment["PAGE_PORT"]), tmp_path / "empty"
    folder.mkdir()
    with contextlib.ExitStack() as stack:

        def start(text: str) -> None:
            if text.startswith("rankcurve serve "):
                words = text.split()[2:]
                stack.enter_context(Process(folder, "--port", environment["RANKCURVE_PORT"], *words))
            else:
                stack.enter_context(running(text, folder, environment, port))

        assert follow("game_without_server.md", folder, environment, start) == 1
        key = (folder / "ops.key").read_text().strip()
        game = stack.enter_context(Client(environment["RANKCURVE_URL"], key))
        game.post("arena", [{"owner": owner, "stats": {"xp": xp}} for owner, xp in RIVALS.items()])
        async with open_page(chromium_address) as page, open_page(chromium_address) as other:
            await page.command("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
            await page.goto(f"http://{HOST}:{port}/?friends=p1,p2")
            await page.wait_for_text("has not played yet", within="#rank")
            player = (await page.text("#rank")).split()[0]
            xp = await play_match(page)
            await page.wait_for_text(f"{player} is #", within="#rank")
            assert game.entry("arena", player).stats["xp"] == xp
            assert f"is #{game.rank('arena', player)} of 22" in await page.text("#rank"), "20 rivals and the thief"
            await page.wait_for("document.querySelectorAll('#around tr').length >= 4")
            await page.wait_for("document.querySelectorAll('#top tr').length === 10")
            assert await page.texts("#top td:nth-child(2)") == [f"p{index}" for index in range(10)]
            await replay_in_another_tab(page, other, f"http://{HOST}:{port}/")
            assert game.entry("arena", player).stats["xp"] == xp, "a replay counts once, wherever it comes from"
            await page.wait_for("document.querySelectorAll('#friends tr').length === 3")
            assert await page.texts("#friends td:nth-child(2)") == ["p1", "p2", player]
            game.post_one("arena", player, xp=1000)
            await page.wait_for_text(f"{player} is #1 of 22", within="#rank")
            await page.wait_for(f"document.querySelector('#top td:nth-child(2)').textContent === '{player}'")
            await page.wait_for(f"document.querySelector('#friends td:nth-child(2)').textContent === '{player}'")
            assert page.errors == other.errors == []


async def replay_in_another_tab(page: Page, other: Page, url: str) -> None:
    """Send the post of a page again from another one, which is another player's, with the same token and number."""
    [posted] = await page.evaluate(POSTED)
    await other.goto(url)
    await other.wait_for_text("has not played yet", within="#rank")
    sent = f"fetch({json.dumps(posted['url'])}, {json.dumps(posted['init'])})"
    answer: dict[str, Any] = await other.evaluate(f"{sent}.then((answer) => answer.json())")
    assert [result["status"] for result in answer["results"]] == ["duplicate"]

"""Test the page of a node that needs keys.

It asks for a key, shows what the key allows, and keeps it only in the tab.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.browser import Page
from tests.service.cli_fake_service import make_key
from tests.service.monitoring.dashboard.shown_node import LAP, XP
from tests.service.real_service import Caller, Process

ASKED = "!document.querySelector('#key-panel').hidden && document.activeElement.id === 'key-input'"

RED = "[...document.querySelectorAll('.fault')].map((each) => each.innerText).filter(Boolean)"


@dataclass(frozen=True)
class Closed:
    """A node that requires API keys, and keys that the node accepts."""

    url: str
    reader: str
    ops: str


async def fill(url: str, key: str) -> None:
    async with Caller(url, key) as caller:
        await caller.board("b", XP, LAP)
        await caller.post_xp("b", ada=1)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("closed")
    keys = {role: make_key(folder, role) for role in ("reader", "ops")}
    with Process(folder) as process:
        asyncio.run(fill(process.url, keys["ops"]))
        yield Closed(process.url, **keys)


async def enter_key(page: Page, key: str) -> None:
    await page.wait_for(ASKED)
    await page.type(key)
    await page.press("Enter")


async def read_kept(page: Page) -> tuple[list[str], list[str], str]:
    """Return what the page stored in the session storage, in the local storage, and in cookies."""
    session, good = ("Object.values(sessionStorage)", "Object.values(localStorage)")
    return await page.evaluate(session), await page.evaluate(good), await page.evaluate("document.cookie")


async def test_the_page_asks_for_a_key_and_reports_a_wrong_one(page: Page, closed: Closed) -> None:
    await page.goto(closed.url)
    await page.wait_for_text("A key is needed", within="#key-fault")
    await page.settle()
    assert (await page.text()).count("is needed") == 1
    assert await page.evaluate(RED) == [], "nothing is wrong yet"
    await enter_key(page, "rk_wrong")
    await page.wait_for_text("This key was refused", within="#key-fault")
    assert len(await page.evaluate(RED)) == 1
    assert await read_kept(page) == ([], [], ""), "the page does not keep a key that is refused"
    await enter_key(page, closed.reader)
    await page.wait_for("document.querySelector('#view .card h2 a')?.textContent === 'b'")
    assert await page.evaluate("document.querySelector('#key-panel').hidden")
    assert await read_kept(page) == ([closed.reader], [], "")
    assert closed.reader not in await page.evaluate("document.documentElement.outerHTML + location.href")
    assert not [sent.url for sent in page.sent if closed.reader in sent.url]


async def test_a_key_lasts_as_long_as_the_tab_and_can_be_forgotten(page: Page, closed: Closed) -> None:
    await page.goto(f"{closed.url}/#/boards/b")
    await enter_key(page, closed.reader)
    await page.wait_for("document.querySelector('#ranking .state.live')")
    await page.evaluate("window.beforeReload = true; location.reload()")
    await page.wait_for("!window.beforeReload && document.querySelector('#ranking .state.live')")
    await page.click("#key-button")
    await page.wait_for(ASKED)
    await page.evaluate(
        "[...document.querySelectorAll('#key-panel button')].find((b) => b.innerText.startsWith('Forget')).click()"
    )
    await page.wait_for_text("A key is needed", within="#key-fault")
    assert await read_kept(page) == ([], [], "")
    assert "ada" not in await page.text("#view")


async def test_only_operators_see_the_node_and_readers_see_the_rest(page: Page, closed: Closed) -> None:
    await page.goto(f"{closed.url}/#/node")
    await enter_key(page, closed.reader)
    await page.wait_for_text("give a key with the role ops", within="#view")
    await page.click("#key-button")
    await enter_key(page, closed.ops)
    await page.wait_for("document.querySelector('#node-jobs table')")
    await page.click("#nav-boards")
    await page.wait_for("document.querySelector('#view .card h2 a')?.textContent === 'b'")

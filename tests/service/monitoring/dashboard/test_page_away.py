"""Test a page while its service is stopped. The page says so, and updates again when the service runs again."""

import signal

from tests.browser import Page, open_page
from tests.service.monitoring.dashboard.shown_node import new_board, post
from tests.service.real_service import Spawn

LIVE = "document.querySelector('#{} .state.live')"
TOLD = "document.querySelector('#connection').textContent"
TOP = "document.querySelector('#ranking tbody tr a')?.textContent"


async def test_an_open_page_recovers_when_its_service_is_back(page: Page, chromium_address: str, spawn: Spawn) -> None:
    first = spawn().ready()
    await new_board(first.url, "b", ada=30, bob=20)
    await page.goto(f"{first.url}/#/boards/b?owner=bob")
    await page.wait_for(f"{LIVE.format('ranking')} && {LIVE.format('owner')}")
    await page.evaluate("globalThis.sameDocument = true")
    async with open_page(chromium_address) as other:
        await other.goto(f"{first.url}/#/boards")
        await other.wait_for("document.querySelector('#view .card h2 a')?.textContent === 'b'")
        first.end(signal.SIGKILL)
        await other.evaluate("location.hash = '#/boards/b'")
        await other.wait_for_text("The service does not answer", within="#view")
        await page.wait_for(f"{TOLD}.includes('does not answer')")
        await page.wait_for("document.querySelector('#ranking .state.away')")
        assert await page.evaluate(TOP) == "ada", "the page still shows what it knew"
        second = spawn("--port", str(first.port)).ready()
        await post(second.url, "b", bob=40)
        await page.wait_for(f"{TOLD} === '' && {TOP} === 'bob'")
        await page.wait_for(f"{LIVE.format('ranking')} && {LIVE.format('owner')}")
        await page.wait_for("document.querySelector('#owner .ranks b').textContent === '1'")
        assert await page.evaluate("globalThis.sameDocument")
        await other.wait_for(f"{TOLD} === '' && {TOP} === 'bob'")
        assert other.errors == []

"""Test that every view is accessible on every screen size, and that no view is wider than the screen of a phone.

The test checks a view after all parts of the view have loaded.
"""

import pytest

from tests.accessibility import violations
from tests.browser import DESKTOP, PHONE, Page
from tests.service.monitoring.dashboard.shown_node import HOSTILE, SEASON, name_of, view_url
from tests.service.monitoring.dashboard.test_page_keyboard import CARD
from tests.service.monitoring.dashboard.test_page_node import READY
from tests.service.real_service import Process, escaped

# For each view, its address and an expression. The expression is true after all parts of the view have loaded.
PICTURES = "document.querySelectorAll('#view svg[role=img]').length === 2"
VIEWS = {
    "boards": (
        "/boards",
        "document.querySelectorAll(\"a[data-key^='board:']\").length === 50 && document.querySelector('.periods b')"
        " && document.querySelector('.health a')",
    ),
    "family": ("/families/arena", "document.querySelector('.card') && document.querySelector('datalist option')"),
    "board": (f"/boards/{SEASON}", PICTURES),
    "owner": (
        f"/boards/{SEASON}?column=xp&owner={name_of(400)}&value=40000",
        f"document.querySelectorAll('#curve .mark').length === 2 && {CARD}",
    ),
    "low": (f"/boards/{SEASON}?column=lap&from=101", PICTURES),
    "hostile": (f"/boards/hostile?owner={escaped(HOSTILE[7])}", "document.querySelector('#owner table')"),
    "empty": ("/boards/tiny-00", "document.querySelector('#ranking p')"),
    "unknown": ("/boards/nothing-here", "document.querySelector('#view .notice:not([hidden])')"),
    "everywhere": (
        f"/owners/{name_of(4)}",
        "document.querySelector('#posts table') && document.querySelector('.acts')",
    ),
    "moderation": ("/moderation", "!document.querySelector('#view .loading') && document.querySelector('#acts table')"),
    "league": (
        "/leagues/climb?owner=climber-1",
        "document.querySelectorAll('#divisions tbody tr').length === 2 &&"
        " document.querySelector('#cohort-title').textContent === 'bronze-1' &&"
        " document.querySelectorAll('#cohort tbody tr').length === 3",
    ),
    "node": ("/node", READY),
    "nowhere": ("/elsewhere", "document.querySelector('#view h1')"),
}
OPENED = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
TOO_WIDE = """[...document.querySelectorAll("body *")].filter((each) => !each.closest(".scroll, .unseen, svg, .skip")
  && each.getBoundingClientRect().right > innerWidth + 0.5).map((each) => each.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("view", VIEWS)
async def test_every_view_is_accessible_on_every_screen(page: Page, node: Process, view: str) -> None:
    route, complete = VIEWS[view]
    await page.goto(view_url(node, route))
    await page.wait_for(complete)
    for size in (DESKTOP, PHONE):
        dark = size == PHONE  # colours and sizes do not depend on each other
        await page.show(size, dark=dark)
        await page.wait_for(f"innerWidth === {size[0]}")
        screen = f"{view}-{'phone-dark' if dark else 'desktop-light'}"
        await page.evaluate(OPENED)
        assert (screen, await violations(page)) == (screen, [])
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0], screen
        assert (screen, await page.evaluate(TOO_WIDE)) == (screen, [])


async def test_the_form_for_a_key_is_accessible(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards"))
    await page.click("#key-button")
    await page.wait_for("document.activeElement.id === 'key-input'")
    for dark in (False, True):
        await page.show(PHONE, dark=dark)
        assert await violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]

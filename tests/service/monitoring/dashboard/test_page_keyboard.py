"""Test the dashboard without a mouse.

Tab reaches everything in order, the focus is visible, and every control works.
"""

import json

import pytest

from tests.browser import DESKTOP, PHONE, Page
from tests.service.monitoring.dashboard.shown_node import SEASON, name_of, view_url
from tests.service.real_service import Process

REACHABLE = """[...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }))"""
# Describe the focused element: its index among the focusable elements, whether it has an outline, and whether it is
# visible on the screen.
FOCUSED = f"""(() => {{
  const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
  return {{
    index: {REACHABLE}.indexOf(element), text: element.outerHTML.slice(0, 200),
    outlined: element.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    box: [box.left, box.top, box.right, box.bottom, innerWidth, innerHeight],
    // Scrolled to a fraction of a pixel; what is as high as the screen may go beyond it.
    inside: box.width > 0 && box.height > 0 && box.left > -1 && box.right < innerWidth + 1 && box.top > -1
      && (box.bottom < innerHeight + 1 || (box.height > 0.8 * innerHeight && box.top < 0.2 * innerHeight)),
  }};
}})()"""
CARD = """document.querySelector('#owner .ranks') && document.querySelector('#owner table')
  && document.querySelector('#spread svg')"""


async def tab_to(page: Page, expression: str, most: int = 200) -> None:
    """Press Tab until an expression about the focused element `e` is true. Fail after `most` presses."""
    for _ in range(most):
        await page.press("Tab")
        if await page.evaluate(f"((e) => {expression})(document.activeElement)"):
            return
    raise AssertionError(f"never focused: {expression}")


@pytest.mark.parametrize(
    ("size", "route", "complete"),
    [
        pytest.param(DESKTOP, f"/boards/{SEASON}?owner={name_of(4)}", CARD, id="owner on a desktop"),
        pytest.param(PHONE, "/node", "document.querySelector('#node-leases table')", id="node on a phone"),
    ],
)
async def test_tab_reaches_every_control_in_order_and_the_focus_is_visible(
    page: Page, node: Process, size: tuple[int, int], route: str, complete: str
) -> None:
    await page.show(size)
    await page.goto(view_url(node, route))
    await page.wait_for(complete)
    count = await page.evaluate(f"{REACHABLE}.length")
    for index in range(count):
        await page.press("Tab")
        found = await page.evaluate(FOCUSED)
        assert (found["index"], found["outlined"], found["inside"]) == (index, True, True), found
    await page.press("Tab", shift=True)
    assert (await page.evaluate(FOCUSED))["index"] == count - 2


async def test_a_user_without_a_mouse_reaches_and_operates_everything(page: Page, node: Process) -> None:
    await page.goto(node.url)
    await page.wait_for("document.querySelector('#view .card h2 a')")
    await page.press("Tab")
    assert await page.text(":focus") == "Skip to content"
    await page.press("Enter")
    await page.wait_for("document.activeElement.id === 'main'")
    await tab_to(page, "e.id === 'contains'", 3)
    await page.type("season")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('#view .card').length === 1")
    await tab_to(page, f"e.textContent === {json.dumps(SEASON)}")
    await page.press("Enter")
    await page.wait_for("document.activeElement.tagName === 'H1'")
    await page.wait_for("document.querySelector('#ranking .state.live') && document.querySelector('#curve svg')")
    await tab_to(page, "e.dataset.key === 'column:lap'")
    await page.press("Enter")
    await page.wait_for(
        "document.activeElement.dataset.key === 'column:lap' && document.activeElement.ariaCurrent === 'page'"
    )
    await tab_to(page, "e.id === 'find'")
    await page.type(name_of(21))
    await page.press("Enter")
    await page.wait_for(f"document.querySelector('#owner h2')?.textContent === '{name_of(21)}'")
    await page.wait_for("document.activeElement.closest('#owner')")
    await page.wait_for("document.querySelector('#curve .mark')")
    await tab_to(page, "e.getAttribute('aria-pressed') === 'false'")
    await page.press(" ")
    await page.wait_for("document.activeElement.getAttribute('aria-pressed') === 'true'")
    await tab_to(page, "e.dataset.key === 'knots'")
    await page.press("Enter")
    await page.wait_for("document.activeElement.parentElement.open")
    await tab_to(page, "e.dataset.key === 'close-owner'")
    await page.press("Enter")
    await page.wait_for("!document.querySelector('#owner')")


async def test_a_user_chooses_the_theme_by_key_and_the_page_remembers_it(page: Page, node: Process) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    await page.goto(node.url)
    light = await page.evaluate(ground)
    await tab_to(page, "e.id === 'theme-button'", 10)
    for expected in ("light", "dark"):
        await page.press(" ")
        assert (await page.text("#theme-button")).endswith(expected)
    dark = await page.evaluate(ground)
    assert dark != light
    await page.evaluate("window.beforeReload = true; location.reload()")
    # Until the browser replaces it, the old document is complete, too. Only the old one has the mark.
    loaded = "document.readyState === 'complete' && document.querySelector('#view .card')"
    await page.wait_for(f"!window.beforeReload && {loaded}")
    assert await page.evaluate(ground) == dark
    await page.show(dark=True)
    await tab_to(page, "e.id === 'theme-button'", 10)
    await page.press("Enter")
    assert (await page.text("#theme-button")).endswith("auto")
    assert await page.evaluate(ground) == dark
    await page.show(dark=False)
    assert await page.evaluate(ground) == light

"""Test the list of boards in a browser: its pages, its search, its links, and its message about an unknown board."""

import json

from tests.browser import Page
from tests.service.monitoring.dashboard.shown_node import SEASON, view_url
from tests.service.real_service import Process

ROWS = "#view tbody tr"


async def list_shown_boards(page: Page, first: str) -> list[str]:
    """Wait until the list begins with board `first`. Return the ids of all boards in the list."""
    await page.wait_for(f"document.querySelector('{ROWS} a')?.textContent === {json.dumps(first)}")
    return await page.texts(f"{ROWS} a")


async def test_the_list_shows_boards_page_by_page(page: Page, node: Process) -> None:
    await page.goto(node.url)
    first = await list_shown_boards(page, "hostile")
    assert len(first) == 50
    assert SEASON in first
    await page.click("a[data-key=next]")
    second = await list_shown_boards(page, "tiny-48")
    assert not set(first) & set(second)
    assert first + second == sorted(first + second)
    await page.evaluate("history.back()")
    assert await list_shown_boards(page, "hostile") == first


async def test_a_search_finds_boards_by_prefix_and_has_a_link(page: Page, node: Process) -> None:
    await page.goto(node.url)
    await list_shown_boards(page, "hostile")
    await page.click("#prefix")
    await page.type("tiny-0")
    found = await list_shown_boards(page, "tiny-00")
    assert found == [f"tiny-0{number}" for number in range(10)]
    address = await page.wait_for("location.hash.includes('prefix=tiny-0') && location.href")
    await page.goto("about:blank")
    await page.goto(address)
    assert await list_shown_boards(page, "tiny-00") == found
    await page.goto(view_url(node, "/boards?prefix=%3Cimg%20src%3Dx%3E"))
    await page.wait_for_text("No board")
    assert "<img src=x>" in await page.text("#view")


async def test_a_row_describes_its_board_and_links_to_it(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards?prefix=season"))
    await list_shown_boards(page, SEASON)
    row = await page.text(ROWS)
    assert "900" in row
    assert "xp, lap" in row
    assert "open" in row
    await page.click(f"{ROWS} a")
    await page.wait_for(f"document.querySelector('h1').textContent === '{SEASON}'")
    assert await page.evaluate("document.title") == f"{SEASON} – rankcurve"


async def test_the_page_reports_an_unknown_board_and_an_unknown_address(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards/nothing-here"))
    await page.wait_for("document.querySelector('#view .fault')?.textContent.includes('nothing-here')")
    await page.goto(view_url(node, "/elsewhere"))
    await page.wait_for_text("Nothing is at this address")
    await page.click("#view a")
    await list_shown_boards(page, "hostile")

"""Test the page at `/docs`: its headers, that it shows the whole API, and how it works in a browser."""

import re
from html import unescape

from docs.api_page import write_page
from docs.openapi_operations import list_operations
from service.contract.problems import CODES
from tests.accessibility import violations
from tests.browser import DESKTOP, PHONE, Page
from tests.service.monitoring.dashboard.test_page_keyboard import FOCUSED, REACHABLE
from tests.service.monitoring.dashboard.test_page_views import OPENED, TOO_WIDE
from tests.service.monitoring.dashboard.test_views import PLAIN, fetch_file
from tests.service.openapi_checks import DOCUMENT
from tests.service.real_service import Process, Service

BYTES_MAX = 500_000
OPERATIONS = list_operations(DOCUMENT)
DRAWN = "!document.getElementById('search').hidden && document.getElementById('theme-button').textContent !== 'Theme'"


def test_the_page_shows_every_operation_of_the_document_once() -> None:
    page = write_page(DOCUMENT)
    shown = re.findall(r'<details class="panel operation" id="(\w+)">', page)
    described = [each["operationId"] for methods in DOCUMENT["paths"].values() for each in methods.values()]
    assert sorted(shown) == sorted(described)
    parts = dict(zip(shown, page.split('<details class="panel operation"')[1:], strict=True))
    for each in OPERATIONS:
        part = unescape(re.sub("<[^>]+>", "", parts[each.id]))
        assert f"{each.method} {each.path}\n{each.summary} {each.role}" in part
        assert each.curl("$URL") in part
        assert all(answer.text in part for answer in each.answers)
        assert all(f"{status} {code}" in part for status, code in each.codes)
        assert all(field.name in part for field in each.fields)


def test_every_link_of_the_page_leads_to_a_part_of_it_and_no_part_has_the_name_of_another() -> None:
    page = write_page(DOCUMENT)
    names = re.findall(r'\sid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(names)
    assert {f"problem-{code}" for code in CODES} <= set(names)


def test_a_text_of_the_document_never_becomes_markup() -> None:
    path = {"get": {**DOCUMENT["paths"]["/healthz"]["get"], "summary": "<b>&", "description": "a `<i>` & </p>"}}
    page = write_page({**DOCUMENT, "paths": {"/<u>": path}})
    assert "&lt;b&gt;&amp;" in page
    assert "<p>a <code>&lt;i&gt;</code> &amp; &lt;/p&gt;</p>" in page
    assert not re.search("<(b|i|u)>", page)


async def test_the_page_is_small_and_static(service: Service) -> None:
    """The tests of the dashboard's files are about the headers of this page, too."""
    status, body, _ = await fetch_file(service, "/docs", **PLAIN)
    assert (status, body.decode()) == (200, write_page(DOCUMENT))
    assert len(body) < BYTES_MAX
    assert not re.search(
        rb"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|https?://(?!www\.w3\.org|game\.example/)", body
    )


async def test_the_page_is_accessible_on_every_screen(page: Page, node: Process) -> None:
    await page.goto(f"{node.url}/docs")
    await page.wait_for(DRAWN)
    # An opened page has all that a closed one has. Colours and sizes do not depend on each other.
    await page.evaluate(OPENED)
    for size in (DESKTOP, PHONE):
        dark = size == DESKTOP
        await page.show(size, dark=dark)
        await page.wait_for(f"innerWidth === {size[0]}")
        screen = f"api-{'desktop-dark' if dark else 'phone-light'}"
        assert (screen, await violations(page)) == (screen, [])
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0], screen
        assert (screen, await page.evaluate(TOO_WIDE)) == (screen, [])


async def test_an_address_opens_its_request_and_a_search_hides_the_others(page: Page, node: Process) -> None:
    await page.goto(f"{node.url}/docs#create_board")
    await page.wait_for(f"{DRAWN} && document.getElementById('create_board').open")
    opened = "[...document.querySelectorAll('.operation[open]')].map((each) => each.id)"
    assert await page.evaluate(opened) == ["create_board"]
    await page.evaluate("location.hash = '#board'")
    await page.wait_for("document.getElementById('board').open")
    await page.click("#find")
    await page.type("lease journal")
    await page.wait_for_text(f"1 of {len(OPERATIONS)} requests", within="#found")
    seen = (
        "[...document.querySelectorAll('.operation')].filter((each) => each.checkVisibility()).map((each) => each.id)"
    )
    assert await page.evaluate(seen) == ["lease_journal"]
    await page.click("#open-all")
    assert set(await page.evaluate(opened)) == {"create_board", "board", "lease_journal"}
    await page.click("#close-all")
    assert set(await page.evaluate(opened)) == {"create_board", "board"}, "hidden requests stay as they are"
    await page.evaluate("document.getElementById('find').value = ''")
    await page.evaluate("document.getElementById('find').dispatchEvent(new Event('input'))")
    assert len(await page.evaluate(seen)) == len(OPERATIONS)


async def test_tab_reaches_every_request_in_order_and_enter_opens_it(page: Page, node: Process) -> None:
    await page.goto(f"{node.url}/docs")
    await page.wait_for(DRAWN)
    count = await page.evaluate(f"{REACHABLE}.length")
    assert count > len(OPERATIONS)
    for index in range(count):
        await page.press("Tab")
        found = await page.evaluate(FOCUSED)
        assert (found["index"], found["outlined"], found["inside"]) == (index, True, True), found
    await page.evaluate("document.querySelector('#healthz').querySelector('summary').focus()")
    await page.press("Enter")
    await page.wait_for("document.getElementById('healthz').open")


async def test_the_dashboard_links_to_the_page(page: Page, node: Process) -> None:
    await page.goto(f"{node.url}/")
    await page.click("nav a[href='/docs']")
    await page.wait_for("location.pathname === '/docs' && document.querySelectorAll('.operation').length > 0")


async def test_a_request_that_reads_is_sent_from_the_page_and_no_other(page: Page, node: Process) -> None:
    await page.goto(f"{node.url}/docs#board")
    await page.wait_for("document.querySelector('#board[open] form input')")
    assert await page.evaluate("document.querySelector('#board form input').value") == "/v1/leaderboards/game"
    await page.click("#board form button")
    await page.wait_for_text("unknown_board", within="#board form + pre")
    await page.evaluate("document.querySelector('#board form input').value = '/v1/leaderboards/season-2026'")
    await page.click("#board form button")
    await page.wait_for_text('"entries": 900', within="#board form + pre")
    offered = await page.evaluate(
        "[...document.querySelectorAll('.operation:has(form) .method')].map((e) => e.innerText)"
    )
    assert set(offered) == {"GET"}
    assert len(offered) > 30

"""Test the list of boards in a browser: pages, searches, families, an owner on all boards, an unknown board."""

import json

from tests.browser import Page
from tests.service.monitoring.dashboard.shown_node import FAMILY, SEASON, name_of, new_board, post, view_url, xp_of
from tests.service.real_service import Process

ROWS = "#view tbody tr"
FIRST = f"document.querySelector('{ROWS} a')?.textContent"


async def list_shown_boards(page: Page, first: str) -> list[str]:
    """Wait until the list begins with board `first`. Return the ids of all boards in the list."""
    await page.wait_for(f"{FIRST} === {json.dumps(first)}")
    return await page.texts(f"{ROWS} a")


async def test_the_list_begins_with_the_board_that_was_changed_last(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-first", ada=1)
    await page.poll_faster()
    await page.goto(node.url)
    first = await list_shown_boards(page, "zz-first")
    assert len(first) == 50
    assert not [board for board in first if board.startswith(FAMILY)], "a family is one row"
    await page.click("a[data-key=next]")
    await page.wait_for(f"{FIRST} !== 'zz-first'")
    assert not set(first) & set(await page.texts(f"{ROWS} a"))
    await page.evaluate("history.back()")
    await new_board(node.url, "zz-second", ada=1)
    await list_shown_boards(page, "zz-second")
    await post(node.url, "zz-first", ada=2)
    await list_shown_boards(page, "zz-first")


async def test_a_search_finds_boards_by_any_part_of_the_name_and_has_a_link(page: Page, node: Process) -> None:
    await page.goto(node.url)
    await page.wait_for(FIRST)
    await page.click("#contains")
    await page.type("NY-0")
    found = await list_shown_boards(page, "tiny-00")
    assert found == [f"tiny-0{number}" for number in range(10)]
    address = await page.wait_for("location.hash.includes('contains=NY-0') && location.href")
    await page.goto("about:blank")
    await page.goto(address)
    assert await list_shown_boards(page, "tiny-00") == found
    await page.goto(view_url(node, "/boards?contains=%3Cimg%20src%3Dx%3E"))
    await page.wait_for_text("No board’s name contains “<img src=x>”")
    await page.wait_for(FIRST)


async def test_a_row_describes_its_board_and_links_to_it(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards?contains=season"))
    await list_shown_boards(page, SEASON)
    row = await page.text(ROWS)
    assert "900" in row
    assert "xp, lap" in row
    assert "open" in row
    await page.click(f"{ROWS} a")
    await page.wait_for(f"document.querySelector('h1').textContent === '{SEASON}'")
    assert await page.evaluate("document.title") == f"{SEASON} – rankcurve"


async def test_a_list_is_as_high_as_its_rows(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards?contains={SEASON}"))
    await list_shown_boards(page, SEASON)
    beyond = "document.querySelector('.list').clientHeight - document.querySelector('.list table').clientHeight"
    assert await page.evaluate(beyond) < 40, "the rest is the panel's edge"


async def test_a_lone_family_is_unfolded_and_leads_to_the_board_of_a_period_and_a_clan(
    page: Page, node: Process
) -> None:
    await page.goto(node.url)
    await page.wait_for(f"document.querySelector(\"summary[data-key='family:{FAMILY}']\")?.parentElement.open")
    await page.wait_for(
        "[...document.querySelectorAll('datalist option')].map((each) => each.value).join() === 'fox,owl'"
    )
    await page.click("input[name=clan]")
    await page.type("fox")
    await page.click(f"button[data-key='family:{FAMILY}:this-week']")
    await page.wait_for("document.querySelectorAll('#ranking tbody tr').length === 2")
    assert (await page.text("h1")).endswith(":clan=fox")
    assert "this-week" not in await page.text("h1"), "the address names the period, so that it stays the same"
    await page.click("#ranking a.owner")
    await page.wait_for_text("No closed period has posts", within="#owner")


async def test_an_owner_is_found_on_all_boards(page: Page, node: Process) -> None:
    await page.goto(node.url)
    await page.click("#anywhere")
    await page.type(name_of(1))
    await page.press("Enter")
    await page.wait_for(f"{FIRST}?.startsWith('{FAMILY}:')")
    boards = await page.texts(f"{ROWS} a")
    assert [board for board in boards if not board.startswith(FAMILY)] == [SEASON]
    assert "Grace Hopper" in await page.wait_for(
        "document.querySelector('h1 .id') && document.querySelector('h1').textContent"
    )
    rows = [row.split("\t") for row in await page.texts(ROWS)]
    assert rows[-1][1:3] == ["xp 2, lap 1", f"xp {xp_of(1):,}, lap 60.125, clan clan 1"]
    assert {row[0]: row[1] for row in rows[:-1]} == {
        board: f"xp {1 if board.endswith('clan=owl') else 2}" for board in boards[:-1]
    }
    await page.click(f"a[data-key='board:{SEASON}']")
    await page.wait_for("document.querySelector('#owner .ranks')")
    await page.goto(view_url(node, "/owners/nobody"))
    await page.wait_for_text("an entry on no board")


async def test_an_unknown_board_leads_to_the_search(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards/easo"))
    await page.wait_for_text("There is no board “easo”")
    assert await list_shown_boards(page, SEASON) == [SEASON]
    assert await page.evaluate("document.querySelector('#contains').value") == "easo"
    await page.goto(view_url(node, "/elsewhere"))
    await page.wait_for_text("Nothing is at this address")
    await page.click("#view a")
    await page.wait_for(FIRST)

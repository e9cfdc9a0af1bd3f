"""Test the overview in a browser: leaders, the verdict, pages, searches, families, an owner on all boards."""

import json
from datetime import UTC, datetime
from pathlib import Path

from tests.browser import PHONE, Page
from tests.service.monitoring.dashboard.shown_node import FAMILY, SEASON, name_of, new_board, post, view_url, xp_of
from tests.service.played_days import micros
from tests.service.real_service import Caller, Process, Service
from tests.storage.deployment import Clock

DAY_US = 86_400_000_000

BOARDS = "#view a[data-key^='board:']"
FIRST = f'document.querySelector("{BOARDS}")?.textContent'
SUGGESTED = "[...document.querySelectorAll('#search-list li')].map((each) => each.innerText.replace(/\\s+/g, ' '))"


async def list_shown_boards(page: Page, first: str) -> list[str]:
    """Wait until the list begins with board `first`. Return the ids of all boards in the list."""
    await page.wait_for(f"{FIRST} === {json.dumps(first)}")
    return await page.texts(BOARDS)


async def test_the_list_begins_with_the_board_that_was_changed_last(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-first", ada=1)
    await page.poll_faster()
    await page.goto(node.url)
    first = await list_shown_boards(page, "zz-first")
    assert len(first) == 50
    assert not [board for board in first if board.startswith(FAMILY)], "a family is one row"
    await page.click("a[data-key=next]")
    await page.wait_for(f"{FIRST} !== 'zz-first'")
    assert not set(first) & set(await page.texts(BOARDS))
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
    await page.wait_for_text("Ada Lovelace", within=".card")
    card = await page.text(".card")
    assert "900 entries" in card
    assert "by xp, lap" in card
    assert "open" in card
    assert f"{xp_of(0):,}" in card
    await page.click(BOARDS)
    await page.wait_for(f"document.querySelector('h1').textContent === '{SEASON}'")
    assert await page.evaluate("document.title") == f"{SEASON} – rankcurve"


async def test_a_card_shows_who_leads_and_how_busy_its_board_is(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-busy", ada=1, bob=2)
    await page.poll_faster()
    await page.goto(view_url(node, "/boards?contains=zz-busy"))
    await page.wait_for_text("bob", within=".card .leaders")
    for xp in range(3, 40):
        await post(node.url, "zz-busy", ada=xp)
        if "changes a minute" in await page.text(".card-foot"):
            break
    await page.wait_for("/[1-9][0-9.,K]* changes a minute/.test(document.querySelector('.card-foot').innerText)")
    await page.wait_for("document.querySelector('.card .leaders a').textContent === 'ada'")


async def test_the_verdict_of_the_node_is_one_line_that_leads_to_the_node(page: Page, node: Process) -> None:
    await page.goto(node.url)
    await page.wait_for("document.querySelector('.health a')")
    assert (await page.text(".health a")).startswith(("All is well", "Something needs a look"))
    await page.wait_for_text("posts a minute", within=".health")
    await page.click(".health a")
    await page.wait_for("document.querySelector('h1').textContent === 'Node'")


async def test_an_empty_store_says_how_to_begin(page: Page, tmp_path: Path) -> None:
    async with Service(tmp_path, jobs="none").running() as service:
        await page.poll_faster()
        await page.goto(service.base)
        await page.wait_for_text("No boards yet")
        assert f"curl -X PUT {service.base}/v1/leaderboards/arena" in await page.text("pre")
        async with Caller(service.base) as caller:
            await caller.board("arena", {"name": "score", "merge": "max"})
        await list_shown_boards(page, "arena")


async def suggestions(page: Page, text: str) -> list[str]:
    """Type a text into the search of the page, from anywhere. Return what the search proposes for it."""
    await page.press("/")
    await page.wait_for("document.activeElement.id === 'search-input'")
    await page.type(text)
    await page.wait_for(f"document.querySelector('#search-input').value === {json.dumps(text)} && {SUGGESTED}.length")
    return list(await page.evaluate(SUGGESTED))


async def test_the_search_proposes_boards_families_and_owners_by_id_and_by_name(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}"))
    await page.wait_for("document.querySelector('#ranking a.owner')?.textContent === 'Ada Lovelace'")
    assert await suggestions(page, "lovel") == [f"Ada Lovelace {name_of(0)}, owner", "lovel look for this owner"]
    await page.press("Enter")
    await page.wait_for(f"location.hash === '#/owners/{name_of(0)}' && document.activeElement.tagName === 'H1'")
    assert (await suggestions(page, "ARENA"))[0] == "arena family"
    await page.press("Escape")
    assert await page.evaluate(f"{SUGGESTED}.length") == 0
    await page.press("Escape")
    found = await suggestions(page, name_of(700))
    assert found == [f"{name_of(700)} owner"]
    await page.press("Escape")
    await page.press("Escape")
    found = await suggestions(page, "tiny-1")
    assert found[:2] == ["tiny-10 board", "tiny-11 board"]
    await page.press("ArrowDown")
    assert await page.text("#search-list [aria-selected=true]") == await page.text("#search-list-1")
    await page.press("Enter")
    await page.wait_for("document.activeElement.textContent === 'tiny-11'")
    await suggestions(page, "hostile")
    await page.click("#search-list-0")
    await page.wait_for("document.querySelector('h1').textContent === 'hostile'")


async def test_a_phone_has_its_header_in_one_row_and_the_rest_in_a_menu(page: Page, node: Process) -> None:
    await page.show(PHONE)
    await page.goto(node.url)
    await page.wait_for(FIRST)
    assert await page.evaluate("document.querySelector('.bar').clientHeight") < 60
    await page.click("#menu-button")
    await page.click("#nav-node")
    await page.wait_for("document.querySelector('h1').textContent === 'Node'")
    assert await page.evaluate("document.querySelector('.bar').clientHeight") < 60


async def test_a_family_shows_its_periods_with_winners_and_leads_to_the_board_of_a_clan(
    page: Page, node: Process
) -> None:
    await page.goto(node.url)
    await page.wait_for_text("This week", within="section[aria-label=Families]")
    await page.click(f"a[data-key='family:{FAMILY}']")
    await page.wait_for_text("Weeks", within=".tabs a[aria-current]")
    await page.wait_for_text("Ada Lovelace", within=".cards")
    [card] = await page.texts(".card")
    assert "running" in card
    assert "3 ranked" in card
    await page.click("a[data-key='kind:all']")
    await page.wait_for_text("never ends", within=".card")
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
    await page.click("a[data-key=family]")
    await page.wait_for(f"document.querySelector('h1').textContent === '{FAMILY}'")


async def test_an_owner_is_found_on_all_boards(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/owners/{name_of(1)}"))
    await page.wait_for(f"{FIRST} === '{SEASON}'")
    [_, *of_family] = await page.texts("#boards tbody th a")
    assert all(board.startswith(FAMILY) for board in of_family)
    assert "Grace Hopper" in await page.wait_for(
        "document.querySelector('h1 .id') && document.querySelector('h1').textContent"
    )
    places = [(await page.texts(f"#boards tbody tr:nth-child({row}) li")) for row in range(1, 2 + len(of_family))]
    assert places[0] == [
        f"xp {xp_of(1):,}: rank 2 of 900 · {xp_of(0) - xp_of(1):,} more for rank 1",
        "lap 60.125: rank 1 of 810 · leads",
    ]
    assert await page.text("#boards td:nth-child(3)") == "clan clan 1"
    ranks = {board: place.split(" of ")[0] for board, [place] in zip(of_family, places[1:], strict=True)}
    assert ranks == {board: f"xp 99: rank {1 if board.endswith('clan=owl') else 2}" for board in of_family}
    await page.wait_for("document.querySelectorAll('#posts tbody tr').length === 2")
    posts = await page.texts("#posts tbody tr")
    assert "and 3 more boards" in posts[0]
    await page.click(f"a[data-key='board:{SEASON}']")
    await page.wait_for("document.querySelector('#owner .ranks')")
    await page.goto(view_url(node, "/owners/nobody"))
    await page.wait_for_text("an entry on no board", within="#boards")


async def test_an_unknown_board_leads_to_the_search(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards/easo"))
    await page.wait_for_text("There is no board “easo”")
    assert await list_shown_boards(page, SEASON) == [SEASON]
    assert await page.evaluate("document.querySelector('#contains').value") == "easo"
    await page.goto(view_url(node, "/elsewhere"))
    await page.wait_for_text("Nothing is at this address")
    await page.click("#view a")
    await page.wait_for(FIRST)


async def test_past_periods_show_their_winners_and_an_owner_the_ranks_in_them(page: Page, tmp_path: Path) -> None:
    clock = Clock(micros(datetime.now(UTC)) - 3 * DAY_US)
    service = Service(tmp_path, jobs="none")
    service.clock = clock
    async with service.running():
        spec = {"columns": [{"name": "xp", "merge": "max"}], "periods": ["day"], "grace_seconds": 0}
        await service.must("PUT", "/v1/families/daily", spec)
        for day, xp in enumerate((10, 30, 25, 40)):
            played = [{"owner": "ada", "stats": {"xp": xp}}, {"owner": "bob", "stats": {"xp": 20 + 2 * day}}]
            await service.must("POST", "/v1/families/daily/posts", {"posts": played})
            clock.now_us += DAY_US if day < 3 else 0
        await page.goto(f"{service.base}/#/families/daily")
        await page.wait_for("document.querySelectorAll('.card').length === 4")
        winners = await page.texts(".card .leaders li:first-child a")
        assert winners == ["ada", "ada", "ada", "bob"]
        assert await page.texts(".card .tag") == ["running", "final", "final", "final"]
        await page.click(".card:last-child .leaders a[data-key$=':ada']")
        await page.wait_for("document.querySelector('#owner .ranks b')?.textContent === '2'")
        await page.click("a[data-key=owner-boards]")
        await page.wait_for_text("2 → 1 → 1", within="#past")
        label = await page.evaluate("document.querySelector('#past svg').getAttribute('aria-label')")
        assert label == "xp in each day of daily, the oldest first: ranks 2, 1, 1"

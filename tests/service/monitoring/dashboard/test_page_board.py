"""Test the page of a board. The page shows the service's answers, follows changes, and displays names only as text."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page
from tests.service.climbed_board import EXACT_TOP, climbed_board
from tests.service.closing import close_as_of
from tests.service.monitoring.dashboard.shown_node import HOSTILE, SEASON, XP, name_of, new_board, post, view_url, xp_of
from tests.service.real_service import Caller, Process, Service, escaped

LIVE = "document.querySelector('#ranking .state.live')"
TOP = "#ranking tbody tr"
RANKS = "#owner .ranks li"
CARD = "document.querySelector('#owner .ranks') && document.querySelector('#owner table')"
ROUNDED_UP = """(() => { const sent = fetch; globalThis.fetch = async (target, options) => {
  const response = await sent(target, options);
  if (!target.includes("/positions")) return response;
  const text = await response.text();
  return new Response(text.replace(/"percentile":[0-9.]+/g, '"percentile":100.0'), response); }; })()"""
BROKEN = """(() => { globalThis.fetch = async () => new Response(
  new ReadableStream({ start(answer) { answer.error(new TypeError("network error")); } })); })()"""
SLIDERS = "[...document.querySelectorAll('input[type=range]')].filter((e) => e.checkVisibility()).map((e) => e.id)"
OWNERS = "[...document.querySelectorAll('#ranking a.owner')].map((each) => each.textContent)"


async def wait_for_top(page: Page, *owners: str) -> None:
    await page.wait_for(f"JSON.stringify({OWNERS}) === {json.dumps(json.dumps(owners, separators=(',', ':')))}")


async def read_answer(node: Process, path: str) -> Any:
    async with Caller(node.url) as caller:
        return await caller.get(path)


async def test_the_top_is_live_without_a_reload(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-live", ada=30, bob=20, cleo=10)
    await page.goto(view_url(node, "/boards/zz-live"))
    await wait_for_top(page, "ada", "bob", "cleo")
    await page.wait_for(LIVE)
    await page.evaluate("globalThis.sameDocument = true")
    await post(node.url, "zz-live", cleo=25, dan=5)
    await wait_for_top(page, "ada", "cleo", "bob", "dan")
    assert "up 1" in await page.evaluate(f"document.querySelectorAll('{TOP}')[1].textContent")
    await post(node.url, "zz-live", dan=99)
    await wait_for_top(page, "dan", "ada", "cleo", "bob")
    await page.wait_for("document.querySelector('#announcer').textContent === 'dan leads by xp with 99'")
    assert await page.evaluate("globalThis.sameDocument")


async def test_rows_show_what_decides_between_equal_values(page: Page, node: Process) -> None:
    columns = [
        {"name": "points", "merge": "max"},
        {"name": "time_s", "merge": "with", "of": "points", "best": "low", "sorted": False},
    ]
    async with Caller(node.url) as caller:
        for board, ties in (("zz-timed", ["time_s", "earliest"]), ("zz-tied", ["time_s"]), ("zz-early", "earliest")):
            await caller.must("PUT", f"/v1/leaderboards/{board}", {"columns": columns, "ties": ties})
            for owner, time_s in (("ada", 50), ("bob", 41)):
                body = {"owner": owner, "stats": {"points": 100, "time_s": time_s}, "at": "2026-01-01T10:00:00Z"}
                await caller.must("POST", f"/v1/leaderboards/{board}/posts", body)
    for board, heading, told in (
        ("zz-timed", "Rank Owner Value time_s Reached", "are ordered by time_s, then the one reached first is better"),
        ("zz-tied", "Rank Owner Value time_s Changed", "are ordered by time_s"),
        ("zz-early", "Rank Owner Value time_s Reached", "the one reached first is better"),
    ):
        await page.goto(view_url(node, f"/boards/{board}?column=points"))
        await page.wait_for(f"document.querySelector('h1').textContent === '{board}'")
        await wait_for_top(page, *(("ada", "bob") if board == "zz-early" else ("bob", "ada")))
        [shown] = await page.texts("#ranking thead tr")
        assert shown.split() == heading.split()
        facts = await page.texts("dl div")
        assert any(text.split("\n") == ["Equal values", told] for text in facts), facts
    times = "[...document.querySelectorAll('#ranking tbody time')].map((each) => each.dateTime)"
    assert await page.evaluate(times) == ["2026-01-01T10:00:00.000000Z"] * 2


async def test_rows_show_the_name_of_a_profile_beside_the_id(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}"))
    await page.wait_for("document.querySelector('#ranking a.owner')?.textContent === 'Ada Lovelace'")
    rows = await page.texts(TOP)
    assert name_of(0) in rows[0]
    assert f"{xp_of(0):,}" in rows[0]
    assert rows[3].split("\t")[:3] == ["4", name_of(3), f"{xp_of(3):,}"]


async def test_the_card_of_an_owner_marks_estimated_ranks_with_their_bracket(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}?column=xp&owner={name_of(401)}"))
    await page.wait_for(CARD)
    board = f"/v1/leaderboards/{SEASON}/entries/{name_of(401)}"
    [xp, lap] = (await read_answer(node, f"{board}/positions"))["positions"]
    assert not xp["exact"], "otherwise this test proves nothing"
    assert xp["low"] <= 402 <= xp["high"], "otherwise this test proves nothing"
    [first, second] = await page.texts(RANKS)
    assert f"≈ {xp['rank']}" in first
    assert f"between {xp['low']} and {xp['high']}" in first
    assert "of 900" in first
    assert str(lap["rank"]) in second
    marked = await page.texts("#owner tr[aria-current]")
    assert len(marked) == 1
    assert name_of(401) in marked[0]
    assert f"{xp_of(401):,}" in first
    assert f"{xp_of(400) - xp_of(401):,} more for rank ≈ " in first
    near = dict(row.split("\t")[1::-1] for row in await page.texts("#owner table tbody tr"))
    assert f"≈ {xp['rank']}" in near.values(), "the card shows one rank"
    assert "clan 2" in await page.text("#owner .facts")
    await page.wait_for(f"document.querySelector('#curve .mark text')?.textContent.startsWith('{name_of(401)}')")


async def test_the_card_of_an_owner_says_that_a_rank_is_counted(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}?column=xp&owner={name_of(11)}"))
    await page.wait_for(CARD)
    row = (await page.texts(RANKS))[0]
    assert row.split("\n")[1:3] == ["12", "of 900, at least as good as 98.7%"]
    assert "≈ 12" not in row
    assert "between" not in row
    assert "counted" in row


async def test_nobody_is_better_than_all(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}?column=xp&owner={name_of(0)}"))
    await page.wait_for(CARD)
    assert (await page.texts(RANKS))[0].split("\n")[1:3] == ["1", "of 900"]
    await page.evaluate(ROUNDED_UP)  # as the service rounds it on a board of millions
    await page.evaluate(f"location.hash = '/boards/{SEASON}?column=xp&owner={name_of(1)}'")
    await page.wait_for_text("of 900, at least as good as 99.999%", within="#owner")


async def test_the_card_of_an_owner_says_who_passed_it(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-passed", ada=30, bob=20)
    await page.goto(view_url(node, "/boards/zz-passed?owner=ada"))
    await page.wait_for("document.querySelector('#owner .state.live')")
    await page.wait_for(CARD)
    await post(node.url, "zz-passed", bob=40)
    await page.wait_for_text("Down 1 to rank 2 by xp, passed by bob", within="#owner")
    await page.wait_for("document.querySelector('#owner .ranks b').textContent === '2'")


async def test_the_page_says_that_an_owner_has_no_entry(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}?owner=nobody"))
    await page.wait_for_text("no entry on this board", within="#owner")
    await page.click("#owner a[data-key=close-owner]")
    await page.wait_for("!document.querySelector('#owner')")


async def test_every_name_of_an_owner_is_shown_as_text(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards/hostile"))
    await page.wait_for(f"document.querySelectorAll('{TOP}').length === {len(HOSTILE)}")
    shown = await page.evaluate("[...document.querySelectorAll('#ranking a.owner')].map((each) => each.title)")
    assert shown == list(HOSTILE)
    for row, owner in enumerate(HOSTILE, start=1):
        await page.click(f"{TOP}:nth-child({row}) a.owner")
        await page.wait_for(f"document.querySelector('#owner h2')?.textContent.includes({json.dumps(owner)})")
        assert await page.evaluate("document.querySelector('#find').value") == owner
        await page.wait_for(CARD)
        assert owner[:40] in await page.evaluate("document.querySelector('#owner .facts').textContent")
        assert await page.evaluate("document.querySelectorAll('#view :is(img, script, iframe, style)').length") == 0


@pytest.mark.parametrize("owner", [HOSTILE[0], HOSTILE[4]])
async def test_a_link_opens_the_owner_whatever_its_name(page: Page, node: Process, owner: str) -> None:
    await page.goto(view_url(node, f"/boards/hostile?owner={escaped(owner)}"))
    await page.wait_for(CARD)
    assert await page.evaluate("document.querySelector('#owner h2').textContent") == owner


async def test_the_curve_is_shown_as_a_picture_in_words_and_in_a_table(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}?column=lap&value=99.5"))
    await page.wait_for("document.querySelector('#curve svg .mark') && document.querySelector('#spread svg')")
    document = await read_answer(node, f"/v1/leaderboards/{SEASON}/rankings/lap/curve")
    knots = document["knots"]
    label = await page.evaluate("document.querySelector('#curve svg').getAttribute('aria-label')")
    assert f"{len(knots)} knots" in label
    assert "lower is better" in label
    assert "this value with 99.500" in label
    await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    rows = await page.texts("#curve details tbody tr")
    assert [row.split("\t")[1] for row in rows] == [f"{float(knot['value']):,.3f}" for knot in knots]
    [position] = (await read_answer(node, f"/v1/leaderboards/{SEASON}/rankings/lap/positions?values=99.5"))["positions"]
    told = await page.text("#curve .answer")
    assert f"between {position['low']} and {position['high']} of 810" in told
    bins = [row.split("\t") for row in await page.texts("#spread details tbody tr")]
    assert sum(int(entries.strip("≈ ").replace(",", "")) for *_, entries in bins) == 810
    assert all(one[1] == other[0] for one, other in pairwise(bins)), "each bin begins where the previous one ends"


@pytest.mark.parametrize("best", ["high", "low"])
async def test_the_distribution_has_a_band_for_each_tier(page: Page, node: Process, best: str) -> None:
    board = f"zz-tiers-{best}"
    tiers = [
        {"name": "diamond", "to_rank": 10}, {"name": "gold", "to_percent": 25}, {"name": "covered", "to_rank": 20},
        {"name": "silver", "value": 100},
    ]  # fmt: skip
    async with Caller(node.url) as caller:
        await caller.board(board, {"name": "xp", "best": best, "tiers": tiers})
        await caller.post(board, *({"owner": f"o{number}", "stats": {"xp": number}} for number in range(1, 201)))
        await page.poll_faster()
        await page.goto(view_url(node, f"/boards/{board}?owner={'o195' if best == 'high' else 'o6'}"))
        await page.wait_for_text("of 200, at least as good as 97.4%", within="#owner")
        assert await page.text("#owner .ranks .tag.tier.look-diamond") == "diamond"
        assert "diamond" in await page.text("#ranking tbody .tag")
        limits = {
            "high": "Tiers: diamond from 191, gold from 151, silver from 100.",
            "low": "Tiers: diamond up to 10, gold up to 50, silver up to 100.",
        }[best]
        await page.wait_for_text(limits, within="#spread")
        assert limits in await page.evaluate("document.querySelector('#spread svg').getAttribute('aria-label')")
        bands = "[...document.querySelectorAll('#spread .tier')].map((each) => Math.round(each.getAttribute('width')))"
        counted = await page.evaluate(bands)
        assert len(counted) == 3
        assert counted[1] / counted[0] == pytest.approx(4, rel=0.25)
        await caller.refresh(board, "xp")
        await page.wait_for("document.querySelector('#curve svg')")
        await page.wait_for(f"{bands}.length === 3")
        await caller.board(board, {"name": "xp", "best": best, "tiers": [{"name": "all", "to_percent": 100}]})
        await page.wait_for_text(f"Tiers: all {'from 1' if best == 'high' else 'up to 200'}.", within="#spread")
        await caller.board(board, {"name": "xp", "best": best})
        await page.wait_for(f"document.querySelector('#spread svg') && {bands}.length === 0")
        assert await page.text("#tiers") == ""


async def test_the_value_that_the_best_reach_is_found(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}"))
    await page.wait_for("document.querySelector('#curve svg') && document.querySelector('#spread svg')")
    await page.click("#share")
    await page.type("1")
    await page.press("Enter")
    await page.wait_for_text(f"The best 1 % have {xp_of(8):,} or more.", within="#curve")


async def test_the_shown_error_stays_small_after_owners_climb_past_the_top(page: Page, node: Process) -> None:
    state = await climbed_board(node.url, "zz-climbed")
    assert state["certificate"] > 1, "otherwise this test proves nothing"
    assert state["bound"] < 0.1, "otherwise this test proves nothing"
    await page.goto(view_url(node, "/boards/zz-climbed"))
    await page.wait_for("document.querySelector('#curve .facts')")
    facts = await page.text("#curve .facts")
    assert f"past rank {EXACT_TOP}" in facts
    assert f"{100 * float(state['certificate']):.2g}%" not in facts
    await new_board(node.url, "zz-counted", **{f"o{number}": number for number in range(20)})
    async with Caller(node.url) as caller:
        await caller.refresh("zz-counted", "xp")
    await page.goto(view_url(node, "/boards/zz-counted"))
    await page.wait_for_text("nothing, every rank is counted", within="#curve")


async def test_a_few_owners_have_no_pictures_and_without_a_curve_there_is_no_slider(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/boards/hostile"))
    await page.wait_for(f"document.querySelectorAll('{TOP}').length === {len(HOSTILE)}")
    assert await page.evaluate("document.querySelectorAll('#curve, #spread').length") == 0
    await page.poll_faster()
    await new_board(node.url, "zz-few", **{f"o{number}": number for number in range(19)})
    await page.goto(view_url(node, "/boards/zz-few"))
    await page.wait_for(f"document.querySelectorAll('{TOP}').length === 19")
    await post(node.url, "zz-few", **{f"p{number}": number for number in range(5)})
    await page.wait_for("document.querySelector('#spread svg')")
    assert await page.evaluate(SLIDERS) == ["spread-pointer"]


async def test_a_user_chooses_the_columns_of_a_board_and_the_page_remembers_them(page: Page, node: Process) -> None:
    columns = [
        {"name": "points", "merge": "max"}, {"name": "runs", "merge": "sum", "sorted": False},
        {"name": "replay", "type": "text", "merge": "with", "of": "points", "sorted": False},
    ]  # fmt: skip
    async with Caller(node.url) as caller:
        await caller.must("PUT", "/v1/leaderboards/zz-chosen", {"columns": columns})
        replay = "https://game.example/replays/1"
        await caller.post("zz-chosen", {"owner": "ada", "stats": {"points": 5, "runs": 7, "replay": replay}})
        await caller.post("zz-chosen", {"owner": "bob", "stats": {"points": 4, "replay": "javascript:alert(1)"}})
    headings = "document.querySelector('#ranking thead')?.innerText.trim().replace(/\\s+/g, ' ')"
    await page.goto(view_url(node, "/boards/zz-chosen"))
    await page.wait_for(f"{headings} === 'Rank Owner Value replay Changed'")
    links = "[...document.querySelectorAll('#ranking td a:not(.owner)')].map((e) => [e.href, e.rel, e.innerText])"
    assert await page.evaluate(links) == [[replay, "noreferrer noopener nofollow", "game.example/replays/1"]]
    await page.click("#ranking .chooser summary")
    await page.click("#ranking .chooser label:nth-of-type(1) input")
    await page.wait_for(f"{headings} === 'Rank Owner Value runs replay Changed'")
    await page.click("#ranking .chooser label:nth-of-type(3) input")
    await page.wait_for(f"{headings} === 'Rank Owner Value runs replay'")
    await page.goto("about:blank")
    await page.goto(view_url(node, "/boards/zz-chosen"))
    await page.wait_for(f"{headings} === 'Rank Owner Value runs replay'")


async def test_a_contest_tells_its_rules_and_who_would_get_its_prizes(page: Page, tmp_path: Path) -> None:
    async with Service(tmp_path, jobs="none").running() as service:
        end = datetime.now(UTC) + timedelta(hours=3)
        prizes = [
            {"name": "cup", "column": "xp", "to_rank": 1, "data": {"coins": 50}},
            {"name": "half", "column": "xp", "to_percent": 50},
        ]
        contest = {"closes_at": end.isoformat(), "grace_seconds": 0, "rewards": prizes, "entry": {"posts_max": 2}}
        await service.must("PUT", "/v1/leaderboards/cup", {"columns": [{**XP, "sorted": True}], **contest})
        await service.post_xp("cup", **{f"o{number}": number for number in range(12)})
        await page.goto(f"{service.base}/#/boards/cup")
        await page.wait_for_text("Who would get a prize now", within="#about")
        rows = [row.split("\t") for row in await page.texts("#about tbody tr")]
        assert rows == [
            ["cup", "the first by xp: coins 50", "o11"], ["half", "the best 50% by xp", "o10, o9, o8 and 2 others"],
        ]  # fmt: skip
        assert "Posts of an owner\nat most 2" in await page.text("#about")
        assert "closes in 3\u00a0h" in await page.text(".head")


async def test_an_answer_that_breaks_off_is_told_as_a_service_that_does_not_answer(page: Page, node: Process) -> None:
    for route in ("/boards/hostile", "/node"):
        await page.goto(view_url(node, "/elsewhere"))
        await page.evaluate(BROKEN)
        await page.evaluate(f"location.hash = '{route}'")
        await page.wait_for_text("The service does not answer.", within="#view")


async def test_a_board_that_closes_is_no_longer_called_live(page: Page, tmp_path: Path) -> None:
    async with Service(tmp_path, jobs="none").running() as service:
        end = datetime.now(UTC) + timedelta(hours=1)
        times = {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 3600}
        await service.must("PUT", "/v1/leaderboards/s", {"columns": [{**XP, "sorted": True}], **times})
        await service.post_xp("s", ada=30, bob=20)
        await page.poll_faster()
        await page.goto(f"{service.base}/#/boards/s?owner=bob")
        states = "[...document.querySelectorAll('#ranking .state, #owner .state')].map((each) => each.innerText).join()"
        await page.wait_for(f"{states} === 'Live,Live'")
        await close_as_of(service, end)
        await page.wait_for(f"{states} === 'Final,Final'")
        await close_as_of(service, end + timedelta(hours=2))
        await page.wait_for(f"{states} === 'Archived,Archived'")
        await wait_for_top(page, "ada", "bob")


async def test_the_pictures_tell_what_they_show_at_a_place_by_pointer_and_by_key(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}"))
    await page.wait_for("document.querySelector('#curve svg') && document.querySelector('#spread svg')")
    for name, told in (("curve", "→ rank"), ("spread", "owners, ranks from ≈")):
        readout = f"document.querySelector('#{name}-readout').textContent"
        assert await page.evaluate(readout) == ""
        await page.evaluate(f"document.querySelector('#{name}-pointer').focus()")
        middle = await page.wait_for(readout)
        assert told in middle
        for _ in range(5):
            await page.press("ArrowRight")
        await page.wait_for(f"{readout} !== {json.dumps(middle)}")
        box = f"document.querySelector('#{name} svg').getBoundingClientRect()"
        place = {"x": await page.evaluate(f"{box}.x + 90"), "y": await page.evaluate(f"{box}.y + 60")}
        before = await page.evaluate(readout)
        await page.command("Input.dispatchMouseEvent", type="mouseMoved", **place)
        await page.wait_for(f"{readout} !== {json.dumps(before)}")
        await page.wait_for(f"document.querySelector('#{name} .hover line')")
        assert (await page.text(f"label:has(#{name}-pointer)")).startswith("Read the ")


async def test_a_move_of_the_shown_owner_is_read_out_once(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-once", ada=30, bob=20)
    await page.goto(view_url(node, "/boards/zz-once?owner=bob"))
    await page.wait_for(f"document.querySelector('#owner .state.live') && {LIVE}")
    await page.evaluate("""globalThis.read = []; new MutationObserver(() =>
        read.push(document.querySelector('#announcer').textContent)).observe(document.querySelector('#announcer'),
        { childList: true })""")
    await post(node.url, "zz-once", bob=40)
    await wait_for_top(page, "bob", "ada")
    await page.wait_for("document.querySelector('#owner .ranks b').textContent === '1'")
    assert await page.evaluate("read") == ["bob: rank 1 by xp"]


async def test_an_open_table_stays_open_when_the_picture_is_redrawn(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}"))
    await page.click("#curve summary")
    await page.click("#spread summary")
    opened = "[...document.querySelectorAll('details')].filter((each) => each.open).length"
    assert await page.evaluate(opened) == 2
    before = await page.evaluate("document.querySelector('#curve svg').getAttribute('viewBox')")
    await page.show((700, 900))
    await page.wait_for(f"document.querySelector('#curve svg').getAttribute('viewBox') !== {json.dumps(before)}")
    assert await page.evaluate(opened) == 2


async def test_every_view_has_a_link_and_the_back_button_returns_to_it(page: Page, node: Process) -> None:
    await page.goto(view_url(node, f"/boards/{SEASON}?column=lap&owner={name_of(7)}"))
    await page.wait_for("document.querySelector('.tabs a[aria-current]')?.textContent.startsWith('lap')")
    await page.wait_for(f"document.querySelector('#owner h2').textContent === '{name_of(7)}'")
    await page.click("#ranking a.owner")
    await page.wait_for(f"document.querySelector('#owner h2').textContent !== '{name_of(7)}'")
    await page.click(".tabs a")
    await page.wait_for("document.querySelector('#ranking h2').textContent === 'Top by xp'")
    await page.click("#nav-node")
    await page.wait_for("document.querySelector('h1').textContent === 'Node'")
    for seen in ("Top by xp", "Top by lap"):
        await page.evaluate("history.back()")
        await page.wait_for(f"document.querySelector('#ranking h2')?.textContent === '{seen}'")
    await page.evaluate("history.back()")
    await page.wait_for(f"document.querySelector('#owner h2').textContent === '{name_of(7)}'")
    await page.click("#ranking nav a[data-key='page:Next']")
    await page.wait_for("document.querySelector('#ranking h2').textContent.startsWith('From rank 21')")
    await page.wait_for(f"document.querySelector('{TOP} th')?.textContent === '21'")


async def test_a_click_counts_even_if_its_row_is_redrawn_while_the_button_is_down(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-pressed", ada=30, bob=20)
    await page.goto(view_url(node, "/boards/zz-pressed"))
    await wait_for_top(page, "ada", "bob")
    await page.wait_for(LIVE)
    box = "document.querySelector('#ranking a.owner').getBoundingClientRect()"
    button = {"x": await page.evaluate(f"{box}.x + 5"), "y": await page.evaluate(f"{box}.y + 5")}
    button |= {"button": "left", "clickCount": 1}
    await page.command("Input.dispatchMouseEvent", type="mousePressed", **button)
    await post(node.url, "zz-pressed", cleo=40)
    await page.wait_for("document.querySelector('#announcer').textContent.startsWith('cleo leads')")
    await page.command("Input.dispatchMouseEvent", type="mouseReleased", **button)
    await page.wait_for("document.querySelector('#owner h2')?.textContent === 'ada'")
    await wait_for_top(page, "cleo", "ada", "bob")

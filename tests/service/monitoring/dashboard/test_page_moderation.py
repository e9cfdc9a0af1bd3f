"""Test what operators do on the page: each act happens once it is confirmed, and says what became of it."""

import json

import pytest

from tests.browser import Page
from tests.service.monitoring.dashboard.shown_node import SEASON, name_of, new_board, post, view_url
from tests.service.monitoring.dashboard.test_page_keys import Closed, closed, enter_key
from tests.service.real_service import Caller, Process

__all__ = ["closed"]  # a fixture
XP = {"name": "xp", "sorted": True, "merge": "sum"}
# Everything is there, so nothing moves any more.
DRAWN = "document.querySelector('#ranking :is(table, p)') && !document.querySelector('#view .loading')"

# Watches how high the facts of the curve are, whatever they say.
WATCH_FACTS = """globalThis.heights = new Set();
new ResizeObserver(([{ target }]) => heights.add(target.offsetHeight)).observe(
  document.querySelector("#curve .facts").parentElement)"""


async def open_moderation(page: Page, node: Process, board: str, *, of: str) -> None:
    """Open a board, with an owner if `board` ends with one, and what moderates this board or owner."""
    await page.goto(view_url(node, f"/boards/{board}"))
    await page.wait_for(DRAWN)
    await page.click(f"summary[data-key='moderation:{of}']")


async def act(page: Page, name: str, told: str) -> None:
    await page.click(f"button[data-key='act:{name}']")
    outcome = f"document.querySelector(\"output[data-key='outcome:{name}']\").textContent"
    await page.wait_for(f"{outcome}.includes({json.dumps(told)})")


async def give_reason(page: Page, name: str, reason: str) -> None:
    """Press the button of an act, check that nothing happens before it is confirmed, give a reason, and confirm it."""
    await act(page, name, "Nothing is changed yet")
    assert await page.evaluate(f"document.activeElement.id === {json.dumps(f'reason:{name}')}")
    await page.type(reason)
    await page.press("Enter")


async def confirm(page: Page, name: str, typed: str) -> None:
    """Type the text that an act asks for. Check that its button does not work before that."""
    disabled = f"document.querySelector(\"button[data-key='act:{name}']\").disabled"
    await page.click(f"[id='typed:{name}']")
    await page.type(typed[:-1])
    assert await page.evaluate(disabled)
    await page.type(typed[-1])
    assert not await page.evaluate(disabled)


async def test_a_curve_is_refreshed_and_audited(page: Page, node: Process) -> None:
    await open_moderation(page, node, SEASON, of="board")
    await page.evaluate(WATCH_FACTS)
    await act(page, "refresh", "Fitted from 900 entries")
    await act(page, "audit", "0 outside their bracket")
    assert len(await page.evaluate("[...heights]")) == 1, (
        "nothing below the facts moves, such as the button of the audit"
    )


async def test_a_board_is_emptied_and_deleted_once_its_name_was_typed(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-moderated", ada=3)
    await open_moderation(page, node, "zz-moderated", of="board")
    await confirm(page, "reset", "zz-moderated")
    await act(page, "reset", "The board is empty")
    await page.wait_for_text("Nobody is ranked here yet", within="#ranking")
    await confirm(page, "delete", "zz-moderated")
    await page.click("button[data-key='act:delete']")
    await page.wait_for("document.querySelector('h1').textContent === 'Overview'")
    async with Caller(node.url) as caller:
        assert (await caller.call("GET", "/v1/leaderboards/zz-moderated")).status == 404


async def test_a_cheater_is_hidden_and_shown_and_a_value_is_corrected(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-cheated", ada=30, mallory=999)
    await open_moderation(page, node, "zz-cheated?owner=mallory", of="owner")
    assert not await page.evaluate("document.querySelector(\"button[data-key='act:show']\")"), "nobody is hidden"
    await give_reason(page, "hide", "speed hack")
    await page.wait_for_text("Who hid the owner, and why", within="#owner")
    await page.wait_for("document.querySelectorAll('#ranking tbody tr').length === 1")
    await page.wait_for("!document.querySelector(\"button[data-key='act:hide']\")")
    await give_reason(page, "show", "a mistake")
    await page.wait_for("document.querySelector('#owner .ranks b')?.textContent === '1'")
    async with Caller(node.url) as caller:
        acts = (await caller.get("/v1/acts?owner=mallory"))["acts"]
    assert [(each["act"], each["reason"]) for each in acts[:2]] == [
        ("owner.shown", "a mistake"), ("owner.hidden", "speed hack"),
    ]  # fmt: skip
    await page.click("#correct-value")
    await page.type("20")
    await act(page, "correct", "xp: 999 → 20. Nothing is changed yet.")
    assert await page.text("#owner .ranks b") == "1"
    await act(page, "correct", "xp was 999 and is 20 now")
    await page.wait_for("document.querySelector('#owner .ranks b')?.textContent === '2'")
    await confirm(page, "erase-entry", "mallory")
    await act(page, "erase-entry", "The entry is erased")
    await page.wait_for_text("no entry on this board", within="#owner")


async def test_held_posts_are_judged_beside_the_history_of_their_owner(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-held", ada=30)
    held = [{"owner": "ada", "stats": {"xp": xp}, "post_id": f"p{xp}", "hold": True} for xp in (5, 900)]
    async with Caller(node.url) as caller:
        await caller.post("zz-held", *held)
    await page.goto(view_url(node, "/boards/zz-held"))
    await page.wait_for(DRAWN)
    await page.click("summary[data-key='held']")
    await page.wait_for_text("xp 900", within="#view")
    await give_reason(page, "accept:ada:p900", "")
    await page.wait_for("document.querySelector('#ranking tbody tr').textContent.includes('900')")
    await page.wait_for("!document.querySelector(\"button[data-key='act:accept:ada:p900']\")")
    await give_reason(page, "refuse:ada:p5", "")
    await page.wait_for_text("No post waits for a verdict", within="#view")


async def test_a_cheated_run_is_taken_back(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-voided", ada=30)
    async with Caller(node.url) as caller:
        for xp in (5, 999):
            await caller.post("zz-voided", {"owner": "cheat", "stats": {"xp": xp}, "post_id": f"run {xp}"})
        await caller.must("PUT", "/v1/families/zzf", {"columns": [XP], "periods": ["all", "week"]})
        run = {"owner": "cheat", "stats": {"xp": 7}, "post_id": "run 7"}
        await caller.must("POST", "/v1/families/zzf/posts", run)
    await page.goto(view_url(node, "/owners/cheat"))
    await page.wait_for("document.querySelectorAll('#posts tbody tr').length === 3")
    newest, cheated, _ = await page.texts("#posts tbody tr")
    assert "zzf:" in newest
    assert "and 1 more board" in newest
    assert "xp 999" in cheated
    assert "zz-voided → xp 999" in cheated
    await act(page, "void:run 999", "Takes xp 999 back on zz-voided. The entry becomes what the other posts make.")
    async with Caller(node.url) as caller:
        assert (await caller.get("/v1/leaderboards/zz-voided/entries/cheat"))["stats"]["xp"] == 999
    await page.type("impossible")
    await page.press("Enter")
    await page.wait_for_text("taken back", within="#posts tr.gone")
    await page.wait_for_text("xp 5: rank 2", within="#boards")
    await give_reason(page, "void:run 7", "")
    await page.wait_for("document.querySelectorAll('#posts tr.gone').length === 2")
    await page.wait_for("document.querySelectorAll('#boards tbody tr').length === 1")
    await page.wait_for_text("post voided", within="#acts")
    assert "impossible" in await page.text("#acts")


async def test_a_cheater_is_found_and_dealt_with_in_at_most_twelve_clicks(page: Page, node: Process) -> None:
    async with Caller(node.url) as caller:
        await caller.board("zz-farmed", XP)
        honest = [{"owner": f"fair-{number}", "stats": {"xp": 10 + number}} for number in range(30)]
        await caller.post("zz-farmed", *honest)
        loot = {"owner": "farmer", "stats": {"xp": 1_000_000}, "post_id": "loot"}
        await caller.post("zz-farmed", loot, {"owner": "farmer", "stats": {"xp": 20}, "post_id": "fair"})
    await page.goto(node.url)
    await page.wait_for("document.querySelector('.card')")
    await page.evaluate(
        "globalThis.clicks = 0; addEventListener('click', (event) => event.detail && (clicks += 1), true)"
    )
    await page.click("#nav-moderation")
    gain = "a[data-key='gain:zz-farmed:xp:farmer']"
    await page.wait_for(f'document.querySelector("{gain}")')
    assert "rank 1 of 31" in await page.evaluate(f'document.querySelector("{gain}").closest("tr").textContent')
    await page.click(gain)
    await page.wait_for("document.querySelectorAll('#posts tbody tr').length === 2")
    await give_reason(page, "void:loot", "an exploit")
    await page.wait_for_text("taken back", within="#posts tr.gone")
    await give_reason(page, "hide", "uses an exploit")
    await page.wait_for_text("Hidden since", within=".notice")
    assert "uses an exploit" in await page.text(".notice")
    await page.wait_for_text("owner hidden", within="#acts")
    assert "an exploit" in await page.text("#acts")
    assert await page.evaluate("clicks") <= 12
    await page.click("#nav-moderation")
    await page.wait_for_text("uses an exploit", within="#hidden")
    assert {"owner hidden", "post voided"} <= set(await page.texts("#acts td:nth-child(2)"))
    await give_reason(page, "show:farmer", "learned the lesson")
    await page.wait_for("!document.querySelector(\"a[data-key='hidden:farmer']\")")


async def test_held_posts_of_all_boards_are_judged_in_one_place(page: Page, node: Process) -> None:
    for board in ("zz-held-1", "zz-held-2"):
        await new_board(node.url, board, ada=30)
        async with Caller(node.url) as caller:
            await caller.post(board, {"owner": "ada", "stats": {"xp": 900}, "post_id": f"p {board}", "hold": True})
    await page.goto(view_url(node, "/moderation"))
    await page.wait_for_text("zz-held-1", within="#held")
    assert "zz-held-2" in await page.text("#held")
    await give_reason(page, "refuse:ada:p zz-held-1", "not true")
    await page.wait_for("!document.querySelector('#held').innerText.includes('zz-held-1')")
    await give_reason(page, "accept:ada:p zz-held-2", "")
    await page.wait_for("!document.querySelector('#held').innerText.includes('zz-held-2')")


async def test_moderation_needs_a_key_of_an_operator(page: Page, closed: Closed) -> None:
    await page.goto(f"{closed.url}/#/moderation")
    await enter_key(page, closed.reader)
    await page.wait_for_text("needs a key with the role ops", within="#acts")
    await page.evaluate("location.hash = '#/owners/ada'")
    await page.wait_for_text("xp 1: rank 1", within="#boards")
    assert await page.evaluate("document.querySelectorAll('.acts button').length") == 0


async def test_a_correction_begins_anew_when_the_value_moves_before_it_is_confirmed(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-moving", ada=30, bob=20)
    await open_moderation(page, node, "zz-moving?owner=ada", of="owner")
    await page.wait_for("document.querySelector('#owner .state.live')")
    await page.click("#correct-value")
    await page.type("5")
    await act(page, "correct", "xp: 30 → 5")
    await post(node.url, "zz-moving", ada=40)
    await page.wait_for_text("now 40", within="#owner")
    assert await page.text("button[data-key='act:correct']") == "Set the value"
    await act(page, "correct", "xp: 40 → 5")
    await act(page, "correct", "xp was 40 and is 5 now")


async def test_a_value_that_the_board_cannot_take_changes_nothing(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-kept", ada=30)
    await open_moderation(page, node, "zz-kept?owner=ada", of="owner")
    await page.click("#correct-value")
    await page.type("much")
    await act(page, "correct", "xp: 30 → much")
    await page.click("button[data-key='act:correct']")
    await page.wait_for("document.querySelector('output.fault')?.textContent")
    assert await page.text("#owner .ranks b") == "1"
    assert "30" in await page.text("#owner .ranks")


@pytest.mark.parametrize("name", ["refresh", "audit"])
async def test_without_a_key_of_an_operator_an_act_says_which_key_it_needs(
    page: Page, closed: Closed, name: str
) -> None:
    await page.goto(f"{closed.url}/#/boards/b")
    await enter_key(page, closed.reader)
    await page.wait_for(DRAWN)
    await page.click("summary[data-key='moderation:board']")
    await act(page, name, "needs a key with the role ops")


async def test_an_unknown_owner_is_looked_for_on_all_boards(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-elsewhere", ada=30)
    await page.goto(view_url(node, f"/boards/zz-elsewhere?owner={name_of(5)}"))
    await page.click("a[data-key=elsewhere]")
    await page.wait_for(f"document.querySelector('#boards tbody a')?.textContent === '{SEASON}'")

"""Test what operators do on the page: each act happens once it is confirmed, and says what became of it."""

import json

import pytest

from tests.browser import Page
from tests.service.monitoring.dashboard.shown_node import SEASON, name_of, new_board, post, view_url
from tests.service.monitoring.dashboard.test_page_keys import Closed, closed, enter_key
from tests.service.real_service import Caller, Process

__all__ = ["closed"]  # a fixture
XP = {"name": "xp", "sorted": True, "merge": "sum"}
# The pictures are there, so nothing moves any more.
DRAWN = "document.querySelector('#spread svg') && !document.querySelector('#view .loading')"

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
    await act(page, "hide", "The owner is hidden")
    await page.wait_for_text("This owner is hidden", within="#owner")
    await page.wait_for("document.querySelectorAll('#ranking tbody tr').length === 1")
    await act(page, "show", "The owner is shown")
    await page.wait_for("document.querySelector('#owner .ranks b')?.textContent === '1'")
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
    await act(page, "accept:ada:p900", "Nothing is changed yet")
    await page.click("button[data-key='act:accept:ada:p900']")
    await page.wait_for("document.querySelector('#ranking tbody tr').textContent.includes('900')")
    await page.wait_for("!document.querySelector(\"button[data-key='act:accept:ada:p900']\")")
    await act(page, "refuse:ada:p5", "Nothing is changed yet")
    await page.click("button[data-key='act:refuse:ada:p5']")
    await page.wait_for_text("No post waits for a verdict", within="#view")


async def test_a_cheated_run_is_taken_back(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-voided", ada=30)
    async with Caller(node.url) as caller:
        for xp in (5, 999):
            await caller.post("zz-voided", {"owner": "mallory", "stats": {"xp": xp}, "post_id": f"run {xp}"})
        await caller.must("PUT", "/v1/families/zzf", {"columns": [XP], "periods": ["all", "week"]})
        run = {"owner": "mallory", "stats": {"xp": 7}, "post_id": "run 7"}
        await caller.must("POST", "/v1/families/zzf/posts", run)
    await open_moderation(page, node, "zz-voided?owner=mallory", of="owner")
    await page.wait_for("document.querySelector('#owner .ranks b')?.textContent === '1'")
    await page.click("#void-id")
    await page.type("run 999")
    await act(page, "void", "Take back “run 999”?")
    assert await page.text("#owner .ranks b") == "1"
    await act(page, "void", "Taken back on 1 of 1 boards")
    await page.wait_for("document.querySelector('#owner .ranks b')?.textContent === '2'")
    await open_moderation(page, node, "zzf:all?owner=mallory", of="owner")
    await page.click("#void-id")
    await page.type("run 7")
    await act(page, "void", "Take back “run 7”?")
    await act(page, "void", "Taken back on 2 of 2 boards")
    await page.wait_for_text("no entry on this board", within="#owner")


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
    await page.wait_for(f"document.querySelector('#view tbody a')?.textContent === '{SEASON}'")

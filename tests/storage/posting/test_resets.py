"""Test that posts from before a reset are refused afterwards, whatever a process remembers."""

from functools import partial

import pytest
from msgspec.structs import replace

from storage.boards.families import reset_period
from storage.errors import BeforeResetError
from storage.leaves.totals import ALL_ENTRIES
from storage.periods import PeriodKind
from storage.posting.group_facts import KnownFacts
from storage.records import Family, Leaf, PostStatus
from tests.storage.boards.test_families import make_family_post
from tests.storage.deployment import NOW_US, Deployment, part, ranked

COLUMNS = (ranked("xp"),)


async def reset_week(deployment: Deployment) -> list[Leaf]:
    emptying = partial(reset_period, family_id="f", kind=PeriodKind.WEEK)
    _, _, leaves = await deployment.write(emptying, now_us=deployment.clock())
    return leaves


async def make_family(deployment: Deployment) -> Family:
    return await deployment.create_family(
        *COLUMNS, periods=(PeriodKind.ALL, PeriodKind.WEEK), facets=((), ("org",)), grace_s=30 * 86_400
    )


@pytest.mark.parametrize("remembers", [True, False])
async def test_a_post_from_before_the_reset_is_refused_by_every_process(
    deployment: Deployment, remembers: bool
) -> None:
    board = await deployment.create("b", *COLUMNS)
    before_us = deployment.clock()
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5}), at_us=before_us))
    other = KnownFacts()
    deployment.clock.now_us += 100
    emptied = await deployment.reset()
    await deployment.apply(deployment.post("ada", part(emptied, {"xp": 1})))  # ada has a row again
    if not remembers:
        deployment.known_facts = other
    for copy in (board, emptied) if deployment.table == "own" else (emptied,):
        late = await deployment.apply_one(deployment.post("ada", part(copy, {"xp": 5}), at_us=before_us))
        assert isinstance(late.error, BeforeResetError)
    for at_us in (deployment.clock(), None):
        taken = await deployment.apply_one(deployment.post("ada", part(emptied, {"xp": 5}), at_us=at_us))
        assert taken.status is PostStatus.APPLIED
    assert await deployment.value(emptied, "ada") == 11


async def test_a_post_without_a_time_is_never_late_even_if_clocks_differ(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    deployment.clock.now_us += 100
    board = await deployment.reset()
    deployment.clock.now_us -= 50
    outcome = await deployment.apply_one(deployment.post("ada", part(board, {"xp": 5})))
    assert outcome.status is PostStatus.APPLIED


async def test_the_times_of_resets_are_read_once_and_then_remembered(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.posting.group_facts.BOARDS_MAX", 2)
    boards = [await deployment.create(f"b{at}", *COLUMNS) for at in range(4)]
    for _ in range(3):
        for board in boards:
            await deployment.apply(deployment.post("ada", part(board, {"xp": 1}), at_us=NOW_US))
    [facts] = deployment.known_facts.facts.values()
    assert len(facts.resets) <= 2
    assert [await deployment.value(board, "ada") for board in boards] == [3] * 4


async def test_a_reset_of_the_week_empties_its_boards_alone(deployment: Deployment) -> None:
    family = await make_family(deployment)
    week = "2023-W46"
    boards = await deployment.make_boards("all", week, f"{week}:org=1", "2023-W45")
    for owner in ("ada", "bob"):
        await deployment.apply(make_family_post(deployment, family, owner, 5, *boards, post_id="p"))
    await deployment.hide("bob", *boards[:3])
    deployment.clock.now_us += 100
    emptied = await reset_week(deployment)
    assert sorted(leaf.id for leaf in emptied) == [f"f:{week}", f"f:{week}:org=1"]
    assert [await deployment.value(board, "ada") for board in boards] == [5, None, None, 5]
    for board in boards[1:3]:
        assert ALL_ENTRIES not in await deployment.totals(board)
    late = replace(make_family_post(deployment, family, "ada", 7, *boards[:2], post_id="q"), at_us=NOW_US)
    [[on_all, on_week]] = await deployment.apply(late)
    assert (on_all.status, on_all.stats) == (PostStatus.APPLIED, [12])
    assert isinstance(on_week.error, BeforeResetError), "only the week refuses the post"
    [again, _] = (await deployment.apply(make_family_post(deployment, family, "ada", 5, *boards, post_id="p")))[0][:2]
    assert again.status is PostStatus.DUPLICATE, "the ids of the family stay valid"


async def test_a_board_that_is_created_after_the_reset_refuses_earlier_posts_too(deployment: Deployment) -> None:
    family = await make_family(deployment)
    deployment.clock.now_us += 100
    await reset_week(deployment)
    [board, other] = await deployment.make_boards("2023-W46:org=9", "2023-W45:org=9")
    late = replace(make_family_post(deployment, family, "ada", 7, board, other), at_us=NOW_US)
    [[refused, taken]] = await deployment.apply(late)
    assert isinstance(refused.error, BeforeResetError)
    assert taken.status is PostStatus.APPLIED


async def test_a_voided_post_and_a_reset_of_the_week_do_not_bring_back_the_week(deployment: Deployment) -> None:
    family = await make_family(deployment)
    boards = await deployment.make_boards("all", "2023-W46")
    await deployment.apply(make_family_post(deployment, family, "ada", 5, *boards, post_id="p"))
    await reset_week(deployment)
    on_all, on_week = await deployment.void(family, "ada", "p")
    assert (on_all.stats, on_all.error) == (None, None)
    assert on_week.error is not None
    assert [await deployment.value(board, "ada") for board in boards] == [None, None]

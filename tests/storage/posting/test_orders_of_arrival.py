"""Test that equal values are ordered by when each was reached, whatever the order in which posts arrive."""

import random

import pytest

from storage.records import Merge, PostStatus, Ties
from tests.storage.arrivals import COLUMNS, TIE_COLUMNS, check_orders, draw_history, expect_standings, standings_of
from tests.storage.deployment import Deployment, keep_times, part, ranked, spec

HISTORIES = 300  # `benchmarks/orders_of_arrival.py` tries 10,000
S = 1_000_000
NEVER_US = 12_345


def test_any_order_of_arrival_gives_the_same_ranking_and_times() -> None:
    for seed in range(HISTORIES):
        check_orders(random.Random(seed))


@pytest.mark.parametrize("tie_columns", TIE_COLUMNS)
async def test_stored_rows_have_the_same_times_for_any_order_of_arrival(
    deployment: Deployment, tie_columns: tuple[str, ...]
) -> None:
    rng = random.Random(7)
    for number in range(2):
        columns = keep_times(spec(*COLUMNS, ties=Ties.EARLIEST)).columns
        board = await deployment.create(f"b{number}", *columns, ties=Ties.EARLIEST, tie_columns=tie_columns)
        posts = draw_history(rng, deployment.clock())
        rng.shuffle(posts)
        sent = [deployment.post(each.owner, part(board, each.stats), at_us=each.at_us) for each in posts]
        false = part(board, {"score": 99, "xp": 5, "lap": -9})
        sent.insert(len(sent) // 2, deployment.post(posts[0].owner, false, post_id="false", at_us=NEVER_US))
        while sent:  # the posts of a group are merged in memory
            size = rng.randrange(1, 5)
            await deployment.apply(*sent[:size])
            del sent[:size]
        [voided] = await deployment.void(board, posts[0].owner, "false")
        assert voided.error is None
        expected = expect_standings(board.spec, posts)

        async def read() -> object:
            rows = {owner: list(cells) for owner, _, *cells in await deployment.list_rows(board)}  # noqa: B023
            return standings_of(board.spec, rows)  # noqa: B023

        assert await read() == expected
        await deployment.rebuild(board.id)
        assert await read() == expected


async def test_an_equal_score_of_an_earlier_time_is_applied_though_it_arrives_later(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("score", merge=Merge.MAX), ties=Ties.EARLIEST)
    eleven, ten, nine = (deployment.clock() + each * S for each in (-1, -2, -3))
    posts = [("ada", eleven), ("bob", ten), ("ada", nine), ("ada", ten)]
    outcomes = [
        (await deployment.apply_one(deployment.post(owner, part(board, {"score": 100}), at_us=at_us))).status
        for owner, at_us in posts
    ]
    assert outcomes == [PostStatus.APPLIED] * 3 + [PostStatus.UNCHANGED]
    rows = await deployment.rows(board, ["ada", "bob"])
    first = sorted(rows.values(), key=deployment.entries(board).rankings[0].order_of)[0]
    assert first.owner == "ada", "she had 100 at nine"


async def test_a_sum_is_reached_with_the_latest_of_its_posts_even_if_an_earlier_one_arrives_last(
    deployment: Deployment,
) -> None:
    board = await deployment.create("b", ranked("xp"), ties=Ties.EARLIEST)
    eleven, ten, nine = (deployment.clock() + each * S for each in (-1, -2, -3))
    for owner, xp, at_us in (("ada", 1, eleven), ("bob", 2, ten), ("ada", 1, nine)):
        await deployment.apply(deployment.post(owner, part(board, {"xp": xp}), at_us=at_us))
    rows = await deployment.rows(board, ["ada", "bob"])
    first = sorted(rows.values(), key=deployment.entries(board).rankings[0].order_of)[0]
    assert first.owner == "bob", "ada has had 2 only since eleven"

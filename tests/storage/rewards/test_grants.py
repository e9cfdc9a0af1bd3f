"""Test that each owner gets the rewards that a plain model says, once, and that one request claims a grant."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.archive.board_closing import shut_boards
from storage.errors import UnknownGrantError
from storage.events.event_log import make_follower, read_events
from storage.histories.owner_merges import OwnerMerge
from storage.leaves.totals import read_board_totals
from storage.records import Best, Board, Each, FamilySpec, Merge, Rewards, RewardSpec, Season, Ties
from storage.rewards import grants
from storage.rewards.grant_making import find_oldest_walk, has_walk, read_rewards, read_steps, store_step
from storage.rewards.grant_walk import GrantWalk, NewGrant, WalkMark
from storage.rewards.grants import Grant
from storage.store import CONTROL, Program
from tests.storage.backends import OpenStore
from tests.storage.deployment import NOW_US, Deployment, Session, counter, part, ranked, spec

S = 1_000_000
END_US = NOW_US + 1_000 * S
COLUMNS = (
    ranked("xp", min_scaled=0, max_scaled=1_000),
    ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=2, min_scaled=0, max_scaled=1_000),
    counter("shots", best=Best.LOW),
)
SEASON = Season(None, END_US, 0, None)
FIRST = (2**62, 0)


@dataclass
class Player:
    name: str
    values: dict[str, int]
    at_us: int  # when all values were reached


def reward(name: str, column: str = "xp", **limit: float) -> RewardSpec:
    return RewardSpec(name, column, data=f'{{"item":"{name}"}}', **limit)  # type: ignore[arg-type]


def rank_players(players: Sequence[Player], column: str, ties: Ties, tie_columns: Sequence[str]) -> dict[str, int]:
    """Return the rank of each player with a value in a column."""
    ranked_ones = [each for each in players if column in each.values]
    sign = 1 if column == "lap" else -1

    def key(each: Player) -> tuple[int, ...]:
        orders = [sign * each.values[column], *(each.values.get(name, 10**9) for name in tie_columns if name != column)]
        return (*orders, each.at_us) if ties is Ties.EARLIEST else tuple(orders)

    places = sorted(ranked_ones, key=lambda each: (key(each), each.name))
    if ties is Ties.EARLIEST:
        return {each.name: rank for rank, each in enumerate(places, 1)}
    return {each.name: 1 + sum(key(other) < key(each) for other in places) for each in places}


def grant_plainly(
    players: Sequence[Player], rewards: Rewards, ties: Ties, tie_columns: Sequence[str] = ()
) -> list[tuple[str, str, int]]:
    """Return who gets which reward, with the rank, in the order of the grants."""
    found: list[tuple[str, str, int]] = []
    by_name = {each.name: each for each in players}
    for each in rewards.listed:
        ranks = rank_players(players, each.column, ties, tie_columns)
        for name in sorted(ranks, key=lambda name: (ranks[name], name)):
            value, rank = by_name[name].values[each.column], ranks[name]
            if each.value_scaled is not None:
                fits = value <= each.value_scaled if each.column == "lap" else value >= each.value_scaled
            elif each.to_percent is not None:
                fits = rank <= ceil(Fraction(str(each.to_percent)) * len(ranks) / 100)
            else:
                fits = rank <= (each.to_rank or 0)
            if fits and not (rewards.each is Each.FIRST and any(name == owner for owner, _, _ in found)):
                found.append((name, each.name, rank))
    return found


async def post_values(deployment: Deployment, board: Board, players: Sequence[Player]) -> None:
    await deployment.apply(
        *(deployment.post(each.name, part(board, each.values), at_us=each.at_us) for each in players)
    )


async def close(deployment: Deployment, *boards: Board) -> list[Board]:
    deployment.clock.now_us = max(deployment.clock.now_us, END_US)
    return await deployment.write(shut_boards, boards, now_us=deployment.clock())


async def make_step(deployment: Deployment, board: Board, rows_max: int = 1_000) -> int | None:
    """Read and store grants. Return how many were stored, or None if all are made."""
    step_rows = max(1, rows_max // 2)
    reading = partial(read_steps, board, deployment.entries, rows_max=rows_max, step_rows=step_rows)
    steps = await deployment.read(reading)
    for step in steps or ():
        assert await deployment.write(store_step, board, step, now_us=deployment.clock())
        assert not await deployment.write(store_step, board, step, now_us=deployment.clock())
    return None if steps is None else sum(len(step.grants) for step in steps)


async def make_all(deployment: Deployment, board: Board, rows_max: int = 1_000) -> None:
    while await make_step(deployment, board, rows_max) is not None:
        assert rows_max > 0


async def list_grants(deployment: Deployment, board: Board) -> list[Grant]:
    return await deployment.read(grants.list_of_board, board.key, after=0, limit=10_000)


async def list_granted(deployment: Deployment, board: Board) -> list[tuple[str, str, int]]:
    found = await list_grants(deployment, board)
    assert [each.number for each in found] == sorted(each.number for each in found)
    return [(each.owner, each.reward, each.rank) for each in found]


async def preview(deployment: Deployment, board: Board, rows_max: int) -> list[tuple[str, str, int]]:
    """Return who would get what, page by page."""
    mark, found = WalkMark(), []
    rewards = (await deployment.read(read_rewards, [board]))[board.key]
    walk = GrantWalk(board, deployment.entries(board).rankings, rewards)

    def read_page() -> Program[tuple[list[NewGrant], WalkMark]]:
        return (yield from walk.read_step(mark, rows_max, (yield from read_board_totals(board))))

    while mark.reward < len(rewards.listed):
        page, mark = await deployment.store.at(board.reading_partition).read(read_page)
        found += [(each.owner, rewards.listed[each.reward].name, each.rank) for each in page]
    return found


LIMITS = st.one_of(
    st.tuples(st.just("to_rank"), st.integers(1, 30)),
    st.tuples(st.just("to_percent"), st.sampled_from([0.5, 10, 33.3, 50, 100])),
    st.tuples(st.just("value_scaled"), st.integers(0, 12)),
)
REWARDS = st.builds(
    lambda drawn, each: Rewards(
        tuple(reward(f"r{number}", column, **{name: limit}) for number, (column, (name, limit)) in enumerate(drawn)),
        each,
    ),
    st.lists(st.tuples(st.sampled_from(["xp", "lap"]), LIMITS), min_size=1, max_size=4),
    st.sampled_from(Each),
)
VALUES = st.dictionaries(st.sampled_from(["xp", "lap", "shots"]), st.integers(0, 8), min_size=1)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(VALUES, min_size=1, max_size=24),
    rewards=REWARDS,
    ties=st.sampled_from(
        [(Ties.SHARED, ()), (Ties.EARLIEST, ()), (Ties.SHARED, ("shots",)), (Ties.EARLIEST, ("lap",))]
    ),
    gone=st.sets(st.integers(0, 23), max_size=3),
    unseen=st.sets(st.integers(0, 23), max_size=3),
    rows_max=st.integers(1, 9),
)
def test_owners_get_what_the_plain_model_says(
    session: Session, values: list[dict[str, int]], rewards: Rewards, ties: tuple[Ties, tuple[str, ...]],
    gone: set[int], unseen: set[int], rows_max: int,
) -> None:  # fmt: skip
    async def check() -> None:
        deployment = session.deployment
        session._boards += 1
        deployment.clock.now_us = NOW_US
        name = f"b{session._boards}"
        board = await deployment.create(
            name, *COLUMNS, ties=ties[0], tie_columns=ties[1], season=SEASON, rewards=rewards
        )
        players = [Player(f"{name}-{at:02}", each, NOW_US - at % 3) for at, each in enumerate(values)]
        await post_values(deployment, board, players)
        for at in gone & set(range(len(players))):
            await deployment.erase(board, players[at].name)
        for at in unseen & set(range(len(players))):
            await deployment.change_owner(players[at].name).set_hidden(hide=True)
        visible = [each for at, each in enumerate(players) if at not in gone | unseen]
        expected = grant_plainly(visible, rewards, *ties)
        assert await preview(deployment, board, rows_max) == expected
        assert [each.id for each in await close(deployment, board)] == [name]
        assert await deployment.read(has_walk, board.key)
        assert await deployment.read(find_oldest_walk) == END_US
        await make_all(deployment, board, rows_max)
        assert await list_granted(deployment, board) == expected
        assert await deployment.read(find_oldest_walk) is None
        await deployment.delete(name)  # the next example need not look through it

    session.run(check())


async def make_season(deployment: Deployment, *rewards: RewardSpec, owners: int = 6, each: Each = Each.FIRST) -> Board:
    board = await deployment.create("b", *COLUMNS, season=SEASON, rewards=Rewards(rewards, each))
    await post_values(deployment, board, [Player(f"o{at}", {"xp": at}, NOW_US) for at in range(owners)])
    return board


async def test_boards_of_a_family_have_the_rewards_of_their_period_when_they_close(deployment: Deployment) -> None:
    if deployment.segments > 1:
        return  # the boards of a family have none
    board = deployment.laid_out(spec(*COLUMNS))

    async def put(*names: str) -> None:
        listed = tuple(("day", Rewards((reward(name, to_rank=1),), Each.FIRST)) for name in names)
        await deployment.put_family(FamilySpec(board, ("all", "day"), "UTC", ((),), 0, (), rewards=listed))

    await put("gold")
    endless, day = await deployment.make_boards("all", "2023-11-14")
    for each in (endless, day):
        await post_values(deployment, each, [Player("ada", {"xp": 7}, NOW_US)])
    await put("tin")
    deployment.clock.now_us += 2 * 86_400 * S
    [closed] = await close(deployment, day)
    await put()
    await make_all(deployment, closed)
    assert await list_granted(deployment, closed) == [("ada", "tin", 1)]
    assert await list_granted(deployment, endless) == []


async def test_one_request_claims_a_grant_and_all_learn_of_it(deployment: Deployment, open_store: OpenStore) -> None:
    board = await make_season(deployment, reward("gold", to_rank=2))
    await close(deployment, board)
    steps = await deployment.read(read_steps, board, deployment.entries, rows_max=9, step_rows=9)
    await deployment.erase(board, "o0")
    assert steps
    assert not await deployment.write(store_step, board, steps[0], now_us=1), "the board has changed since"
    await make_all(deployment, board)
    first, second = await list_grants(deployment, board)
    stores = deployment.store, await open_store() if deployment.store.dialect.row_locks else deployment.store

    async def claim(number: int) -> tuple[Grant, bool]:
        return await stores[number % 2].at(CONTROL).write(lambda: grants.claim_grant(first[:2], now_us=number))

    claimed = await asyncio.gather(*map(claim, range(1, 11)))
    assert sum(is_first for _, is_first in claimed) == 1
    assert len({grant for grant, _ in claimed}) == 1
    assert claimed[0][0].owner == "o5"
    for claimed_too, expected in ((None, [first[:2]]), (True, [first[:2]]), (False, [])):
        found = await deployment.read(grants.list_of_owner, "o5", before=FIRST, limit=9, claimed=claimed_too)
        assert [each[:2] for each in found] == expected
    assert not (await deployment.read(grants.list_of_owner, "o5", before=first[:2], limit=9))
    for wrong in ((board.key, 3), (board.key + 1, 1)):
        with pytest.raises(UnknownGrantError):
            await deployment.write(grants.claim_grant, wrong, now_us=1)
    for partition in range(deployment.store.partitions):
        follower, store = make_follower(partition), deployment.store.at(partition)
        await store.write(partial(follower.store_page, await store.read(follower.read_page)))
    events = await deployment.read(read_events, 0, limit=100)
    assert [(each.type, each.grant, each.owner) for each in events if each.type.startswith("grant")] == [
        ("grant.claimed", first.id, "o5"), ("grants.made", None, None),
    ]  # fmt: skip
    await deployment.change_owner("o5").erase()
    events = await deployment.read(read_events, 0, limit=100)
    assert [each.owner for each in events if each.grant] == [None]
    assert [each[:2] for each in await list_grants(deployment, board)] == [second[:2]]


async def test_grants_follow_an_owner_who_is_merged_and_outlive_their_board(deployment: Deployment) -> None:
    board = await make_season(deployment, reward("all", to_percent=100))
    await close(deployment, board)
    assert await make_step(deployment, board, 2) == 2
    await deployment.merge("o5", "new")
    # A merge that a process was killed in has not moved all entries: the rest of the grants are for the new owner, too.
    await deployment.write(OwnerMerge(owner="o0", into="new", by_posts=True, now_us=1).begin)
    await deployment.change_owner("o1").erase()
    await make_all(deployment, board)
    assert [each.owner for each in await list_grants(deployment, board)] == ["new", "o4", "o3", "o2", "new"]
    await deployment.delete()
    assert len(await deployment.read(grants.list_of_owner, "new", before=FIRST, limit=9)) == 2
    again = await make_season(deployment, reward("all", to_percent=100), owners=1)
    deployment.clock.now_us += 1
    await close(deployment, again)
    await deployment.delete()
    assert await deployment.read(find_oldest_walk) is None
    for expected in (2, 2, 1, 1, 1, 0):  # the last steps delete the names of the rewards of both boards
        assert await deployment.write(grants.prune_grants, before_us=2 * END_US, rows_max=2) == expected

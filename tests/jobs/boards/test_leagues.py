"""Test that the closing job moves every owner of a league once, whenever processes die, and seats those who wait."""

from dataclasses import replace
from functools import partial

import pytest

from storage.boards.shared_tables import sweep_rows
from storage.events.event_log import make_follower, read_events
from storage.leagues.cohorts import split_cohort
from storage.records import DivisionSpec, Each, Rewards, RewardSpec
from tests.jobs.boards.test_archive import KilledError, MortalStore
from tests.jobs.closing import close_all, make_close_job, run_step
from tests.jobs.world import World
from tests.storage.leagues.test_leagues import (
    GRACE_S,
    HOUR_US,
    START_US,
    create_league,
    make_post,
    make_spec,
    read_seats,
    read_standings,
)
from tests.storage.rewards.test_grants import list_granted

OWNERS = [f"o{number}" for number in range(11)]
DIVISIONS = (DivisionSpec("bronze", 1), DivisionSpec("silver", 1, 1), DivisionSpec("gold", 0, 1))


@pytest.mark.parametrize("after", [False, True])
async def test_owners_move_once_at_whichever_write_a_process_dies(world: World, after: bool) -> None:
    deployment, calls, died = world.deployment, 0, True
    while died:
        calls += 1
        deployment.clock.now_us = START_US + calls * 24 * HOUR_US
        family = await create_league(deployment, f"l{calls}", make_spec(size=4, divisions=DIVISIONS))
        number = family.spec.calendar.period_at("round", deployment.clock()).number  # type: ignore[union-attr]
        names = [f"round-{number}", f"round-{(number or 0) + 1}"]
        first, second = await deployment.make_boards(*names, family_id=family.id)
        posts = [make_post(deployment, family, first, owner, at + 1) for at, owner in enumerate(OWNERS)]
        await deployment.apply(*posts)
        world.advance(3_600)
        await deployment.apply(*[make_post(deployment, family, second, owner, 1) for owner in OWNERS])
        assert {place.division for place in (await read_seats(deployment, [second]))[second.key].values()} == {None}
        world.advance(GRACE_S)
        process = world.beside()
        process.store = MortalStore(process, calls=calls, after=after)  # type: ignore[assignment]
        try:
            await close_all(process)
            died = False
        except KilledError:
            world.advance(2_000)  # the lease of the dead process expires
            await close_all(world)
        risen = {"o3", "o7", "o10"}  # the best of each cohort: four, four and three seats
        expected = {owner: (int(owner in risen), first.gate.ends_us) for owner in OWNERS}
        assert await read_standings(deployment, family) == expected
        seats = await read_seats(deployment, [first, second])
        assert {owner: place.moved for owner, place in seats[first.key].items()} == {
            owner: int(owner in risen) for owner in OWNERS
        }
        assert {owner: split_cohort(place.cohort)[0] for owner, place in seats[second.key].items()} == {
            owner: int(owner in risen) for owner in OWNERS
        }
    assert calls > 4


async def test_an_earlier_period_is_settled_first(world: World) -> None:
    deployment = world.deployment
    deployment.clock.now_us = START_US
    family = await create_league(deployment, "l", make_spec(size=4, divisions=DIVISIONS))
    number = family.spec.calendar.period_at("round", START_US).number or 0  # type: ignore[union-attr]
    boards = await deployment.make_boards(*(f"round-{number + at}" for at in range(2)), family_id="l")
    for board in boards:
        await deployment.apply(*[make_post(deployment, family, board, owner, at) for at, owner in enumerate(OWNERS)])
        world.advance(3_600)
    world.advance(GRACE_S)
    await close_all(world)
    world.advance(2)
    await close_all(world)
    seats = await read_seats(deployment, boards)
    assert all(place.moved is not None for theirs in seats.values() for place in theirs.values())
    assert (await read_standings(deployment, family))["o10"] == (2, boards[1].gate.ends_us)
    assert not await run_step(world, make_close_job(world))


async def test_the_best_of_each_cohort_get_rewards_once(world: World) -> None:
    deployment = world.deployment
    deployment.clock.now_us = START_US
    listed = (RewardSpec("cup", "xp", to_rank=1, division=1), RewardSpec("medal", "xp", to_rank=2))
    wanted = replace(make_spec(size=4, divisions=DIVISIONS), rewards=(("round", Rewards(listed, Each.FIRST)),))
    family = await create_league(deployment, "l", wanted)
    number = family.spec.calendar.period_at("round", START_US).number  # type: ignore[union-attr]
    [board] = await deployment.make_boards(f"round-{number}", family_id="l")
    posts = [make_post(deployment, family, board, owner, at, division=at % 2) for at, owner in enumerate(OWNERS)]
    await deployment.apply(*posts)
    await deployment.hide("o10", board)
    world.advance(3_600 + GRACE_S)
    await close_all(world)
    # Bronze has o0 to o6 by twos, and o8 and o10, of whom one is hidden. Silver has o1 to o7 by twos, and o9.
    expected = [("o6", "medal", 1), ("o4", "medal", 2), ("o7", "cup", 1), ("o5", "medal", 2)]
    expected += [("o8", "medal", 1), ("o9", "cup", 1)]
    assert await list_granted(deployment, board) == expected
    follower = make_follower(deployment.partition)
    store = world.store.at(deployment.partition)
    while (page := await store.read(follower.read_page)).before != page.until:
        await store.write(partial(follower.store_page, page))
    types = [event.type for event in await deployment.read(read_events, 0, limit=100)]
    assert types.count("league.closed") == types.count("grants.made") == 1


async def test_a_period_past_keep_gives_up_its_cohorts_and_owners_keep_their_divisions(world: World) -> None:
    deployment = world.deployment
    deployment.clock.now_us = START_US
    wanted = replace(make_spec(size=4, divisions=DIVISIONS), keep=(("round", 1),))
    family = await create_league(deployment, "l", wanted)
    number = family.spec.calendar.period_at("round", START_US).number or 0  # type: ignore[union-attr]
    boards = await deployment.make_boards(*(f"round-{number + at}" for at in range(2)), family_id="l")
    for board in boards:
        await deployment.apply(*[make_post(deployment, family, board, owner, at) for at, owner in enumerate(OWNERS)])
        world.advance(3_600 + GRACE_S)
        await close_all(world)
        world.advance(-GRACE_S)
    world.advance(GRACE_S)
    await close_all(world)
    assert [(await deployment.find(board.id)).gate.archived_us is not None for board in boards] == [True, False]
    while await world.store.at(deployment.partition).write(partial(sweep_rows, rows_max=3)):
        pass
    seats = await read_seats(deployment, boards)
    assert [sorted(seats[board.key]) for board in boards] == [[], sorted(OWNERS)]
    assert (await read_standings(deployment, family)).keys() == {*OWNERS}

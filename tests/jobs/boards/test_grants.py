"""Test that a closed board gets its grants before its archive, each exactly once, whenever processes die."""

import pytest

from storage.log.bundles import ChangeKind
from storage.log.change_log import LogPages
from storage.log.partition_journal import COLUMNS as JOURNAL_COLUMNS
from storage.log.partition_journal import JournalRow, changes_of
from storage.records import Each, Rewards, Season
from tests.jobs.boards.test_archive import KilledError, MortalStore
from tests.jobs.closing import close_all, make_close_job, run_step
from tests.jobs.world import World
from tests.storage.deployment import Deployment
from tests.storage.rewards.test_grants import COLUMNS, Player, grant_plainly, list_granted, post_values, reward

OWNERS = 12
REWARDS = Rewards(
    (reward("gold", to_rank=2), reward("fast", "lap", to_percent=30), reward("all", value_scaled=1)), Each.FIRST
)
LAG = "rankcurve_grants_lag_seconds"


async def make_season(world: World, name: str) -> list[Player]:
    """Create a board that ends in 10 s and keeps its rows for 5 s. Return the owners."""
    deployment, now_us = world.deployment, world.deployment.clock.now_us
    season = Season(None, now_us + 10_000_000, 0, 5)
    board = await deployment.create(name, *COLUMNS, season=season, rewards=REWARDS)
    players = [Player(f"o{at:02}", {"xp": at // 2, "lap": at % 5}, now_us) for at in range(OWNERS)]
    await post_values(deployment, board, players)
    return players


@pytest.mark.parametrize("after", [False, True])
async def test_grants_are_made_once_at_whichever_write_a_process_dies(world: World, after: bool) -> None:
    deployment, calls, died = world.deployment, 0, True
    while died:
        calls += 1
        players = await make_season(world, f"b{calls}")
        world.advance(16)
        process = world.beside()
        process.store = MortalStore(process, calls=calls, after=after)  # type: ignore[assignment]
        try:
            await close_all(process)
            died = False
        except KilledError:
            world.advance(2_000)  # the lease of the dead process expires
            await close_all(world)
        board = await deployment.find(f"b{calls}")
        assert board.gate.archived_us is not None
        assert await list_granted(deployment, board) == grant_plainly(players, REWARDS, board.spec.ties)
        kinds = [each.record.kind for each in await read_events(deployment) if each.record is not None]
        assert kinds.count(ChangeKind.GRANTED) == kinds.count(ChangeKind.ARCHIVED) == calls
    assert calls > 12


async def read_events(deployment: Deployment) -> list[JournalRow]:
    bundles = await deployment.read(lambda: LogPages(*JOURNAL_COLUMNS).read_rows(0, limit=1_000))
    return [change for bundle in bundles for change in changes_of(bundle)]


async def test_a_board_that_waits_for_grants_is_not_archived(world: World) -> None:
    await make_season(world, "b")
    world.advance(16)
    job = make_close_job(world)
    assert await run_step(world, job)  # shuts the board and makes no grant
    for _ in range(3):
        world.advance(1)
        assert await run_step(world, job)
        assert (await world.deployment.find("b")).gate.archived_us is None
    assert world.meter.gauges[LAG] == 3
    await close_all(world)
    assert (await world.deployment.find("b")).gate.archived_us is not None
    assert world.meter.counts["rankcurve_grants_made"] == OWNERS

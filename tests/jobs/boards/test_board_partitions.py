"""Test that every partition is pruned, and that boards of all partitions close and are archived."""

import random

import pytest

from storage.archive.archive_reader import ArchivedEntries
from storage.errors import UnknownColumnError
from storage.queue.outcomes import find_rejected, store_rejected
from storage.records import Board, PostStatus, Season
from storage.store import CONTROL
from tests.jobs.closing import close_all, make_close_job
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import LIMITS, PREDICTOR, World
from tests.schemas import PARTITIONS
from tests.storage.deployment import part, ranked

pytestmark = pytest.mark.parametrize("world", ["partitions"], indirect=True)
FIRST, LAST = 0, PARTITIONS - 1
S = 1_000_000


async def create_in(world: World, partition: int, board_id: str, *, entries: int, season: Season | None) -> Board:
    parts = {"predictor": PREDICTOR, "season": season, "partition": partition}
    board = await world.deployment.create(board_id, ranked("xp"), **parts)  # type: ignore[arg-type]
    world.catalog.keep_board(board)
    rng = random.Random(entries)
    await world.post(board, {f"o{number}": rng.randrange(1_000) for number in range(entries)}, "xp")
    return board


async def count_bundles(world: World, partition: int) -> int:
    return len(await world.deployment.read_log(world.store.at(partition)))


async def test_each_partition_is_pruned_by_its_own_job(world: World) -> None:
    boards = [await create_in(world, partition, f"b{partition}", entries=1, season=None) for partition in (FIRST, LAST)]
    for number in range(4):
        for board in boards:
            post = world.deployment.post("a", part(board, {"xp": 1}), post_id=f"p{number}")
            await world.deployment.apply_one(post)
    world.deployment.clock.now_us += round(2 * LIMITS.post_id_retention_s * S)
    jobs = {partition: world.prune_job(partition=partition) for partition in (FIRST, LAST)}
    left = {FIRST: 5, LAST: 5}
    for partition, job in jobs.items():
        async with run_jobs(job):
            await world.time.end_sleep(LIMITS.prune_interval_s)
            await world.time.end_sleep(0)  # after a step that deleted changes
            await world.time.wait_for_sleeper(LIMITS.prune_interval_s)
        left[partition] = 1  # the last bundle of a log always stays
        assert {each: await count_bundles(world, each) for each in left} == left
    again = [world.deployment.post("a", part(board, {"xp": 1}), post_id="p0") for board in boards]
    assert [(await world.deployment.apply_one(post)).status for post in again] == [PostStatus.APPLIED] * 2


async def test_the_control_partition_only_loses_its_old_rejections(world: World) -> None:
    rejected = [(1, "hash", UnknownColumnError("no column"))]
    await world.store.at(CONTROL).write(lambda: store_rejected(rejected, world.deployment.clock.now_us))
    await world.store.at(FIRST).write(lambda: store_rejected(rejected, world.deployment.clock.now_us))
    world.advance(LIMITS.rejected_post_retention_s + 1)
    async with run_jobs(world.prune_job(partition=CONTROL)):
        await world.time.end_sleep(LIMITS.prune_interval_s)
        await world.time.wait_for_sleeper(LIMITS.prune_interval_s)
    assert await world.store.at(CONTROL).read(lambda: find_rejected([1], "hash")) == {}
    assert (await world.store.at(FIRST).read(lambda: find_rejected([1], "hash"))).keys() == {"hash"}


async def test_seasons_close_and_are_archived_in_every_partition(world: World) -> None:
    now_us = world.deployment.clock.now_us
    season = Season(None, now_us + 10 * S, 0, 5)
    small = [
        await create_in(world, partition, f"small{number}", entries=3, season=season)
        for number, partition in enumerate((FIRST, LAST, FIRST, LAST))
    ]
    large = [
        await create_in(world, partition, f"large{partition}", entries=60, season=season) for partition in (1, LAST)
    ]
    tops = {}
    for board in (*small, *large):
        ranking = world.deployment.entries(board).rankings[0]
        tops[board.id] = await world.store.at(board.partition).read(lambda ranking=ranking: ranking.read_first_rows(10))  # type: ignore[misc]
    world.advance(11)
    job = make_close_job(world)
    await close_all(world, job)
    for board in large:
        served = world.served(board)
        assert (served.fit.method, served.fit.total, served.partition) == ("scan", 60, board.partition)
    world.advance(6)
    await close_all(world, job)
    assert (world.meter.counts["rankcurve_boards_closed"], world.meter.counts["rankcurve_closing_failures"]) == (6, 0)
    assert world.meter.counts["rankcurve_archive_owners"] == 4 * 3 + 2 * 60
    for board in (*small, *large):
        archived = await world.deployment.find(board.id)
        assert archived.gate.archived_us is not None
        opened = world.deployment.entries(archived)
        assert isinstance(opened, ArchivedEntries)
        store = world.store.at(archived.partition)
        assert await store.read(lambda opened=opened: opened.rankings[0].read_first_rows(10)) == tops[board.id]  # type: ignore[misc]
        [fitted] = await store.read(lambda opened=opened: opened.read_curves(0))  # type: ignore[misc]
        assert fitted.total == (3 if board in small else 60)

"""Test that any job process closes a board after the board's end, and that the closed board has certified curves."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from jobs.boards.close_periods import RESOURCE, CloseJob
from jobs.ownership import JOB_WORK
from querybuilder import Bound
from storage.boards.boards import REFRESH_WORK, refresh_resource
from storage.errors import PeriodClosedError, StoreAwayError
from storage.posting.decision import Decision, decide_posts
from storage.posting.group_facts import GroupFacts
from storage.records import Board, Post, PostStatus, Season
from storage.store import CONTROL, Program
from tests.jobs.closing import close_all, make_close_job, run_step
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import LIMITS, MARGIN_S, PREDICTOR, World, within
from tests.storage.deployment import part, ranked
from tests.storage.meddling import interpose
from tests.storage.passing import PassingStore
from tests.storage.queueing import QueueDesk

T = TypeVar("T")

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here
S = 1_000_000


async def make_season(world: World, board_id: str, *, entries: int, ends_in_s: int = 10) -> Board:
    """Create a board that closes when it ends, after `ends_in_s` seconds, because it has no grace."""
    now_us = world.deployment.clock.now_us
    season = Season(None, now_us + ends_in_s * S, 0, None)
    board = await world.deployment.create(board_id, ranked("xp0"), predictor=PREDICTOR, season=season)
    world.catalog.keep_board(board)
    if entries:
        await world.post(board, {f"o{number}": number * number for number in range(entries)})
    return board


async def is_closed(world: World, board: Board) -> bool:
    return (await world.deployment.find(board.id)).gate.closed_us is not None


def find_lag_s(world: World) -> float | None:
    return world.meter.gauges.get("rankcurve_closing_lag_seconds")


async def test_boards_close_many_at_a_time_when_their_time_is_over(world: World) -> None:
    boards = [await make_season(world, f"b{number}", entries=2) for number in range(5)]
    later = await make_season(world, "later", entries=0, ends_in_s=100)
    job = make_close_job(world)
    assert not await run_step(world, job)
    world.advance(12)
    assert await run_step(world, job)
    assert (world.meter.counts["rankcurve_boards_closed"], find_lag_s(world)) == (3, 2.0)
    assert await run_step(world, job)
    assert not await run_step(world, job)
    assert (world.meter.counts["rankcurve_boards_closed"], find_lag_s(world)) == (5, 0.0)
    assert [await is_closed(world, board) for board in [*boards, later]] == [True] * 5 + [False]


async def test_a_board_is_shut_only_after_the_posts_that_were_queued_before_its_end(world: World) -> None:
    desk = await QueueDesk.on(world.deployment)
    season, ended = (
        await make_season(world, "season", entries=2),
        await make_season(world, "ended", entries=1, ends_in_s=1),
    )
    world.advance(9)
    await desk.enqueue(world.deployment.post("late", part(season, {"xp0": 7}), post_id="in time"))
    world.advance(3)
    job = make_close_job(world)
    assert await run_step(world, job)
    assert (await is_closed(world, ended), await is_closed(world, season)) == (True, False)
    assert not await run_step(world, job)
    assert find_lag_s(world) == 2.0, "a board that waits for the queue is late, too"
    await desk.drain_queue()
    assert (await desk.find_fate(season, "in time", "late")).status is PostStatus.APPLIED
    assert await run_step(world, job)
    assert await is_closed(world, season)
    await desk.enqueue(world.deployment.post("later", part(season, {"xp0": 7}), post_id="too late"))
    await desk.drain_queue()
    fate = await desk.find_fate(season, "too late", "later")
    assert isinstance(fate.error, PeriodClosedError)


async def test_a_post_that_cannot_be_applied_delays_the_closing_only_until_it_is_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(group: GroupFacts, posts: Sequence[Post]) -> Decision:
        if posts:
            raise RuntimeError("refused")
        return decide_posts(group, posts)

    desk, season = await QueueDesk.on(world.deployment), await make_season(world, "season", entries=2)
    await desk.enqueue(world.deployment.post("ada", part(season, {"xp0": 7}), post_id="poison"))
    world.advance(12)
    worker, job, failures = desk.worker("ada"), make_close_job(world), 0
    await desk.update_share(worker)
    monkeypatch.setattr("storage.queue.queue_application.decide_posts", refuse)
    while await desk.count_waiting():
        assert not await run_step(world, job)
        try:
            await desk.run_round(worker)
        except RuntimeError:
            failures += 1
        assert failures < 20
    assert failures > 1
    assert (await desk.find_fate(season, "poison", "ada")).status is PostStatus.REJECTED
    assert await run_step(world, job)
    assert await is_closed(world, season)


async def test_a_post_that_reached_the_queue_while_its_board_was_shut_still_counts(world: World) -> None:
    desk = await QueueDesk.on(world.deployment)
    season = await make_season(world, "season", entries=2)
    world.advance(9)
    accepted_us = world.deployment.clock.now_us
    world.advance(3)
    await close_all(world)
    assert await is_closed(world, season)
    for at_us, owner in ((accepted_us, "late"), (world.deployment.clock.now_us, "later")):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(desk, "clock", lambda at_us=at_us: at_us)
            await desk.enqueue(world.deployment.post(owner, part(season, {"xp0": 7}), post_id="p", at_us=accepted_us))
    await desk.drain_queue()
    assert (await desk.find_fate(season, "p", "late")).status is PostStatus.APPLIED
    assert isinstance((await desk.find_fate(season, "p", "later")).error, PeriodClosedError)


class AwayStore(PassingStore):
    """A store that cannot write the gate of one board, because the board's partition does not answer."""

    key: int | None = None

    def _refuse(self, query: Bound) -> None:
        if query.params.get("keys") == [self.key]:
            raise StoreAwayError("away")

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._store.write(lambda: interpose(program(), self._refuse))


async def test_a_board_whose_partition_is_away_does_not_delay_the_others_and_closes_later(world: World) -> None:
    boards = [await make_season(world, f"b{number}", entries=2) for number in range(3)]
    store = AwayStore(world.store)
    context = replace(world.context(), store=store)
    job = CloseJob(replace(context, store=store.at(CONTROL)), clock=world.deployment.clock.read)
    world.advance(12)
    store.key = boards[1].key
    assert await run_step(world, job)
    assert [await is_closed(world, board) for board in boards] == [True, False, True]
    store.key = None
    assert not await run_step(world, job)
    world.advance(LIMITS.close_retry_s)
    assert await run_step(world, job)
    assert await is_closed(world, boards[1])


async def test_the_job_runs_by_the_clock_and_another_process_takes_over(world: World) -> None:
    board = await make_season(world, "b", entries=1)
    jobs = [make_close_job(world), make_close_job(world.beside())]
    running = [asyncio.create_task(job.run_forever()) for job in jobs]
    await world.time.wait_for_sleepers(1, count=2)
    assert find_lag_s(world) == 0
    running[0].cancel()
    await asyncio.wait(running[:1])
    assert find_lag_s(world) is None, "only the other process reports the lag now"
    world.advance(15)
    while not await within(is_closed(world, board)):
        await world.time.wait_for_sleeper()
        world.advance(1)
    running[1].cancel()
    await asyncio.wait(running)


async def test_closing_a_board_waits_for_a_refresh_of_its_column_elsewhere(world: World) -> None:
    board = await make_season(world, "b", entries=60)
    world.advance(11)
    job = make_close_job(world)
    assert await run_step(world, job)
    column = refresh_resource(board.key, 0)
    refreshing = await world.store.write(
        lambda: world.leases.claim(REFRESH_WORK, column, holder="refresher", lease_us=1_000 * S)
    )
    assert await run_step(world, job)
    assert not await run_step(world, job), "the board is left alone for a moment"
    await world.store.write(lambda: world.leases.release(refreshing))
    world.advance(LIMITS.close_interval_s)
    assert await run_step(world, job)
    served = world.served(board)
    assert (served.fit.method, served.fit.total) == ("scan", 60)
    assert served.fit.certificate is not None


async def test_the_job_claims_again_when_the_lease_of_a_dead_process_ends(world: World) -> None:
    store = world.store.at(CONTROL)
    await store.write(lambda: world.leases.claim(JOB_WORK, RESOURCE, holder="dead", lease_us=S // 2))
    world.advance(MARGIN_S)
    async with run_jobs(make_close_job(world)):
        await world.time.wait_for_sleeper(0.5)
        assert find_lag_s(world) is None
        world.advance(0.5)
        await world.time.wait_for_sleeper(LIMITS.close_interval_s)
        assert find_lag_s(world) == 0

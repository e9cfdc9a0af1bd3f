"""Test refresh requests. An operator sends one to a process without jobs, and a job process runs the refresh."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from config.settings import JobSettings
from jobs.curves.refresh_requests import Refreshed, RefreshRequestJob, RemoteRefresher
from jobs.errors import NoJobProcessError, TooManyRefreshRequestsError
from storage.boards.catalog import Catalog
from storage.curves.refresh_requests import (
    StoredRefreshRequest,
    list_open_refresh_requests,
)
from storage.curves.stored_curves import CurveBook
from storage.errors import StoreBusyError, UnknownBoardError
from storage.records import Board, Season
from tests.jobs.closing import close_all
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import WAIT_S, World, within
from tests.storage.deployment import ranked

LIMITS = JobSettings(refresh_wait_s_max=WAIT_S, curve_poll_s=0.05).model_copy(update={"refresh_demands_max": 3})


class FrontEnd:
    """A process without jobs that shares the world's store."""

    def __init__(self, world: World, limits: JobSettings = LIMITS) -> None:
        self.book = CurveBook(world.store, None, poll_rows_max=100)
        self.desk = RemoteRefresher(world.store, self.book, limits, sleep=asyncio.sleep)


async def list_requests(world: World) -> list[StoredRefreshRequest]:
    return await world.store.read(lambda: list_open_refresh_requests(10))


async def wait_for_requests(world: World, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(await list_requests(world)) < count:
            pass


async def send_request(world: World, board: Board, limits: JobSettings = LIMITS) -> asyncio.Task[Refreshed]:
    """Request a refresh from another process. Return the request's task when the request is in the store."""
    asked = asyncio.create_task(FrontEnd(world, limits).desk.refresh_now(board, 0))
    await wait_for_requests(world, 1)
    return asked


@asynccontextmanager
async def start_job_process(world: World, catalog: Catalog | None = None) -> AsyncIterator[RefreshRequestJob]:
    """Start the world's own jobs. Yield the job that runs the refreshes that other processes request.

    The yielded job is not started. The test runs it or calls its `take_requests`.
    """
    jobs = world.start()
    try:
        context = replace(world.context(), catalog=catalog or world.catalog, sleep=asyncio.sleep)
        yield RefreshRequestJob(context, world.desk)
    finally:
        await jobs.stop()


async def test_a_request_of_another_process_gets_a_curve_with_every_earlier_write(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {f"p{n}": n for n in range(30)})
    front_end = FrontEnd(world)
    asked = [asyncio.create_task(front_end.desk.refresh_now(board, 0)) for _ in range(2)]
    async with start_job_process(world) as job, run_jobs(job):
        first, second = await within(asyncio.gather(*asked))
        assert first.curve.total == second.curve.total == 30
        assert first.seconds >= 0
        served = front_end.book.find_served(board, 0)
        assert served is not None
        assert served.version >= first.version
        await world.post(board, {"late": 99})
        again = await within(front_end.desk.refresh_now(board, 0))
        assert again.curve.total == 31
        assert again.version > first.version


async def test_the_job_reads_a_board_first_that_it_does_not_know_or_knows_differently(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {"a": 1})
    async with start_job_process(world, Catalog(world.store)) as job:  # this process has an empty copy of the catalog
        asked = await send_request(world, board)
        await job.take_requests()
        assert (await within(asked)).curve.total == 1
        emptied = await world.deployment.reset()
        asked = await send_request(world, emptied)
        await job.take_requests()
        assert (await within(asked)).curve.total == 0


async def test_a_board_that_is_emptied_meanwhile_is_unknown_to_the_caller(world: World) -> None:
    board = await world.create("b")
    async with start_job_process(world) as job:
        asked = await send_request(world, board)
        await world.deployment.reset()
        await job.take_requests()
        with pytest.raises(UnknownBoardError):
            await within(asked)


async def test_a_board_that_is_archived_meanwhile_is_looked_for_again_by_the_caller(world: World) -> None:
    season = Season(None, world.deployment.clock.now_us + 1, 0, 0)
    board = await world.deployment.create("b", ranked("xp"), season=season)
    world.advance(1)
    await close_all(world)
    async with start_job_process(world) as job:
        asked = await send_request(world, board)
        await job.take_requests()
        with pytest.raises(UnknownBoardError):  # the handler then reads the board again
            await within(asked)


async def test_the_caller_is_told_of_a_failed_fit(world: World) -> None:
    failing = await world.create("b")
    async with start_job_process(world) as job:
        world.store.hold()
        asked = await send_request(world, failing)
        await job.take_requests()
        await within(world.store.entered.wait())
        world.store.failures.append(StoreBusyError("no disk"))
        world.store.release()
        with pytest.raises(StoreBusyError):
            await within(asked)


@pytest.mark.parametrize("wait_s", [0.3, 0.001], ids=["it looks once", "its wait ends before its first look"])
async def test_the_front_end_reports_a_missing_job_process_after_its_wait(world: World, wait_s: float) -> None:
    board = await world.create("b")
    front_end = FrontEnd(world, LIMITS.model_copy(update={"refresh_wait_s_max": wait_s}))
    with pytest.raises(NoJobProcessError, match=rf"no job process took the refresh request in {wait_s} s"):
        await within(front_end.desk.refresh_now(board, 0))


async def test_a_refresh_that_takes_longer_than_the_wait_is_a_timeout(world: World) -> None:
    board = await world.create("b")
    async with start_job_process(world) as job:
        world.store.hold()
        asked = await send_request(world, board, LIMITS.model_copy(update={"refresh_wait_s_max": 1}))
        await job.take_requests()
        with pytest.raises(TimeoutError):
            await within(asked)
        world.store.release()


async def test_a_front_end_refuses_requests_beyond_its_bound(world: World) -> None:
    board = await world.create("b")
    front_end = FrontEnd(world, LIMITS.model_copy(update={"refresh_demands_max": 1}))
    first = asyncio.create_task(front_end.desk.refresh_now(board, 0))
    await wait_for_requests(world, 1)
    with pytest.raises(TooManyRefreshRequestsError):
        await front_end.desk.refresh_now(board, 0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_a_job_process_that_stops_gives_back_its_unanswered_requests(world: World) -> None:
    board = await world.create("b")
    asked = await send_request(world, board)
    before = await list_requests(world)
    async with start_job_process(world) as job:
        world.store.hold()
        running = asyncio.create_task(job.run_forever())
        await within(world.store.entered.wait())
        assert await list_requests(world) == []
        running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await list_requests(world) == before
    world.store.release()
    async with start_job_process(world) as other:
        await other.take_requests()
        assert (await within(asked)).curve.total == 0

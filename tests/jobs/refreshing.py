"""Helpers for tests of refreshing: find and refresh due columns, and look at the curves that readers get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from jobs.curves.refresh import RefreshJob
from storage.curves.refresh_requests import find_refresh_request
from storage.records import Board
from storage.store import CONTROL
from tests.jobs.world import REFRESH_S, WAIT_S, World, within


def count_curve_entries(world: World, board: Board, column_index: int = 0) -> int | None:
    """Return how many entries the readers' curve counts, or None if there is no curve."""
    curve = world.book.find_curve(board, column_index)
    return None if curve is None else curve.total


async def count_due(world: World, job: RefreshJob, seconds: float = REFRESH_S) -> int:
    """Advance the clock by `seconds`. Return the number of columns that are due after that time."""
    world.advance(seconds)
    await job.find_due()
    return job.waiting


@asynccontextmanager
async def run_workers(job: RefreshJob, workers: int = 1, *, looks: bool = True) -> AsyncIterator[None]:
    """Run workers, and with `looks` the task that looks for requests."""
    tasks = [asyncio.create_task(job.work()) for _ in range(workers)]
    if looks:
        tasks.append(asyncio.create_task(job.look()))
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def run_held_worker(world: World, job: RefreshJob, *, after: bool = False) -> AsyncIterator[None]:
    """Run a worker whose heavy reads block as `HeldStore.hold` says. Begin when its first refresh is blocked."""
    world.store.hold(after=after)
    async with run_workers(job):
        await within(world.store.entered.wait())
        yield


async def wait_for_request(world: World, board: Board, *, number: int = 1) -> None:
    """Wait until the request with this number, or a later one, for the board's first column is in the store."""
    async with asyncio.timeout(WAIT_S):
        found = None
        while found is None or found.number < number:
            found = await world.store.at(CONTROL).read(lambda: find_refresh_request((board.key, 0)))


async def work_off(world: World, job: RefreshJob) -> None:
    """Refresh all columns that wait in the job's queue."""
    count = job.waiting
    async with run_workers(job):
        await world.wait_for_refreshes(count)


async def refresh_due(world: World, job: RefreshJob, count: int = 1) -> None:
    """Advance the clock by one interval. Check that `count` columns are then due, and refresh them."""
    assert await count_due(world, job) == count
    await work_off(world, job)


async def start_job(world: World, **schedule: float) -> RefreshJob:
    """Return a refresh job that has found all boards. `schedule` sets limits of the job."""
    job = world.refresh_job(**schedule)
    await job.find_due()
    return job


async def start_boards(world: World, *names: str, **schedule: float) -> tuple[RefreshJob, list[Board]]:
    """Create boards with one entry each, and a job that has found these boards. `schedule` sets limits of the job."""
    boards = [await world.create(name) for name in names]
    for board in boards:
        await world.post(board, {"a": 1})
    return await start_job(world, **schedule), boards


class EndlessJob(Protocol):
    async def run_forever(self) -> object: ...


@asynccontextmanager
async def run_jobs(*jobs: EndlessJob) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(job.run_forever()) for job in jobs]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""Test refresh requests. An operator sends one to a process without jobs, and a job process runs the refresh."""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from config.settings import Settings
from jobs.curves.refresh import Refreshed
from jobs.errors import NoJobProcessError
from storage.curves.live_counts import Slot
from storage.curves.refresh_requests import list_open_refresh_requests
from storage.errors import StoreBusyError, StoreFullError, UnknownBoardError
from storage.records import Board, Season
from storage.store import CONTROL, Program
from tests.jobs.closing import close_all
from tests.jobs.refreshing import run_workers, wait_for_request
from tests.jobs.world import LEASE_S, MARGIN_S, WAIT_S, World, within
from tests.jobs.world import LIMITS as WORLD_LIMITS
from tests.storage.deployment import ranked

T = TypeVar("T")

LIMITS = WORLD_LIMITS.model_copy(update={"curve_poll_s": 0.05})


class FrontEnd:
    """A process without jobs that shares the world's store."""

    def __init__(self, world: World, limits: Settings = LIMITS) -> None:
        process = world.beside()
        self.book, self.desk = process.book, process.refresher(limits, asyncio.sleep)


async def list_requests(world: World) -> list[Slot]:
    return await world.store.at(CONTROL).read(lambda: list_open_refresh_requests(10))


async def send_request(world: World, board: Board, limits: Settings = LIMITS) -> asyncio.Task[Refreshed]:
    """Request a refresh from another process. Return the request's task when the request is in the store."""
    desk = FrontEnd(world, limits).desk
    desk.accept_requests()  # on SQLite, a process without jobs refuses them
    asked = asyncio.create_task(desk.refresh_now(board.leaf, 0))
    async with asyncio.timeout(WAIT_S):
        while not await list_requests(world):
            pass
    return asked


async def test_a_request_of_another_process_gets_a_curve_with_every_earlier_write(world: World) -> None:
    board, job = await world.create("b"), world.refresh_job()
    await world.post(board, {f"p{n}": n for n in range(30)})
    front_end = FrontEnd(world)
    front_end.desk.accept_requests()
    asked = [asyncio.create_task(front_end.desk.refresh_now(board.leaf, 0)) for _ in range(2)]
    await wait_for_request(world, board, number=2)
    async with run_workers(job):
        first, second = await within(asyncio.gather(*asked))
        assert first.curve.total == second.curve.total == 30
        assert first.seconds >= 0
        served = front_end.book.find_served(board.leaf, 0)
        assert served is not None
        assert served.version >= first.version
        await world.post(board, {"late": 99})
        later = asyncio.create_task(front_end.desk.refresh_now(board.leaf, 0))
        await wait_for_request(world, board, number=3)
        await job.find_requests()
        again = await within(later)
        assert again.curve.total == 31
        assert again.version > first.version


async def test_the_job_refreshes_a_board_that_it_does_not_know_or_knows_differently(world: World) -> None:
    await world.deployment.create("b", ranked("xp"))  # the job's copy of the catalog is empty
    emptied = await world.deployment.reset()
    asked = await send_request(world, emptied)
    async with run_workers(world.refresh_job()):
        assert (await within(asked)).curve.total == 0


async def test_a_board_that_is_emptied_meanwhile_is_unknown_to_the_caller(world: World) -> None:
    asked = await send_request(world, await world.create("b"))
    await world.deployment.reset()
    async with run_workers(world.refresh_job()):
        with pytest.raises(UnknownBoardError):
            await within(asked)


async def test_a_board_that_is_archived_meanwhile_is_looked_for_again_by_the_caller(world: World) -> None:
    season = Season(None, world.deployment.clock.now_us + 1, 0, 0)
    board = await world.deployment.create("b", ranked("xp"), season=season)
    world.advance(1)
    await close_all(world)
    asked = await send_request(world, board)
    async with run_workers(world.refresh_job()):
        with pytest.raises(UnknownBoardError):  # the handler then reads the board again
            await within(asked)
    assert await list_requests(world) == []


async def test_the_caller_is_told_of_a_failed_fit(world: World) -> None:
    asked = await send_request(world, await world.create("b"))
    world.store.hold()
    async with run_workers(world.refresh_job()):
        await within(world.store.entered.wait())
        world.store.failures.append(StoreBusyError("no disk"))
        world.store.release()
        with pytest.raises(StoreBusyError):
            await within(asked)


async def test_a_failure_that_nobody_waits_for_is_not_kept(world: World) -> None:
    board = await world.create("b")
    front_end = FrontEnd(world)
    front_end.desk.accept_requests()
    slot = (board.key, 0)
    front_end.desk.report_failure(slot, StoreBusyError("nobody asked"))
    asked = [asyncio.create_task(front_end.desk.refresh_now(board.leaf, 0)) for _ in range(2)]
    await wait_for_request(world, board, number=2)
    front_end.desk.report_failure(slot, StoreBusyError("the store does not take the answer"))
    front_end.desk.answered.set()
    for waiting in asked:  # each caller is told
        with pytest.raises(StoreBusyError, match="does not take the answer"):
            await within(waiting)
    assert not front_end.desk._failures


async def test_the_front_end_reports_a_missing_job_process_after_its_wait(world: World) -> None:
    board = await world.create("b")
    front_end = FrontEnd(world, LIMITS.model_copy(update={"refresh_wait_s_max": 0.3}))
    front_end.desk.accept_requests()  # on SQLite, a process without jobs refuses at once
    with pytest.raises(NoJobProcessError, match=r"no job process answered the refresh request in 0.3 s"):
        await within(front_end.desk.refresh_now(board.leaf, 0))


async def test_a_process_without_jobs_refuses_at_once_if_no_other_process_can_have_the_store(world: World) -> None:
    board = await world.create("b")
    front_end = FrontEnd(world, LIMITS.model_copy(update={"refresh_wait_s_max": 0.001}))
    with pytest.raises(NoJobProcessError) as refused:
        await within(front_end.desk.refresh_now(board.leaf, 0))
    assert ("in 0.001 s" in str(refused.value)) is not world.store.sole_writer


async def test_a_refresh_that_takes_longer_than_the_wait_is_a_timeout(world: World) -> None:
    board = await world.create("b")
    async with world.hold_job_lease("fold", 10**9, partition=board.partition):
        asked = await send_request(world, board, LIMITS.model_copy(update={"refresh_wait_s_max": 0.3}))
        with pytest.raises(TimeoutError):
            await within(asked)


async def test_a_front_end_refuses_requests_beyond_its_bound(world: World) -> None:
    board = await world.create("b")
    front_end = FrontEnd(world, LIMITS.model_copy(update={"refresh_demands_max": 1}))
    front_end.desk.accept_requests()
    first = asyncio.create_task(front_end.desk.refresh_now(board.leaf, 0))
    await wait_for_request(world, board)
    with pytest.raises(StoreBusyError, match="requests are waiting"):
        await front_end.desk.refresh_now(board.leaf, 0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_a_job_process_that_stops_leaves_its_unanswered_requests_to_another_one(world: World) -> None:
    asked = await send_request(world, await world.create("b"))
    before = await list_requests(world)
    world.store.hold()
    async with run_workers(world.refresh_job()):
        await within(world.store.entered.wait())
    assert await list_requests(world) == before
    world.store.release()
    async with run_workers(world.beside().refresh_job()):
        assert (await within(asked)).curve.total == 0


# The writes of a refresh: 1 the request, 2 its look-up, 3 the claim, 4 the curve, 5 the release of the lease, 6 answer.
@pytest.mark.parametrize("refused", [range(2, 100), range(4, 100), [4]])
async def test_a_request_on_a_full_disk_is_refused_as_such_at_once_and_jobs_log_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, refused: Collection[int]
) -> None:
    board, write, writes = await world.create("b"), world.store.write, 0
    await world.post(board, {"a": 1})

    async def write_on_full_disk(program: Callable[[], Program[T]]) -> T:
        nonlocal writes
        writes += 1
        if writes in refused:
            raise StoreFullError
        return await write(program)

    monkeypatch.setattr(world.store, "write", write_on_full_disk)
    with capture_logs() as lines:
        async with run_workers(world.refresh_job()):
            with pytest.raises(StoreFullError):
                await within(world.desk.refresh_now(board.leaf, 0))
            monkeypatch.undo()
            world.advance(LEASE_S + MARGIN_S)  # the lease on the column could not be released
            assert (await within(world.desk.refresh_now(board.leaf, 0))).curve.total == 1
    assert {line["event"] for line in lines if line["log_level"] != "debug"} == {"refreshed_on_demand"}

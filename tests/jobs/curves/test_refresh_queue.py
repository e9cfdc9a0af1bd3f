"""Test that a requested curve counts every post that was acknowledged before the request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from jobs.curves.refresh import Refreshed
from jobs.errors import NoJobProcessError
from jobs.wiring import Jobs
from predictor import Curve
from storage.boards.board_removal import delete_board, reset_board
from storage.curves.refresh_requests import find_refresh_request
from storage.errors import StoreBusyError, UnknownBoardError
from storage.records import Board
from storage.store import CONTROL
from tests.jobs.refreshing import wait_for_request
from tests.jobs.world import World, within

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here


async def hold_refresh(world: World, board: Board) -> asyncio.Task[Refreshed]:
    """Request a refresh, which blocks before it reads its snapshot. Return the request's task."""
    world.store.hold()
    [task] = await send_requests(world, board)
    await within(world.store.entered.wait())
    return task


async def send_requests(world: World, *boards: Board) -> list[asyncio.Task[Refreshed]]:
    """Request a refresh of each board, one after the other, and wait until all are in the store. Return their tasks."""
    tasks = []
    for board in boards:
        before = await world.store.at(CONTROL).read(lambda: find_refresh_request((board.key, 0)))  # noqa: B023 - run at once
        tasks.append(asyncio.create_task(world.desk.refresh_now(board.leaf, 0)))
        await wait_for_request(world, board, number=1 if before is None else before.number + 1)
    return tasks


@pytest.fixture(autouse=True)
async def jobs(world: World) -> AsyncIterator[Jobs]:
    started = world.start()
    await world.time.wait_for_sleeper()
    yield started
    assert await started.stop() == []


async def test_a_request_is_answered_with_the_curve_that_serves_from_then_on(world: World) -> None:
    board = await world.create("b", columns=2)
    await world.post(board, {"a": 5, "b": 7, "c": 5}, column="xp1")
    done = await within(world.desk.refresh_now(board.leaf, 1))
    assert [(-knot.key - 10**15, knot.ties) for knot in done.curve.knots] == [(7, 1), (5, 2)]
    assert world.book.find_curve(board, 1) is done.curve
    assert world.book.find_curve(board, 0) is None
    assert done.curve.as_of_us == world.deployment.clock.now_us
    assert done.seconds >= 0
    again = await within(world.desk.refresh_now(board.leaf, 1))
    assert again.version > done.version


async def test_requests_for_one_column_share_a_refresh_that_started_after_all_of_them(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {"a": 1})
    first = await hold_refresh(world, board)
    await world.post(board, {"b": 2})  # the first refresh has already started when this post is acknowledged
    later = await send_requests(world, board, board)
    world.store.release()
    answers = await within(asyncio.gather(first, *later))
    assert [answer.curve.total for answer in answers[1:]] == [2, 2]
    assert len({answer.version for answer in answers[1:]}) == 1 < len({answer.version for answer in answers})
    assert world.store.heavy_reads == 2


async def test_a_caller_who_gives_up_does_not_take_the_other_callers_answer(world: World) -> None:
    board = await world.create("b")
    world.store.hold()
    callers = await send_requests(world, board, board)
    await within(world.store.entered.wait())
    callers[0].cancel()
    await asyncio.wait(callers[:1])
    world.store.release()
    assert (await within(callers[1])).curve.total == 0
    assert callers[0].cancelled()


async def test_requests_beyond_the_bound_are_refused_at_once(world: World) -> None:
    boards = [await world.create(f"b{number}") for number in range(4)]
    taken = [await hold_refresh(world, boards[0]), *await send_requests(world, *boards[1:3])]
    with pytest.raises(StoreBusyError, match="requests are waiting"):
        await world.desk.refresh_now(boards[3].leaf, 0)
    world.store.release()
    assert len(await within(asyncio.gather(*taken))) == 3


async def test_stopping_refuses_waiting_requests_and_later_ones(world: World, jobs: Jobs) -> None:
    boards = [await world.create("b0"), await world.create("b1")]
    tasks = [await hold_refresh(world, boards[0]), *await send_requests(world, boards[1])]
    assert await within(jobs.stop()) == []
    for task in tasks:
        with pytest.raises(NoJobProcessError):
            await within(task)
    with pytest.raises(NoJobProcessError):
        await world.desk.refresh_now(boards[0].leaf, 0)


async def test_the_caller_is_told_of_a_failing_store_and_the_next_request_works(world: World) -> None:
    board = await world.create("b")
    task = await hold_refresh(world, board)
    world.store.failures.append(StoreBusyError("the disk is full"))
    world.store.release()
    with pytest.raises(StoreBusyError, match="the refresh failed"):
        await within(task)
    assert world.meter.events["rankcurve_refresh_failures"].qsize() == 1
    assert (await within(world.desk.refresh_now(board.leaf, 0))).curve.total == 0


@pytest.mark.parametrize("gone", [delete_board, partial(reset_board, now_us=1)])
async def test_a_board_deleted_or_emptied_meanwhile_is_unknown_and_counts_no_failure(
    world: World, gone: Callable[..., object]
) -> None:
    board = await world.create("b")
    await world.store.write(lambda: gone(board_id="b"))  # type: ignore[arg-type, return-value]
    with pytest.raises(UnknownBoardError):
        await within(world.desk.refresh_now(board.leaf, 0))
    assert world.meter.events["rankcurve_refresh_failures"].empty()
    assert all(served.epoch != board.gate.epoch for served in world.book.list_served())


async def test_a_request_after_a_reset_shares_no_refresh_from_before_it(world: World) -> None:
    boards = [await world.create("other"), await world.create("b")]
    world.store.hold()
    asked = await send_requests(world, *boards)
    await within(world.store.entered.wait())
    asked += await send_requests(world, await world.deployment.reset())
    world.store.release()
    with pytest.raises(UnknownBoardError):
        await within(asked[1])
    assert (await within(asked[2])).curve == Curve((), total=0, as_of_us=world.deployment.clock.now_us)
    await within(asked[0])

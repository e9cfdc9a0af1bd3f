"""Test the schedule of refreshes and polls: curves must be young enough, and idle boards must cost nothing."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from jobs.wiring import watch_curves
from predictor import Curve, Knot
from querybuilder import col, lit, update
from storage.curves.stored_curves import store_curve
from storage.errors import StoreBusyError
from storage.leaves.row_tables import layout_of
from storage.records import RefreshMethod
from storage.store import Program
from tests.jobs.refreshing import (
    count_curve_entries,
    count_due,
    refresh_due,
    run_held_worker,
    run_workers,
    start_boards,
    start_job,
    wait_for_request,
)
from tests.jobs.world import LIMITS, PREDICTOR, REFRESH_S, World, within

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here


async def test_every_ranked_column_of_a_changed_board_is_refreshed_within_its_interval(world: World) -> None:
    board = await world.create("b", columns=3)
    for column in ("xp0", "xp1", "xp2"):
        await world.post(board, {"a": 5, "b": 7}, column)
    job = await start_job(world)
    await refresh_due(world, job, 3)
    assert [count_curve_entries(world, board, index) for index in (0, 1, 2, 3)] == [2, 2, 2, None]


@pytest.mark.parametrize("after", [False, True])
async def test_a_change_makes_its_column_due_only_if_it_is_not_in_the_curve(world: World, after: bool) -> None:
    job, [board] = await start_boards(world, "b")
    assert await count_due(world, job) == 1
    async with run_held_worker(world, job, after=after):
        await world.post(board, {"b": 5})  # the curve's snapshot may be older or newer than this post
        world.store.release()
        await world.wait_for_refreshes()
    assert count_curve_entries(world, board) == (1 if after else 2)
    assert await count_due(world, job) == after


async def test_an_empty_board_gets_no_curve_until_it_has_entries(world: World) -> None:
    board = await world.create("b", columns=2)
    job = await start_job(world)
    assert await count_due(world, job) == 0
    await world.post(board, {"a": 1}, "xp1")
    assert await count_due(world, job) == 1
    async with run_workers(job):
        await within(world.finish_due_work(job))
    assert (count_curve_entries(world, board, 0), count_curve_entries(world, board, 1)) == (None, 1)


async def test_a_board_that_lost_all_its_entries_is_refreshed_to_an_empty_curve(world: World) -> None:
    job, [board] = await start_boards(world, "b")
    await refresh_due(world, job)
    await world.deployment.erase(board, "a")
    await refresh_due(world, job)
    assert count_curve_entries(world, board) == 0


async def test_jitter_shortens_the_interval_by_at_most_its_ratio(world: World) -> None:
    job, boards = await start_boards(world, *(f"b{number}" for number in range(40)), refresh_jitter_ratio=0.5)
    await refresh_due(world, job, 40)
    for board in boards:
        await world.post(board, {"a": 1})
    assert await count_due(world, job, REFRESH_S * 0.49) == 0
    assert 5 < await count_due(world, job, REFRESH_S * 0.26) < 35
    assert await count_due(world, job, REFRESH_S * 0.26) == 40


async def test_boards_known_at_the_start_become_due_spread_over_their_interval(world: World) -> None:
    job, _ = await start_boards(world, *(f"b{number}" for number in range(40)))
    found = [await count_due(world, job, REFRESH_S / 4) for _ in range(4)]
    assert found[0] < found[1] < found[2] < found[3] == 40


async def test_a_tick_looks_at_a_bounded_number_of_boards_and_the_next_continues(world: World) -> None:
    job, _ = await start_boards(world, *(f"b{number}" for number in range(5)), refresh_tick_boards_max=2)
    for _ in range(2):
        await job.find_due()
    assert [await count_due(world, job, seconds) for seconds in (REFRESH_S, 0, 0)] == [2, 4, 5]


async def test_a_shorter_interval_takes_effect_without_waiting_for_the_old_one(world: World) -> None:
    board = await world.create("b", predictor=replace(PREDICTOR, refresh_seconds=3_600))
    await world.post(board, {"a": 1})
    job = await start_job(world)
    world.catalog.keep_board(await world.change(board, refresh_seconds=10))
    await job.find_due()
    assert await count_due(world, job, 10) == 1


async def test_changed_rules_for_the_curve_make_a_new_one_although_no_row_changed(world: World) -> None:
    job, [board] = await start_boards(world, "b")
    await world.post(board, {f"o{number}": number for number in range(9)})
    await refresh_due(world, job)
    await world.change(board, samples=4)
    await refresh_due(world, job)
    assert len(world.served(board).curve.knots) == 4


async def test_an_emptied_board_begins_a_new_schedule(world: World) -> None:
    job, _ = await start_boards(world, "b")
    await refresh_due(world, job)
    emptied = await world.deployment.reset()
    world.catalog.keep_board(emptied)
    await world.post(emptied, {"b": 1, "c": 2})
    await job.find_due()
    assert count_curve_entries(world, emptied) is None
    await refresh_due(world, job)
    assert count_curve_entries(world, emptied) == 2


async def test_a_board_deleted_while_it_waits_is_no_failure_and_is_forgotten(world: World) -> None:
    job, boards = await start_boards(world, "gone", "kept")
    assert await count_due(world, job) == 2
    await world.deployment.delete("gone")
    world.catalog.forget_board("gone")
    async with run_workers(job):
        await world.wait_for_refreshes()
        await within(world.finish_due_work(job))
    assert [count_curve_entries(world, board) for board in boards] == [None, 1]
    assert world.meter.events["rankcurve_refresh_failures"].empty()
    assert await count_due(world, job) == 0


async def test_a_failed_refresh_is_counted_and_tried_again_at_the_next_turn(world: World) -> None:
    job, [board] = await start_boards(world, "b")
    await count_due(world, job)
    world.store.failures.append(StoreBusyError())
    async with run_workers(job, looks=False):
        await within(world.meter.events["rankcurve_refresh_failures"].get())
    assert (count_curve_entries(world, board), job.waiting) == (None, 0)
    await refresh_due(world, job)
    assert count_curve_entries(world, board) == 1


@pytest.mark.parametrize("method", [RefreshMethod.SKIP, RefreshMethod.SCAN])
async def test_a_value_that_cannot_be_read_fails_the_refresh_of_its_board_in_one_line(
    world: World, method: RefreshMethod
) -> None:
    """The line names board, column and value, but no owner, and there is no traceback."""
    boards = [await world.create(name, predictor=replace(PREDICTOR, method=method)) for name in ("b", "kept")]
    for board in boards:
        await world.post(board, {"ada": 7})
    layout = layout_of(boards[0].leaf)

    def damage() -> Program[None]:
        yield update(layout.table).set(**{layout.columns[0].name: lit("0x7")}).where(col("owner").eq("ada")).bind()

    await world.store.write(damage)
    job = await start_job(world)
    await count_due(world, job)
    with capture_logs() as lines:
        async with run_workers(job, looks=False):
            await within(world.meter.events["rankcurve_refresh_failures"].get())
            await world.wait_for_refreshes()
    [line] = [each for each in lines if each["event"] == "refresh_failed"]
    assert "leaderboard 'b' has a value in column 'xp0' that can't be read, '0x7'" in line["detail"]
    assert "ada" not in str(line)
    assert "exc_info" not in line
    assert [count_curve_entries(world, board) for board in boards] == [None, 1]


async def test_no_more_columns_than_allowed_are_refreshed_at_once_and_never_one_twice(world: World) -> None:
    job, boards = await start_boards(world, "b0", "b1", "b2")
    assert await count_due(world, job) == 3
    world.store.hold()
    async with run_workers(job, workers=2):
        await within(world.store.wait_for_heavy_reads(2))
        again = asyncio.create_task(world.desk.refresh_now(boards[0].leaf, 0))
        await wait_for_request(world, boards[0])
        await job.find_requests()
        assert world.store.heavy_reads == 2
        world.store.release()
        refreshed = await within(again)
        await world.wait_for_refreshes(4)
    assert world.store.heavy_reads == 4
    assert world.book.find_curve(boards[0], 0) is refreshed.curve


async def test_a_column_that_a_caller_had_refreshed_meanwhile_is_not_refreshed_again(world: World) -> None:
    job, [board] = await start_boards(world, "b")
    assert await count_due(world, job) == 1
    demanded = asyncio.create_task(world.desk.refresh_now(board.leaf, 0))
    await wait_for_request(world, board)
    await job.find_requests()
    async with run_workers(job):
        refreshed = await within(demanded)
        await within(world.finish_due_work(job))
    assert world.book.find_curve(board, 0) is refreshed.curve


async def test_a_request_times_out_and_its_refresh_goes_on(world: World) -> None:
    world.desk = world.refresher(LIMITS.model_copy(update={"refresh_wait_s_max": 0.5}))
    world.desk.accept_requests()
    job, [board] = await start_boards(world, "b")
    world.store.hold()
    async with run_workers(job), world.hold_job_lease("fold", 10**9, partition=board.partition):
        with pytest.raises(TimeoutError):
            await world.desk.refresh_now(board.leaf, 0)
        world.store.release()
        await world.wait_for_refreshes()
    assert count_curve_entries(world, board) == 1


async def test_the_next_poll_serves_a_curve_of_another_process_also_after_a_failed_one(world: World) -> None:
    board = await world.create("b")
    curve = Curve((Knot(-5, 0, 1),), total=1, as_of_us=7)
    job = asyncio.create_task(watch_curves(world.book.poll, 2, world.time.elapse))
    await world.time.wait_for_sleeper(2)
    await world.store.write(lambda: store_curve(board.leaf, 0, curve))
    world.store.failures.append(StoreBusyError())
    world.time.advance(2)
    await world.time.wait_for_sleeper(2)
    assert world.book.find_curve(board, 0) is None
    world.time.advance(2)
    await world.time.wait_for_sleeper(2)
    assert world.book.find_curve(board, 0) == curve
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)

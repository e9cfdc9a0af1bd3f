"""Test when a curve is fitted again, and by which method: from samples or by a scan."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from jobs.curves.refresh import RefreshJob
from predictor import RankCurve
from storage.records import Board, RefreshMethod
from tests.jobs.folding import Folder, open_folder, refresh
from tests.jobs.refreshing import count_due, refresh_due, run_workers, start_job, work_off
from tests.jobs.world import PREDICTOR, REFRESH_S, World, within
from tests.predictor.quality import list_gap_rows

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here
# A curve from 20 samples has large errors on these values.
MANY = {f"p{number:04}": number * number for number in range(300)}


async def create_board(world: World, method: RefreshMethod = RefreshMethod.AUTO, *, samples: int = 20) -> Board:
    """Create a board with many entries, and no curve yet."""
    board = await world.create("b", predictor=replace(PREDICTOR, method=method, samples=samples))
    await world.post(board, MANY)
    return board


async def refresh_on_schedule(world: World, board: Board) -> RankCurve:
    """Run the next scheduled refresh. Return the curve that readers then get."""
    await refresh_due(world, await start_job(world))
    served = world.book.find_served(board.leaf, 0)
    curve = None if served is None else served.curve
    assert curve is not None
    return curve


async def test_a_requested_scan_makes_the_curve(world: World) -> None:
    board = await create_board(world, RefreshMethod.SCAN)
    job = world.refresh_job()
    async with run_workers(job):
        done = await within(world.desk.refresh_now(board.leaf, 0))
    assert done.curve.method == "scan"
    assert done.curve.total == 300


async def test_auto_scans_a_quiet_board_whose_sampled_curve_is_too_far_off(world: World) -> None:
    board = await create_board(world)
    first = await refresh_on_schedule(world, board)
    assert (first.method, first.certificate) == ("skip", None)
    await world.post(board, {"one more": 5})
    second = await refresh_on_schedule(world, board)
    assert (second.method, second.total) == ("scan", 301)
    await world.post(board, {"yet another": 7})
    assert (await refresh_on_schedule(world, board)).method == "scan"


async def test_auto_scans_an_idle_board_once(world: World) -> None:
    board = await create_board(world)
    assert (await refresh_on_schedule(world, board)).method == "skip"
    assert (await refresh_on_schedule(world, board)).method == "scan"
    assert await count_due(world, world.refresh_job()) == 0


async def test_auto_samples_a_board_that_changes_too_fast_to_be_scanned(world: World) -> None:
    board = await create_board(world)
    await refresh_on_schedule(world, board)
    # The board gets 1,500 changes a minute, so 7 of the 300 entries (more than 1 %) change during a
    # scan of 0.3 s.
    for _ in range(5):
        await world.post(board, MANY)
    assert (await refresh_on_schedule(world, board)).method == "skip"


async def test_auto_samples_a_board_with_too_many_entries_to_be_scanned(world: World) -> None:
    board = await create_board(world)
    await refresh_on_schedule(world, board)
    await world.post(board, {f"later {number}": number for number in range(101)})
    assert (await refresh_on_schedule(world, board)).method == "skip"


async def test_auto_keeps_sampling_where_the_samples_are_exact(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {f"p{number}": number % 10 for number in range(200)})
    assert (await refresh_on_schedule(world, board)).method == "skip"
    await world.post(board, {"one more": 5})
    assert (await refresh_on_schedule(world, board)).method == "skip"


@pytest.mark.parametrize("method", [RefreshMethod.SKIP, RefreshMethod.SCAN])
async def test_no_gap_holds_more_rows_than_a_count_may_read(world: World, method: RefreshMethod) -> None:
    board = await create_board(world, method, samples=2)
    curve = await refresh_on_schedule(world, board)
    assert max(list_gap_rows(curve.knots)) <= 100
    assert len(curve.knots) > 2


@asynccontextmanager
async def fold_fitted_board(world: World) -> AsyncIterator[tuple[Board, RefreshJob, Folder]]:
    """Create a board with a live curve. Yield it, a refresh job that has found it, and the process that folds."""
    board = await world.create("b", predictor=replace(PREDICTOR, method=RefreshMethod.SKIP))
    await world.post(board, {f"o{i}": i * 10 for i in range(400)})
    await refresh(world, board)
    job = await start_job(world)
    async with open_folder(world) as folding:
        await folding.fold()
        yield board, job, folding


async def count_drifted(world: World, job: RefreshJob, folding: Folder) -> int:
    """Advance the clock by one interval and fold. Return the number of columns that are then due."""
    world.advance(REFRESH_S)
    await folding.fold()
    return await count_due(world, job, 0)


async def test_a_live_curve_is_fitted_again_only_once_it_has_drifted(world: World) -> None:
    async with fold_fitted_board(world) as (board, job, folding):
        await world.post(board, {"o7": 5})
        assert await count_drifted(world, job, folding) == 0
        # The board has 400 entries. One of its gaps gets 200 new entries.
        await world.post(board, {f"new{i}": 1_003 for i in range(200)})
        assert await count_drifted(world, job, folding) == 1
        version = world.served(board).version
        await work_off(world, job)
        assert world.served(board).version > version


async def test_a_curve_that_nobody_folds_is_fitted_again_by_the_clock(world: World) -> None:
    async with fold_fitted_board(world) as (board, job, _):
        pass
    await world.post(board, {"o7": 5})
    world.advance(REFRESH_S)
    assert await count_due(world, job) == 1


async def test_changed_rules_need_a_new_curve_however_near_the_live_one_is(world: World) -> None:
    async with fold_fitted_board(world) as (board, job, folding):
        await world.change(board, samples=30)
        for _ in range(2):
            due = await count_drifted(world, job, folding)
        assert due == 1

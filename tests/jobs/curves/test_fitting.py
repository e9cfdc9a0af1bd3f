"""Test when a curve is fitted again, and by which method: from samples or by a scan."""

from dataclasses import replace
from itertools import pairwise

import pytest

from predictor import RankCurve
from storage.records import Board, RefreshMethod
from tests.jobs.folding import open_folder, refresh
from tests.jobs.refreshing import count_due, run_workers, work_off
from tests.jobs.world import PREDICTOR, REFRESH_S, World, within

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here
# A curve from 20 samples has large errors on these values.
MANY = {f"p{number:04}": number * number for number in range(300)}


async def refresh_on_schedule(world: World, board: Board) -> RankCurve:
    """Run the next scheduled refresh. Return the curve that readers then get."""
    job = world.refresh_job()
    await job.find_due()
    assert await count_due(world, job) == 1
    await work_off(world, job)
    curve = world.book.find_curve(board, 0)
    assert curve is not None
    return curve


async def test_a_requested_scan_reports_its_progress(world: World) -> None:
    board = await world.create("b", predictor=replace(PREDICTOR, method=RefreshMethod.SCAN))
    await world.post(board, MANY)
    job = world.refresh_job()
    async with run_workers(job):
        done = await within(world.desk.refresh_now(board, 0))
    assert done.curve.method == "scan"
    told = world.observed.scanned
    assert sum(read for read, _ in told) == 300
    assert [left for _, left in told[:3]] == [300, 290, 280]
    assert told[-1][1] == 0


async def test_auto_scans_a_quiet_board_whose_sampled_curve_is_too_far_off(world: World) -> None:
    board = await world.create("b")
    await world.post(board, MANY)
    first = await refresh_on_schedule(world, board)
    assert (first.method, first.certificate) == ("skip", None)
    await world.post(board, {"one more": 5})
    second = await refresh_on_schedule(world, board)
    assert (second.method, second.total) == ("scan", 301)
    await world.post(board, {"yet another": 7})
    assert (await refresh_on_schedule(world, board)).method == "scan"


async def test_auto_scans_an_idle_board_once(world: World) -> None:
    board = await world.create("b")
    await world.post(board, MANY)
    assert (await refresh_on_schedule(world, board)).method == "skip"
    assert (await refresh_on_schedule(world, board)).method == "scan"
    assert await count_due(world, world.refresh_job()) == 0


async def test_auto_samples_a_board_that_changes_too_fast_to_be_scanned(world: World) -> None:
    board = await world.create("b")
    await world.post(board, MANY)
    await refresh_on_schedule(world, board)
    # The board gets 1,500 changes a minute, so 7 of the 300 entries (more than 1 %) change during a
    # scan of 0.3 s.
    for _ in range(5):
        await world.post(board, MANY)
    assert (await refresh_on_schedule(world, board)).method == "skip"


async def test_auto_keeps_sampling_where_the_samples_are_exact(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {f"p{number}": number % 10 for number in range(200)})
    assert (await refresh_on_schedule(world, board)).method == "skip"
    await world.post(board, {"one more": 5})
    assert (await refresh_on_schedule(world, board)).method == "skip"


@pytest.mark.parametrize("method", [RefreshMethod.SKIP, RefreshMethod.SCAN])
async def test_no_gap_holds_more_rows_than_a_count_may_read(world: World, method: RefreshMethod) -> None:
    board = await world.create("b", predictor=replace(PREDICTOR, method=method, samples=2))
    await world.post(board, MANY)
    curve = await refresh_on_schedule(world, board)
    knots = curve.knots
    gaps = [after.better_count - before.better_count - before.ties for before, after in pairwise(knots)]
    assert max(gaps) <= 100
    assert len(knots) > 2


async def create_fitted_board(world: World, entries: int) -> Board:
    board = await world.create("b", predictor=replace(PREDICTOR, method=RefreshMethod.SKIP))
    await world.post(board, {f"o{i}": i * 10 for i in range(entries)})
    await refresh(world, board)
    return board


async def test_a_live_curve_is_fitted_again_only_once_it_has_drifted(world: World) -> None:
    board = await create_fitted_board(world, 400)
    job = world.refresh_job()
    await job.find_due()
    async with open_folder(world) as folding:
        await folding.fold()
        await world.post(board, {"o7": 5})
        world.advance(REFRESH_S)
        await folding.fold()
        await job.find_due()
        assert job.waiting == 0
        # The board has 400 entries. One of its gaps gets 200 new entries.
        await world.post(board, {f"new{i}": 1_003 for i in range(200)})
        world.advance(REFRESH_S)
        await folding.fold()
        await job.find_due()
        assert job.waiting == 1
        version = world.book.find_served(board, 0)
        await work_off(world, job)
        fresh = world.book.find_served(board, 0)
        assert version is not None
        assert fresh is not None
        assert fresh.version > version.version


async def test_a_curve_that_nobody_folds_is_fitted_again_by_the_clock(world: World) -> None:
    board = await create_fitted_board(world, 400)
    job = world.refresh_job()
    await job.find_due()
    async with open_folder(world) as folding:
        await folding.fold()
    await world.post(board, {"o7": 5})
    world.advance(REFRESH_S)
    assert await count_due(world, job) == 1


async def test_changed_rules_need_a_new_curve_however_near_the_live_one_is(world: World) -> None:
    board = await create_fitted_board(world, 400)
    job = world.refresh_job()
    await job.find_due()
    await world.change(board, samples=30)
    async with open_folder(world) as folding:
        for _ in range(2):
            world.advance(REFRESH_S)
            await folding.fold()
            await job.find_due()
        assert job.waiting == 1

"""Why here: a live curve that is fitted anew by the clock costs for nothing, and one that never is drifts away."""

from __future__ import annotations

from dataclasses import replace

from storage.records import Board, RefreshMethod
from tests.jobs.folding import folder, refresh
from tests.jobs.refreshing import due, work_off
from tests.jobs.world import PREDICTOR, REFRESH_S, World


async def board_of(world: World, entries: int) -> Board:
    board = await world.create("b", predictor=replace(PREDICTOR, method=RefreshMethod.SKIP))
    await world.post(board, {f"o{i}": i * 10 for i in range(entries)})
    await refresh(world, board)
    return board


async def test_a_live_curve_near_its_fit_is_not_fitted_again_and_one_that_drifted_is(world: World) -> None:
    board = await board_of(world, 400)
    job = world.refresh_job()
    await job.find_due()
    async with folder(world) as folding:
        await folding.fold()
        await world.post(board, {"o7": 5})
        world.advance(REFRESH_S)
        await folding.fold()
        await job.find_due()
        assert job.waiting == 0
        await world.post(board, {f"new{i}": 1_003 for i in range(200)})  # one gap gets as many as half the board
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


async def test_a_curve_that_nobody_folds_goes_by_the_clock(world: World) -> None:
    board = await board_of(world, 400)
    job = world.refresh_job()
    await job.find_due()
    async with folder(world) as folding:
        await folding.fold()
    await world.post(board, {"o7": 5})
    world.advance(REFRESH_S)
    assert await due(world, job) == 1


async def test_other_rules_want_another_curve_however_near_the_live_one_is(world: World) -> None:
    board = await board_of(world, 400)
    job = world.refresh_job()
    await job.find_due()
    await world.change(board, samples=30)
    async with folder(world) as folding:
        for _ in range(2):
            world.advance(REFRESH_S)
            await folding.fold()
            await job.find_due()
        assert job.waiting == 1

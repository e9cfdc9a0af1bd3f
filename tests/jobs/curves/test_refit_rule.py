"""Test when a live curve is fitted again. Needless fits would waste work; without fits the curve would drift."""

from dataclasses import replace

import pytest

from storage.records import Board, RefreshMethod
from tests.jobs.folding import open_folder, refresh
from tests.jobs.refreshing import count_due, work_off
from tests.jobs.world import PREDICTOR, REFRESH_S, World

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # what is tested here is not in the store


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

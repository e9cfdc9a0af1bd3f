"""Test that a process loads a curve of another process at its next poll, even if an earlier poll failed."""

import asyncio

import pytest

from jobs.curves.watch import watch_curves
from predictor import Curve, Knot
from storage.curves.stored_curves import store_curve
from storage.errors import StoreBusyError
from tests.jobs.world import World

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # what is tested here is not in the store


async def test_the_next_poll_serves_a_curve_of_another_process_also_after_a_failed_one(world: World) -> None:
    board = await world.create("b")
    curve = Curve((Knot(-5, 0, 1),), total=1, as_of_us=7)
    job = asyncio.create_task(watch_curves(world.book.poll, 2, world.time.elapse))
    await world.time.wait_for_sleeper(2)
    await world.store.write(lambda: store_curve(board, 0, curve))
    world.store.failures.append(StoreBusyError())
    world.time.advance(2)
    await world.time.wait_for_sleeper(2)
    assert world.book.find_curve(board, 0) is None
    world.time.advance(2)
    await world.time.wait_for_sleeper(2)
    assert world.book.find_curve(board, 0) == curve
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)

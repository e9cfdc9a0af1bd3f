"""Helpers for tests of folding: fold once while holding the lease, and compare the curve of readers with a recount."""

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobs.curves.fold import RESOURCE, Counting, FoldJob
from jobs.ownership import HeldLease
from predictor import LiveCurve
from storage.records import Board
from tests.jobs.refreshing import run_workers
from tests.jobs.world import World, within

ROWS_MAX = 100_000


class Folder:
    """A process that folds only when a test calls `fold`."""

    def __init__(self, job: FoldJob, held: HeldLease) -> None:
        self._job, self._held = job, held
        self.counting: Counting = job.counting()

    async def fold(self) -> int:
        return await self._job.fold_changes(self._held, self.counting)


@asynccontextmanager
async def open_folder(world: World, partition: int | None = None, **limits: int) -> AsyncIterator[Folder]:
    """Claim the lease on folding, and yield a process that holds the lease. Release the lease at the end.

    The process folds the given partition, or the partition of the deployment.
    """
    job = world.fold_job(partition, **limits)
    chosen = world.deployment.partition if partition is None else partition
    async with world.hold_job_lease(RESOURCE, 10_000_000, partition=chosen) as held:
        yield Folder(job, held)


async def refresh(world: World, board: Board, column_index: int = 0) -> None:
    job = world.refresh_job()
    async with run_workers(job):
        await within(world.desk.refresh_now(board.leaf, column_index))
    world.meter.events["rankcurve_refresh_seconds"].get_nowait()


async def keys_of(world: World, board: Board, column_index: int = 0) -> list[int]:
    entries = world.deployment.entries(board)
    rows = await world.store.at(board.partition).read(lambda: entries.rankings[column_index].read_first_rows(ROWS_MAX))
    return [entries.rankings[column_index].padding.key_of_cell(str(row.cells[column_index])) for row in rows]


async def assert_live(world: World, board: Board, column_index: int = 0) -> LiveCurve:
    """Check that readers get a live curve that agrees with a recount at every knot and every value.

    Return this curve.
    """
    served = world.served(board, column_index)
    assert served.live_version
    live = served.curve
    assert isinstance(live, LiveCurve)
    keys = await keys_of(world, board, column_index)
    assert live.total == len(keys)
    edges = [knot.key for knot in live.fit.knots]
    for knot in live.knots:
        better_count = bisect_left(keys, knot.key)
        assert (knot.better_count, knot.ties) == (better_count, bisect_right(keys, knot.key) - better_count)
    for key in {*keys, *edges, *(key + 1 for key in keys)}:
        gap, bracket = live.find_gap(key), live.locate(key)
        assert gap.better_count == (0 if gap.better_key is None else bisect_right(keys, gap.better_key))
        assert bracket.low <= 1 + bisect_left(keys, key) <= bracket.high
    return live

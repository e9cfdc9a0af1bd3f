"""Test that queue workers empty the queues of all partitions, and that no partition waits for another one."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from querybuilder import Bound
from storage.queue.workers import read_queue_state
from storage.records import Board
from storage.store import CONTROL, Program, Store, in_partition
from tests.jobs.queue.test_drain import LIMITS, Place
from tests.jobs.world import World
from tests.schemas import PARTITIONS
from tests.storage.deployment import part, ranked
from tests.storage.meddling import interpose
from tests.storage.passing import PassingStore
from tests.storage.queueing import SHARDS, QueueDesk

pytestmark = pytest.mark.parametrize("world", ["partitions"], indirect=True)
T = TypeVar("T")


class StuckPartition(PassingStore):
    """A store in which no round of the partition `stuck` succeeds."""

    def __init__(self, store: Store, stuck: int | None) -> None:
        super().__init__(store)
        self.stuck = stuck

    async def write(self, program: Callable[[], Program[T]]) -> T:
        def check(query: Bound) -> None:
            takes_blocks = query.build(self.dialect).sql.startswith("DELETE FROM") and "numbers" in query.params
            if takes_blocks and query.partition == self.stuck:
                raise RuntimeError("refused")

        return await self._store.write(lambda: interpose(program(), check))


async def enqueue(desk: QueueDesk, boards: list[Board]) -> None:
    """Queue a post to each board, and one to all of them."""
    alone = [desk.deployment.post("ada", part(board, {"xp": 1})) for board in boards]
    await desk.enqueue(*alone, desk.deployment.post("ada", *(part(board, {"xp": 1}) for board in boards)))


async def test_one_worker_empties_the_queues_of_all_partitions(world: World) -> None:
    desk = await QueueDesk.on(world.deployment, everywhere=True)
    boards = await world.deployment.create_everywhere(ranked("xp"))
    place = Place(desk, boards[0])
    await enqueue(desk, boards)
    async with place.run_worker():
        for _ in range(PARTITIONS + 1):
            await place.wait_for_round()
        await place.wait_until_idle()
    assert [await world.deployment.value(board, "ada") for board in boards] == [2] * PARTITIONS
    assert max(place.list_depths()) == PARTITIONS + 1, "the backlog is that of all partitions"


async def test_a_partition_whose_rounds_fail_does_not_stop_the_others(world: World) -> None:
    desk = await QueueDesk.on(world.deployment, everywhere=True)
    boards = await world.deployment.create_everywhere(ranked("xp"))
    store = desk.store
    desk.store = stuck = StuckPartition(store, 0)
    place = Place(desk, boards[0])
    await enqueue(desk, boards)
    async with place.run_worker():
        for _ in range(PARTITIONS):
            await place.wait_for_round()
        pause_s = await place.time.wait_for_sleeper()
        assert [await world.deployment.value(board, "ada") for board in boards] == [1, 2, 2, 2]
        stuck.stuck = None
        place.advance(pause_s)
        await place.wait_for_round()
    assert pause_s == 2 * LIMITS.job_backoff_base_s
    assert await world.deployment.value(boards[0], "ada") == 2


async def test_the_number_of_workers_follows_the_work_in_all_partitions(world: World) -> None:
    desk = await QueueDesk.on(world.deployment, everywhere=True)
    for number, partition in enumerate((CONTROL, 0, 3)):
        counting = partial(desk.queue.add_counts, dict.fromkeys(range(SHARDS), 10 + number), busy_us=1_000_000)
        await desk.store.write(lambda: in_partition(partition, counting()))  # noqa: B023 - run at once
    counts = (await world.store.read(lambda: read_queue_state(desk.semaphore, desk.queues))).counts.values()
    assert sum(each.applied for each in counts) == (10 + 11 + 12) * SHARDS
    assert sum(each.busy_us for each in counts) == 3_000_000

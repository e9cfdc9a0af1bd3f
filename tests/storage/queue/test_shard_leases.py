"""Test that every shard has exactly one worker, and that the semaphore limits the number of working workers."""

from dataclasses import replace

from storage.queue.workers import Sizing
from tests.storage.queueing import LEASE_US, SHARDS, QueueDesk


async def resize(desk: QueueDesk, size: int) -> None:
    """Store a new number of workers, as the job that measures the workers would do."""
    desk.clock.now_us += 1
    found = await desk.store.read(desk.semaphore.sizing)
    sizing = Sizing(size, 2 * size, 3, desk.clock())
    assert await desk.store.write(lambda: desk.semaphore.resize(sizing, found=found))
    late = await desk.store.write(lambda: desk.semaphore.resize(replace(sizing, size=9), found=found))
    assert not late, "a sizing that was changed meanwhile is refused"
    assert await desk.store.read(desk.semaphore.sizing) == sizing


async def test_the_shards_of_a_worker_that_died_are_taken_over_when_its_lease_ends(desk: QueueDesk) -> None:
    ada, bob, cleo = desk.worker("ada"), desk.worker("bob"), desk.worker("cleo")
    await desk.update_share(ada)
    await desk.update_share(bob)
    await desk.update_share(ada)
    desk.clock.now_us += LEASE_US - 1
    await desk.update_share(bob)
    await desk.update_share(cleo)
    assert cleo.share.permit is None
    assert len(bob.share.shards) == 1
    desk.clock.now_us += 1
    await desk.update_share(cleo)
    await desk.update_share(bob)
    await desk.update_share(cleo)
    assert sorted(bob.shards + cleo.shards) == list(range(SHARDS))


async def test_the_number_of_working_workers_follows_the_size_down_and_up(desk: QueueDesk) -> None:
    workers = [desk.worker(name) for name in ("ada", "bob", "cleo", "dan")]

    async def tended(times: int = 3) -> list[int]:
        for _ in range(times):
            for worker in workers:
                await desk.update_share(worker)
        return [len(worker.share.shards) for worker in workers]

    assert sorted(await tended()) == [0, 0, 1, 2]
    await resize(desk, 3)
    assert sorted(await tended()) == [0, 1, 1, 1]
    await resize(desk, 1)
    assert sorted(await tended()) == [0, 0, 0, 3]
    permits = [worker.share.permit for worker in workers if worker.share.permit is not None]
    assert [permit.resource for permit in permits] == ["1"]
    assert await desk.store.read(desk.semaphore.holders) == 1


async def test_some_workers_have_no_shard_if_workers_outnumber_shards(desk: QueueDesk) -> None:
    await resize(desk, SHARDS + 2)
    workers = [desk.worker(f"worker {number}") for number in range(SHARDS + 2)]
    for _ in range(3):
        for worker in workers:
            await desk.update_share(worker)
    assert sorted(len(worker.share.shards) for worker in workers) == [0, 0, 1, 1, 1]
    assert all(worker.share.permit is not None for worker in workers)

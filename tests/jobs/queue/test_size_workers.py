"""Test that the number of workers follows the measurements, on every store, whichever process measures."""

from config.settings import Settings
from jobs.queue.size_workers import SizeWorkersJob
from storage.queue.workers import Sizing
from tests.jobs.world import World
from tests.storage.deployment import part, ranked
from tests.storage.queueing import SHARDS, QueueDesk

LIMITS = Settings(ingest_workers_max=8).model_copy(update={"ingest_sizing_s": 5})


class Meter:
    """A process that measures how busy the workers are. The test simulates their work."""

    def __init__(self, desk: QueueDesk) -> None:
        self.desk, self.process = desk, World(desk.deployment)
        self.job = SizeWorkersJob(self.process.context(LIMITS), desk.semaphore)

    async def measure_later(self) -> None:
        """Measure again one window of time later, by the clock of this process only."""
        self.process.time.advance(LIMITS.ingest_sizing_s)
        await self.job.measure()

    async def play_window(self, *, posts_per_s: float, busy_workers: float) -> int:
        """Simulate and measure the work of one window of time. Return the number of workers that the job then sets."""
        seconds = LIMITS.ingest_sizing_s
        applied = {shard: round(posts_per_s * seconds / SHARDS) for shard in range(SHARDS)}
        busy_us = round(busy_workers * seconds * 1e6)
        await self.desk.store.write(lambda: self.desk.queue.add_counts(applied, busy_us=busy_us))
        self.process.advance(seconds)
        await self.job.measure()
        return (await self.desk.store.read(self.desk.semaphore.sizing)).size


async def open_busy_desk(world: World) -> QueueDesk:
    """Create a queue with eight workers and one waiting post, which no worker takes."""
    desk = await QueueDesk.on(world.deployment)
    await desk.store.write(lambda: desk.semaphore.resize(_sized(8), found=_sized(0)))
    for number in range(8):
        holder = f"worker {number}"
        await desk.store.write(lambda holder=holder: desk.semaphore.keep_permit(None, holder=holder, lease_us=10**12))  # type: ignore[misc]
    board = await desk.deployment.create("b", ranked("xp"))
    await desk.enqueue(desk.deployment.post("ada", part(board, {"xp": 1})))
    desk.clock.now_us += 10_000_000
    return desk


async def test_a_store_of_2100_posts_a_second_gets_three_workers_of_700(world: World) -> None:
    desk = await open_busy_desk(world)
    meter = Meter(desk)
    await meter.job.measure()
    assert await meter.play_window(posts_per_s=300, busy_workers=300 / 700) == 8, "no worker slowed another one down"
    assert await meter.play_window(posts_per_s=2_100, busy_workers=8) == 8, "one window may be chance"
    assert await meter.play_window(posts_per_s=2_100, busy_workers=8) == 3
    sizing = await desk.store.read(desk.semaphore.sizing)
    assert (sizing.capacity, round(sizing.speed, -1)) == (2_100, 690)


async def test_measuring_writes_nothing_if_nothing_was_applied(world: World) -> None:
    desk = await QueueDesk.on(world.deployment)
    meter = Meter(desk)
    before = await desk.store.read(desk.semaphore.sizing)
    for _ in range(3):
        await meter.measure_later()
    assert await desk.store.read(desk.semaphore.sizing) == before
    assert before.sized_at_us == 0, "no row was written"


async def test_two_processes_that_measure_change_the_number_once(world: World) -> None:
    desk = await open_busy_desk(world)
    first, second = Meter(desk), Meter(desk)
    await first.job.measure()
    await second.job.measure()
    sizes = []
    for posts_per_s, busy_workers in ((300, 300 / 700), (2_100, 8), (2_100, 8)):
        sizes.append(await first.play_window(posts_per_s=posts_per_s, busy_workers=busy_workers))
        await second.measure_later()
    assert sizes == [8, 8, 3]
    assert (await desk.store.read(desk.semaphore.sizing)).size == 3


def _sized(size: int) -> Sizing:
    return Sizing(size, 0, 0, size)

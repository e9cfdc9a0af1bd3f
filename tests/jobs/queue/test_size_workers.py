"""Test that the number of workers follows the measurements: too few leave the store idle, too many slow each other."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import Settings
from jobs.queue import REST_WINDOWS, SizeWorkersJob, Window, WorkerCount, workers_for
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


MOST = 8
WINDOW_S = 5.0


class Store:
    """A simulated store. One worker applies `speed` posts per second, and all workers together at most `capacity`."""

    def __init__(self, capacity: float, speed: float) -> None:
        self.capacity, self.speed = capacity, speed

    def play_window(self, workers: int, *, arriving: float = float("inf")) -> Window:
        """Return the measurements of one window of time with these workers and `arriving` posts per second."""
        able = min(self.capacity, workers * self.speed)
        done = min(able, arriving)
        busy_s = workers * WINDOW_S * done / able
        return Window(WINDOW_S, round(done * WINDOW_S), busy_s, workers, waiting=arriving > able)


def record_windows(
    store: Store, *, size: int, windows: int = 40, there: int = MOST, arriving: float = float("inf")
) -> list[int]:
    """Record one window with a single worker, and then `windows` more. Return the estimated size after each window.

    At most `there` workers work, even if the size is larger.
    """
    count = WorkerCount(most=MOST)
    count.record_window(store.play_window(1, arriving=store.speed / 2), size=size)
    sizes = [size]
    for _ in range(windows):
        sizes.append(count.record_window(store.play_window(min(sizes[-1], there), arriving=arriving), size=sizes[-1]))
    return sizes


@pytest.mark.parametrize(
    ("capacity", "speed", "workers"),
    [(2_100, 700, 3), (2_100, 710, 3), (2_120, 700, 3), (2_300, 700, 4), (10, 700, 1), (70_000, 700, MOST)],
)
def test_the_number_is_capacity_over_speed_rounded_up_in_bounds(capacity: float, speed: float, workers: int) -> None:
    assert workers_for(capacity, speed, most=MOST) == workers


def test_workers_that_wait_for_posts_are_left_as_they_are() -> None:
    assert set(record_windows(Store(2_100, 700), size=2, arriving=900)) == {2}


@pytest.mark.parametrize(
    ("window", "size"),
    [(replace(Store(2_100, 700).play_window(8), waiting=False), 8), (Store(300, 300).play_window(1), 4)],
    ids=["workers keep up, however busy", "one worker works alone"],
)
def test_the_number_stays_while_nothing_can_be_learned(window: Window, size: int) -> None:
    count = WorkerCount(most=MOST)
    count.record_window(Store(2_100, 700).play_window(1, arriving=10), size=size)
    assert {count.record_window(window, size=size) for _ in range(5)} == {size}


def test_a_faster_store_gets_more_workers_and_a_slower_one_fewer() -> None:
    count, size = WorkerCount(most=MOST), 1
    for store, wanted in ((Store(2_100, 700), 3), (Store(4_200, 700), 6), (Store(1_400, 700), 2)):
        sizes = []
        for _ in range(120):
            size = count.record_window(store.play_window(size), size=size)
            sizes.append(size)
        assert sum(abs(each - wanted) <= 1 for each in sizes[-30:]) == 30, (wanted, sizes)


def test_after_a_worker_that_did_not_pay_no_other_is_tried_for_a_while() -> None:
    sizes = record_windows(Store(2_100, 700), size=3, windows=200)
    tries = [index for index in range(1, len(sizes)) if sizes[index] > sizes[index - 1]]
    assert len(tries) <= 200 / REST_WINDOWS
    assert all(later - earlier > REST_WINDOWS for earlier, later in pairwise(tries))


def test_the_number_stays_if_there_are_fewer_processes_than_permits() -> None:
    assert set(record_windows(Store(10_000, 700), size=4, there=2)) == {4}


@given(
    capacity=st.floats(1, 1e6),
    speed=st.floats(1, 1e6),
    size=st.integers(1, MOST),
    arriving=st.lists(st.floats(0, 1e6), max_size=30),
)
def test_the_number_stays_within_its_bounds(capacity: float, speed: float, size: int, arriving: list[float]) -> None:
    store, count = Store(capacity, speed), WorkerCount(most=MOST)
    for rate in arriving:
        after = count.record_window(store.play_window(size, arriving=rate), size=size)
        assert 1 <= after <= MOST
        assert after <= size + 1
        size = after

"""Test that a queue worker finds and applies posts, keeps and releases its leases, and pauses after failures."""

import asyncio
import dataclasses
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from config.settings import Settings
from jobs.queue import QUIET_AFTER_S, QUIET_POLLS, DrainWorker, QueueParts
from jobs.wiring import JobParts, start_jobs
from storage.errors import StoreAwayError
from storage.queue.workers import Sizing
from storage.records import Board, Merge
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import World, within
from tests.meter import CLEARED
from tests.storage.deployment import counter, part, ranked
from tests.storage.meddling import MeddlingStore
from tests.storage.queueing import LEASE_US, SHARDS, QueueDesk
from tests.storage.queueing import LIMITS as DRAIN_LIMITS

pytestmark = pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # the store makes no difference here
LEASE_S = LEASE_US / 1e6
LIMITS = Settings(ingest_lease_s=LEASE_S).model_copy(
    update={
        "lease_renewal_ratio": 0.3, "ingest_poll_s": 0.1, "ingest_gather_s": 0, "ingest_look_s": 1,
        "job_backoff_base_s": 0.5, "ingest_backoff_s_max": 3,
    }
)  # fmt: skip
DEPTH = "rankcurve_ingest_posts"


class Place:
    """A process with a queue worker. Only the test advances the clocks of the process."""

    def __init__(self, desk: QueueDesk, board: Board, name: str = "ada", limits: Settings = LIMITS) -> None:
        self.desk, self.board = desk, board
        self.store, self.wake = MeddlingStore(desk.store), asyncio.Event()
        process = World(desk.deployment)
        self.time, self.advance, self.meter = process.time, process.advance, process.meter
        parts = desk.worker(name, store=self.store)
        context = replace(process.context(limits), store=self.store)
        self.worker = DrainWorker(context, parts.make_drainer, parts.leases, wake=self.wake, sleep=self.time.elapse)

    def run_worker(self) -> AbstractAsyncContextManager[None]:
        return run_jobs(self.worker)

    async def enqueue(self, *owners: str) -> None:
        """Queue one post for each owner. Each post adds one point."""
        stats = part(self.board, {"xp": 1, "last": 1})
        await self.desk.enqueue(*(self.desk.deployment.post(owner, stats) for owner in owners))

    async def wait_until_idle(self) -> None:
        """Wait until the worker has applied all posts and waits for new ones."""
        await self.time.wait_for_sleeper(LIMITS.ingest_poll_s)

    async def wait_for_round(self) -> float:
        """Wait for the next round, and return its number of posts."""
        return await within(self.meter.events["rankcurve_ingest_round_posts"].get())

    def list_depths(self) -> list[float]:
        """Return what the worker has reported as the depths of the queue."""
        return self.meter.values[DEPTH]

    async def read_xp(self, owner: str) -> int:
        stats = await self.desk.deployment.stats(self.board, owner)
        return 0 if stats is None else int(stats["xp"] or 0)


@pytest.fixture
async def place(world: World) -> Place:
    board = await world.deployment.create("b", ranked("xp"), counter("last", merge=Merge.LAST))
    return Place(await QueueDesk.on(world.deployment), board)


async def test_a_worker_writes_nothing_while_no_posts_wait(place: Place) -> None:
    async with place.run_worker():
        for _ in range(5):
            await place.wait_until_idle()
            place.advance(LIMITS.ingest_poll_s)
        await place.wait_until_idle()
    assert place.store.writes == 0
    assert set(place.list_depths()) == {0}


async def test_a_worker_finds_posts_within_a_poll_and_those_of_its_own_process_at_once(place: Place) -> None:
    async with place.run_worker():
        await place.wait_until_idle()
        await place.enqueue("ada", "bob")
        place.advance(LIMITS.ingest_poll_s)
        assert await place.wait_for_round() == 2
        await place.wait_until_idle()
        await place.enqueue("ada")
        place.wake.set()
        assert await place.wait_for_round() == 1
    assert (await place.read_xp("ada"), await place.read_xp("bob")) == (2, 1)
    assert place.meter.values["rankcurve_ingest_applied_age_seconds"] == [LIMITS.ingest_poll_s, 0]


async def test_posts_are_applied_at_the_stores_time_by_a_process_whose_clock_is_ahead(place: Place) -> None:
    clock, process = place.desk.deployment.clock, World(place.desk.deployment)
    context = process.context(LIMITS.model_copy(update={"ingest_workers": 1}))
    fields = {each.name: getattr(context, each.name) for each in dataclasses.fields(context)}
    fields |= {"now_us": lambda: clock() + 40 * 86_400_000_000, "monotonic": time.monotonic}
    queue = QueueParts(SHARDS, place.desk.leases, asyncio.Event(), place.desk.semaphore)
    await place.enqueue("ada")
    jobs = start_jobs(JobParts(**fields, refresher=process.desk, queue=queue))
    await within(process.meter.events["rankcurve_ingest_round_posts"].get())
    await jobs.stop()
    entry = (await place.desk.deployment.rows(place.board, ["ada"]))["ada"]
    assert entry.updated_at_us == clock()


async def test_a_worker_lets_posts_gather_unless_its_round_left_some(place: Place) -> None:
    patient = Place(place.desk, place.board, limits=LIMITS.model_copy(update={"ingest_gather_s": 0.04}))
    await patient.enqueue(*(f"owner {number}" for number in range(DRAIN_LIMITS.ingest_round_posts_max + 1)))
    async with patient.run_worker():
        assert await patient.wait_for_round() == DRAIN_LIMITS.ingest_round_posts_max
        assert await patient.wait_for_round() == 1
        await patient.enqueue("ada")
        patient.wake.set()
        assert await patient.time.wait_for_sleeper() == pytest.approx(0.04)
        await patient.enqueue("bob")
        assert patient.meter.events["rankcurve_ingest_round_posts"].empty()
        patient.advance(0.05)
        assert await patient.wait_for_round() == 2


async def test_a_worker_that_lets_posts_gather_still_renews_its_leases_in_time(place: Place) -> None:
    patient = Place(place.desk, place.board, limits=LIMITS.model_copy(update={"ingest_gather_s": 60}))
    await patient.enqueue("ada")
    async with patient.run_worker():
        await patient.wait_for_round()
        assert await patient.time.wait_for_sleeper() == pytest.approx(LEASE_S * LIMITS.lease_renewal_ratio)


async def test_a_worker_looks_less_often_after_a_quiet_time_and_can_still_be_woken(place: Place) -> None:
    async with place.run_worker():
        await place.wait_until_idle()
        place.advance(QUIET_AFTER_S + 1)
        await place.time.wait_for_sleeper(QUIET_POLLS * LIMITS.ingest_poll_s)
        await place.enqueue("ada")
        place.wake.set()
        await place.wait_for_round()
        await place.wait_until_idle()
    assert await place.read_xp("ada") == 1


async def test_a_worker_keeps_its_leases_while_posts_come_and_lets_them_lapse_otherwise(place: Place) -> None:
    async with place.run_worker():
        await place.wait_until_idle()
        for _ in range(30):
            await place.enqueue("ada")
            place.advance(LIMITS.ingest_poll_s)
            await place.wait_for_round()
            await place.wait_until_idle()
        held = await place.desk.store.read(lambda: place.desk.leases.find_held("ingest"))
        assert len(held) == SHARDS
        assert {lease.version for lease in held.values()} == {1}
        writes = place.store.writes
        for _ in range(20):
            place.advance(LIMITS.ingest_poll_s)
            await place.wait_until_idle()
        assert place.store.writes == writes
        held = await place.desk.store.read(lambda: place.desk.leases.find_held("ingest"))
        assert not held


async def test_a_worker_that_stops_releases_its_shards_at_once(place: Place) -> None:
    await place.enqueue("ada")
    async with place.run_worker():
        await place.wait_for_round()
    other = Place(place.desk, place.board, "bob")
    await other.enqueue("bob")
    async with other.run_worker():
        await other.wait_for_round()
    assert await place.read_xp("bob") == 1


async def test_a_worker_that_was_fenced_off_claims_again_and_goes_on(place: Place) -> None:
    await place.enqueue("ada")
    async with place.run_worker():
        await place.wait_for_round()
        await place.wait_until_idle()
        # Only the store's clock advances. The process's monotonic clock does not, as if the process had been suspended.
        place.desk.clock.now_us += LEASE_US
        other = place.desk.worker("other")
        await place.desk.update_share(other)
        await place.enqueue("ada")
        place.wake.set()
        await within(place.meter.events["rankcurve_ingest_fenced"].get())
        await place.wait_until_idle()
        assert await place.read_xp("ada") == 1
        await place.desk.store.write(lambda: other.leases.release_share(other.share))
        place.advance(LEASE_S)
        await place.wait_for_round()
    assert await place.read_xp("ada") == 2


async def test_a_worker_without_a_permit_takes_back_the_backlog_that_it_reported(place: Place) -> None:
    await place.enqueue("ada")
    nobody = Sizing(size=0, capacity=0, speed=0, sized_at_us=1)
    async with place.run_worker():
        await place.wait_for_round()
        await place.wait_until_idle()
        told = list(place.list_depths())
        await place.desk.store.write(lambda: place.desk.semaphore.resize(nobody, found=Sizing(0, 0, 0, 0)))
        await place.enqueue("ada")
        place.advance(LEASE_S)
        await place.wait_until_idle()
    assert told
    assert CLEARED not in told
    assert place.list_depths()[-1] == place.meter.values["rankcurve_ingest_age_seconds"][-1] == CLEARED
    assert DEPTH not in place.meter.gauges


async def test_a_store_that_is_away_is_tried_again_after_growing_pauses_and_logged_once(place: Place) -> None:
    await place.enqueue("ada")
    place.store.meddle = [StoreAwayError("gone")] * 4
    pauses = []
    with capture_logs() as lines:
        async with place.run_worker():
            for _ in range(4):
                pauses.append(await place.time.wait_for_sleeper())
                place.advance(pauses[-1])
            await place.wait_for_round()
    assert pauses == [1, 2, 3, 3]
    levels = [line["log_level"] for line in lines if line["event"] == "drain_failed"]
    assert levels == ["warning", "debug", "debug", "debug"]
    assert await place.read_xp("ada") == 1

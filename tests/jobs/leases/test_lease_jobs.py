"""Test the jobs of lease pools: no step loses a resource or gives it to two keys, and an absent peer does no harm."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from config.settings import Settings
from jobs.controls import Sleep
from jobs.leases.liberate import LiberateJob
from jobs.leases.peer_journals import ExchangeJob, PeerUnavailableError
from jobs.leases.rebalance import BalanceJob, Transfer
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.lease_records import Grant, LeaseRequest, RegionCounts
from storage.leases.peers import remote_leases
from storage.leases.work_leases import WorkLeases
from storage.store import CONTROL
from tests.jobs.world import World
from tests.storage.leasing import CLIENT, LEASE_US, MARGIN_US, Pools

MINUTE_US = 60_000_000
LIMITS = Settings(
    liberate_interval_s=3_600, lease_journal_retention_s=1_000, balance_interval_s=300, lease_margin_s=MARGIN_US / 1e6
).model_copy(
    update={
        "liberate_rows_max": 5, "lease_expired_counted_max": 1_000, "balance_horizon_s": 600,
        "balance_half_life_s": 600, "balance_moves_max": 1_000, "balance_step_rows_max": 7,
    }
)  # fmt: skip


async def no_pause(_seconds: float) -> None:
    pass


class Upkeep:
    """The lease jobs of one process, on pools whose clock only the test advances."""

    def __init__(self, world: World, sleep: Sleep = no_pause, pools: Pools | None = None) -> None:
        self.world, self.pools = world, pools or Pools(world.deployment)
        leases = WorkLeases(self.pools.clock.read, margin_us=MARGIN_US)
        context = replace(world.context(LIMITS), leases=leases, sleep=sleep, rng=random.Random(5))
        self.liberate_job, self.balance_job = LiberateJob(context), BalanceJob(context)

    async def ask(self, keys: int, *, region: str, named: str, lease_us: int = 1_000 * MINUTE_US) -> list[Grant]:
        """Request a lease for each of `keys` new keys: `named` and a number. Return the granted leases."""
        asked = [LeaseRequest(CLIENT, "numbers", f"{named}{key}", region, None, lease_us) for key in range(keys)]
        return [one for one in await self.pools.run(*asked) if isinstance(one, Grant)]


@pytest.fixture
async def upkeep(world: World) -> Upkeep:
    made = Upkeep(world)
    await made.pools.create()
    await made.pools.add(*(f"e{number}" for number in range(40)), region="eu")
    await made.pools.add(*(f"u{number}" for number in range(10)), region="us")
    return made


async def test_ended_leases_are_liberated_in_bounded_steps_and_their_keys_find_them_again(upkeep: Upkeep) -> None:
    pools = upkeep.pools
    given = await upkeep.ask(12, region="eu", named="k", lease_us=LEASE_US)
    await pools.ask("long", lease_us=100 * LEASE_US)
    pools.clock.now_us += LEASE_US + MARGIN_US - 1
    assert await upkeep.liberate_job.liberate_expired() == 0
    pools.clock.now_us += 1
    assert await upkeep.liberate_job.liberate_expired() == 12
    assert (await pools.counts())["eu"] == RegionCounts(total=40, held=1, acquired=13)
    assert sum(kind == "liberated" for kind, _, _ in await pools.summarize_events()) == 12
    again = await pools.ask("k3")
    assert (again.resource, again.version, again.acquired) == (given[3].resource, given[3].version + 1, True)
    pools.clock.now_us += 1
    assert await upkeep.liberate_job.liberate_expired() == 0


async def test_a_region_that_runs_out_gets_free_resources_of_other_regions(upkeep: Upkeep) -> None:
    pools = upkeep.pools
    assert await upkeep.balance_job.balance_pools() == 0, "nothing was measured yet"
    assert len(await upkeep.ask(2, region="eu", named="e")) == 2
    assert len(await upkeep.ask(15, region="us", named="u")) == 10
    pools.clock.now_us += 5 * MINUTE_US
    moved = await upkeep.balance_job.balance_pools()
    assert moved == upkeep.world.meter.counts["rankcurve_lease_resources_moved"] > 10
    counts = await pools.counts()
    assert counts["eu"].total + counts["us"].total == 50
    assert counts["us"].total == 10 + moved
    assert len(await upkeep.ask(5, region="us", named="more")) == 5
    rows = await pools.rows()
    assert len(rows) == 50
    assert sum(row.region == "us" for row in rows) == counts["us"].total
    assert sum(kind == "moved" for kind, _, _ in await pools.summarize_events()) == moved
    assert sorted(row.resource for row in rows if not row.is_free and row.region == "eu") != []


async def test_another_process_uses_what_a_process_measured(upkeep: Upkeep) -> None:
    pools = upkeep.pools
    await upkeep.balance_job.balance_pools()
    await upkeep.ask(15, region="us", named="u")
    pools.clock.now_us += 5 * MINUTE_US
    another = Upkeep(upkeep.world.beside(), pools=pools)
    assert await another.balance_job.balance_pools() > 10


async def test_ended_leases_move_without_being_liberated_first_and_running_ones_stay(upkeep: Upkeep) -> None:
    pools = upkeep.pools
    pool = await pools.pool()
    given = await upkeep.ask(30, region="eu", named="k", lease_us=LEASE_US)
    assert len(await upkeep.ask(8, region="eu", named="long")) == 8
    pools.clock.now_us += LEASE_US + MARGIN_US
    transfer = Transfer("eu", "us", 40)
    move = partial(upkeep.balance_job.move_resources, pool, transfer, 40)
    assert await pools.store.write(move) == 32, "2 resources were free, 30 leases had ended"
    counts = await pools.counts()
    assert counts["eu"] == RegionCounts(total=8, held=8, acquired=38)
    assert (counts["us"].total, counts["us"].held) == (42, 0)
    assert sum(kind == "liberated" for kind, _, _ in await pools.summarize_events()) == 30
    again = await pools.ask("k3", region="eu")
    assert (again.resource, again.region) == (given[3].resource, "us"), "its key finds it again"
    assert again.version == given[3].version + 2, "one for the move, one for the new lease"
    assert len(await upkeep.ask(41, region="us", named="more")) == 41


@pytest.mark.parametrize(
    ("asked_a_minute", "lease_minutes"),
    [(lambda minute: 5, 600), (lambda minute: 1, 600), (lambda minute: minute, 600), (lambda minute: 5, 8)],
    ids=["many", "few", "growing", "short"],
)
async def test_after_one_round_no_key_is_refused_while_another_region_has_ended_leases(
    world: World, asked_a_minute: Callable[[int], int], lease_minutes: int
) -> None:
    upkeep = Upkeep(world)
    pools = upkeep.pools
    await pools.create()
    await pools.add(*(f"e{number}" for number in range(100)), region="eu")
    await pools.add("u0", region="us")
    await upkeep.balance_job.balance_pools()
    assert len(await upkeep.ask(100, region="eu", named="first", lease_us=20 * MINUTE_US)) == 100
    refused: list[int] = []
    given = 0
    for minute in range(1, 70):
        pools.clock.now_us += MINUTE_US
        if minute % 5 == 0:
            await upkeep.balance_job.balance_pools()
        keys = asked_a_minute(minute - 20) if minute > 20 else 0
        got = len(await upkeep.ask(keys, region="us", named=f"{minute}/", lease_us=lease_minutes * MINUTE_US))
        given += got
        if got < keys:
            leased = sum(row.expires_at_us > pools.clock.now_us - MARGIN_US for row in await pools.rows())
            refused += [minute] if leased < 101 else []
    assert set(refused) <= {21, 22, 23, 24}, "the first round is at minute 25"
    assert given >= min(100, sum(asked_a_minute(minute) for minute in range(5, 50)))


async def test_the_journal_is_pruned_after_its_retention(upkeep: Upkeep) -> None:
    pools = upkeep.pools
    await pools.ask("old")
    pools.clock.now_us += round(LIMITS.lease_journal_retention_s * 1e6) + 1
    await pools.ask("new")
    await upkeep.liberate_job.prune_journal()
    assert [(kind, key) for kind, _, key in await pools.summarize_events()][-1] == ("acquired", "new")
    assert ("acquired", "old") not in [(kind, key) for kind, _, key in await pools.summarize_events()]


class StoppedError(Exception):
    """An error that the test's `sleep` raises at the third pause of a job, so that the job ends."""


async def test_a_job_rests_until_its_next_turn_and_another_process_does_not_work_twice(world: World) -> None:
    pauses_s: list[float] = []

    async def sleep(seconds: float) -> None:
        if seconds < 60:  # a task that renews the lease sleeps less than 60 s; the job pauses for 60 s
            return await world.time.elapse(seconds)
        pauses_s.append(seconds)
        if len(pauses_s) == 3:
            raise StoppedError

    upkeep = Upkeep(world, sleep)
    with pytest.raises(StoppedError):
        await upkeep.liberate_job.run_forever()
    assert pauses_s == [60, 60, 60]
    lease = await world.store.at(CONTROL).read(lambda: world.leases.find_lease("job", "liberate"))
    assert lease is not None
    assert lease.version == 1, "the job rests"


EXCHANGE_LIMITS = Settings(lease_exchange_interval_s=1).model_copy(update={"lease_exchange_rows_max": 2})


class Peer:
    """The lease journal of another store, which a test fills, and the exchange job that reads it."""

    def __init__(self, world: World) -> None:
        self.world, self.pools = world, Pools(world.deployment)
        self.events: list[PublishedLeaseEvent] = []
        self.away = False
        self.asked: list[int] = []
        self.taken = world.meter.events["rankcurve_lease_events_exchanged"]
        self.failures = world.meter.events["rankcurve_lease_peer_failures"]
        exchange = self.pools.exchange("here")
        self.job = ExchangeJob(world.context(EXCHANGE_LIMITS), exchange, self.read, peer="us")

    async def read(self, _peer: str, after: int, limit: int) -> list[PublishedLeaseEvent]:
        self.asked.append(after)
        if self.away:
            raise PeerUnavailableError("gone")
        return [event for event in self.events if event.number > after][:limit]

    def add_leases(self, *keys: str) -> None:
        """Add an event to the journal for each key: the key has acquired a lease."""
        for key in keys:
            number = len(self.events) + 1
            now_us = self.pools.clock.now_us
            until_us = now_us + 10**9
            self.events.append(
                PublishedLeaseEvent(number, CLIENT, "numbers", "acquired", f"r{number}", key, "us", 1, now_us, until_us)
            )

    async def read_known_keys(self) -> set[str]:
        pool = await self.pools.pool()
        keys = [(pool.key, event.key or "") for event in self.events]
        found = await self.world.store.read(lambda: remote_leases.find_by_keys(keys))
        return {key for _, key in found}


@pytest.fixture
async def peer(world: World) -> AsyncIterator[Peer]:
    made = Peer(world)
    await made.pools.create()
    following = asyncio.create_task(made.job.run_forever())
    yield made
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def test_the_job_reads_on_after_a_full_page_and_pauses_at_the_end(peer: Peer) -> None:
    peer.add_leases("a", "b", "c", "d", "e")
    assert [await peer.taken.get() for _ in range(3)] == [2, 2, 1]
    assert await peer.read_known_keys() == set("abcde")
    peer.add_leases("f")
    await peer.world.time.end_sleep(1)
    assert await peer.taken.get() == 1
    assert peer.asked[:4] == [0, 2, 4, 5]


async def test_the_job_asks_an_absent_peer_again_and_misses_nothing(peer: Peer) -> None:
    peer.away = True
    peer.add_leases("a")
    for _ in range(3):
        await peer.world.time.end_sleep(1)
        await peer.failures.get()
    peer.away = False
    await peer.world.time.end_sleep(1)
    await peer.taken.get()
    assert await peer.read_known_keys() == {"a"}

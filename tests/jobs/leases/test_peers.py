"""Test that an unreachable peer does no harm, except that this store does not learn the peer's new leases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from config.settings import Settings
from jobs.leases.peers import ExchangeJob, PeerUnavailableError
from jobs.observer import JobObserver
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.peers.elsewhere import remote_leases
from storage.leases.peers.exchange import AppliedPage
from tests.jobs.world import World
from tests.storage.leasing import CLIENT, Pools

LIMITS = Settings(lease_exchange_interval_s=1).model_copy(update={"lease_exchange_rows_max": 2})


class Peer(JobObserver):
    """The lease journal of another store, which a test fills, and the reports of the exchange job."""

    def __init__(self, world: World) -> None:
        self.world, self.pools = world, Pools(world.deployment)
        self.events: list[PublishedLeaseEvent] = []
        self.away = False
        self.asked: list[int] = []
        self.taken: asyncio.Queue[AppliedPage] = asyncio.Queue()
        self.failures: asyncio.Queue[None] = asyncio.Queue()
        exchange = self.pools.exchange("here")
        self.job = ExchangeJob(world.context(LIMITS, self), exchange, self.read, peer="us")

    async def read(self, _peer: str, after: int, limit: int) -> list[PublishedLeaseEvent]:
        self.asked.append(after)
        if self.away:
            raise PeerUnavailableError("gone")
        return [event for event in self.events if event.number > after][:limit]

    def page_taken_in(self, taken: AppliedPage) -> None:
        self.taken.put_nowait(taken)

    def peer_away(self) -> None:
        self.failures.put_nowait(None)

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
    assert [(await peer.taken.get()).events for _ in range(3)] == [2, 2, 1]
    assert await peer.read_known_keys() == set("abcde")
    peer.add_leases("f")
    await peer.world.time.end_sleep(1)
    assert (await peer.taken.get()).events == 1
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

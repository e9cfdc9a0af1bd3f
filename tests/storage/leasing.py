"""Provide the pools of a store, with a clock that a test moves."""

import random
from collections.abc import Sequence

from storage.leases.lease_journal import PublishedLeaseEvent, lease_counts, lease_journal
from storage.leases.lease_records import (
    Grant,
    LeaseRequest,
    Pool,
    PoolRequest,
    RegionCounts,
    Release,
    Resource,
)
from storage.leases.lease_transaction import LeaseTransactions, Outcome
from storage.leases.peers import LeaseExchange
from storage.leases.pools import Removed, lease_pools
from tests.storage.deployment import Clock, Deployment

MARGIN_US = 100
LEASE_US = 1_000
CLIENT = "acme"


class Pools:
    """The operations on pools that tests need."""

    def __init__(self, deployment: Deployment, clock: Clock | None = None, *, peers: bool = False) -> None:
        self.store, self.dialect = deployment.store, deployment.dialect
        self.clock = clock or Clock()
        self.rng = random.Random(3)
        self.groups = LeaseTransactions(self.clock.read, margin_us=MARGIN_US, attempts_max=5, rng=self.rng, peers=peers)
        self.pools = lease_pools

    def exchange(self, store_name: str) -> LeaseExchange:
        """Return the object that applies the lease journals of other stores to this store."""
        return LeaseExchange(self.clock.read, store_name=store_name, attempts_max=5, rng=self.rng)

    async def create(self, pool_id: str = "numbers") -> Pool:
        pool, _ = await self.store.write(
            lambda: self.pools.save_pool(CLIENT, pool_id, now_us=self.clock(), pools_max=1_000)
        )
        return pool

    async def pool(self, pool_id: str = "numbers") -> Pool:
        return await self.store.read(lambda: self.pools.read_pool(CLIENT, pool_id))

    async def add(self, *names: str, region: str = "eu", pool_id: str = "numbers") -> list[str]:
        """Add resources to a pool. Return the names that were new."""
        pool = await self.pool(pool_id)
        return await self.store.write(
            lambda: self.pools.add_resources(pool, region, names, now_us=self.clock(), rng=self.rng)
        )

    async def remove(self, *names: str, pool_id: str = "numbers") -> Removed:
        pool = await self.pool(pool_id)
        return await self.store.write(
            lambda: self.pools.remove_resources(pool, names, now_us=self.clock(), rng=self.rng)
        )

    async def drop(self, pool_id: str = "numbers") -> None:
        await self.store.write(lambda: self.pools.drop_pool(CLIENT, pool_id, now_us=self.clock()))

    async def run(self, *requests: PoolRequest) -> list[Outcome]:
        return await self.store.write(lambda: self.groups.serve_requests(requests))

    async def ask(
        self, key: str, *, region: str = "eu", lease_us: int = LEASE_US, until_us: int | None = None
    ) -> Grant:
        """Request a lease for a key, and return the grant. If the request is refused, raise the error."""
        [outcome] = await self.run(LeaseRequest(CLIENT, "numbers", key, region, until_us, lease_us))
        return unwrap_grant(outcome)

    async def give_back(self, key: str) -> Grant:
        """Release the lease of a key. If the request is refused, raise the error."""
        [outcome] = await self.run(Release(CLIENT, "numbers", key))
        return unwrap_grant(outcome)

    async def counts(self, pool_id: str = "numbers") -> dict[str, RegionCounts]:
        pool = await self.pool(pool_id)
        found = await self.store.read(lambda: lease_counts.read_counts([pool.key]))
        return {region: counts for (_, region), counts in found.items()}

    async def rows(self, pool_id: str = "numbers") -> list[Resource]:
        pool = await self.pool(pool_id)
        return await self.store.read(lambda: self.pools.list_resources(pool, after="", limit=10_000))

    async def events(self, after: int = 0) -> list[PublishedLeaseEvent]:
        return await self.store.read(lambda: lease_journal.read_page(after, limit=10_000))

    async def summarize_events(self) -> Sequence[tuple[str, str, str | None]]:
        """Return the lease journal without numbers and times: kind of event, resource, key."""
        return [(event.kind, event.resource, event.key) for event in await self.events()]


def unwrap_grant(outcome: Outcome) -> Grant:
    """Return the grant. If the request was refused, raise the error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome

"""Test that two holders in different processes never have leases on the same resource at the same time."""

import asyncio
import itertools
import random
from dataclasses import dataclass

from storage.errors import LeaseLostError, LeaseTakenError
from storage.leases.claims import store_clock
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.store import Program
from tests.storage.deployment import Deployment
from tests.storage.processes import Processes

PROCESSES = 3
HOLDERS = 4  # number of holders in each process
CLAIMS = 30  # a holder stops after this many successful claims
LEASE_US = 5_000
RESOURCES = ("one", "other")


@dataclass(frozen=True, slots=True)
class Holding:
    """The time during which a holder had a resource, as far as the holder knows."""

    version: int
    from_us: int
    until_us: int


class Holder:
    """A holder that claims random resources. It renews and releases some leases, and is sometimes late."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._store, self._clock = deployment.store, store_clock
        self._leases = WorkLeases(self._clock, margin_us=0)
        self._name, self._rng = name, random.Random(name)
        self.holdings: list[tuple[str, Holding]] = []
        self.lost = 0

    async def claim_repeatedly(self) -> None:
        while len(self.holdings) < CLAIMS:
            resource = self._rng.choice(RESOURCES)
            try:
                lease, from_us = await self._claim(resource)
            except LeaseTakenError:
                continue
            self.holdings.append((resource, await self._hold(lease, from_us)))

    async def _claim(self, resource: str) -> tuple[WorkLease, int]:
        def claimed() -> Program[tuple[WorkLease, int]]:
            lease = yield from self._leases.claim("pool", resource, holder=self._name, lease_us=LEASE_US)
            return lease, (yield from self._clock())  # the claim may have waited, so read the clock after it

        return await self._store.write(claimed)

    async def _hold(self, lease: WorkLease, from_us: int) -> Holding:
        until_us = lease.expires_at_us
        try:
            for _ in range(self._rng.randrange(3)):
                await self._pass(self._rng.randrange(2 * LEASE_US))
                until_us = (await self._renew(lease)).expires_at_us
            if self._rng.random() < 0.5:
                before_us = await self._store.read(self._clock)
                await self._store.write(lambda: self._leases.release(lease))
                until_us = min(until_us, before_us)  # the holder certainly had the lease until it began to release it
        except LeaseLostError:
            self.lost += 1
        return Holding(lease.version, from_us, until_us)

    async def _renew(self, lease: WorkLease) -> WorkLease:
        return await self._store.write(lambda: self._leases.renew(lease, lease_us=LEASE_US))

    async def _pass(self, us: int) -> None:
        end_us = await self._store.read(self._clock) + us
        while await self._store.read(self._clock) < end_us:
            pass


async def test_holders_of_several_processes_never_hold_at_once_and_versions_grow(processes: Processes) -> None:
    deployments = [
        await processes.start_process(writer_connections=HOLDERS, reader_connections=HOLDERS) for _ in range(PROCESSES)
    ]
    numbered = itertools.product(enumerate(deployments), range(HOLDERS))
    holders = [Holder(deployment, f"{process}/{number}") for (process, deployment), number in numbered]
    await asyncio.gather(*(holder.claim_repeatedly() for holder in holders))
    for resource in RESOURCES:
        found = [holding for holder in holders for name, holding in holder.holdings if name == resource]
        found.sort(key=lambda holding: holding.version)
        assert [holding.version for holding in found] == list(range(1, len(found) + 1)), "each version once"
        for earlier, later in itertools.pairwise(found):
            assert earlier.until_us <= later.from_us, "two live holders"
    assert sum(len(holder.holdings) for holder in holders) == PROCESSES * HOLDERS * CLAIMS
    assert sum(holder.lost for holder in holders) > 0, "no holder was late, so the test shows nothing"

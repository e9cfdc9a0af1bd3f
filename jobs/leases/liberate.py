"""Frees resources whose leases have expired, and deletes the rows of dropped pools and old lease journal rows.

Without it, a server that crashed with a lease would keep its resource for ever. Nothing is remembered between steps, so
a process that takes over reads from the store what is left to do.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial

import structlog

from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.leases.lease_journal import Region, lease_counts, lease_journal
from storage.leases.lease_records import Pool, ResourceChange
from storage.leases.pools import lease_pools, lease_resources
from storage.store import Program, Store

log = structlog.get_logger(__name__)

RESOURCE = "liberate"
POOLS_A_PAGE = 200


async def read_pool_pages(store: Store) -> AsyncIterator[list[Pool]]:
    after = ("", "")
    while pools := await store.read(partial(lease_pools.list_pools, after=after, client_id=None, limit=POOLS_A_PAGE)):
        yield pools
        after = pools[-1].name


class LiberateJob:
    def __init__(self, context: JobContext) -> None:
        self._store, self._ownership, self._limits = context.store, Ownership(context), context.limits
        self._clock, self._margin_us = context.leases.clock, round(context.limits.lease_margin_s * 1e6)
        self._monotonic, self._sleep, self._rng = context.monotonic, context.make_sleep(RESOURCE), context.rng

    async def run_forever(self) -> None:
        interval_s = self._limits.liberate_interval_s
        await self._ownership.run_rounds(RESOURCE, self._work, interval_s=interval_s, sleep=self._sleep)

    async def _work(self, _held: HeldLease) -> None:
        liberated = await self.liberate_expired()
        rows_max = self._limits.liberate_rows_max
        swept = await self._in_steps(lambda: lease_pools.sweep_dropped(rows_max=rows_max))
        forgotten = await self.prune_journal()
        if liberated or swept or forgotten:
            log.info("leases_liberated", leases=liberated, resources_deleted=swept, journal_rows_removed=forgotten)

    async def liberate_expired(self) -> int:
        """Free the resources whose leases expired over `lease_margin_s` ago, and return how many were freed."""
        freed = 0
        async for pools in read_pool_pages(self._store):
            reading = partial(lease_counts.read_counts, [pool.key for pool in pools])
            for region in await self._store.read(reading):
                freed += await self._in_steps(partial(self._free, region))
        return freed

    async def prune_journal(self) -> int:
        return await self._in_steps(self._forget)

    def _free(self, region: Region) -> Program[int]:
        # A freed resource's row still names its last key, which on request gets the resource again if it is still free.
        now_us, limit = (yield from self._clock()), self._limits.liberate_rows_max
        rows = yield from lease_resources.find_expired(*region, before_us=now_us - self._margin_us, limit=limit)
        changes = [ResourceChange(row, row.liberate(now_us)) for row in rows]
        return (yield from lease_resources.change_resources(changes, self._rng, now_us=now_us))

    def _forget(self) -> Program[int]:
        before_us = (yield from self._clock()) - round(self._limits.lease_journal_retention_s * 1e6)
        return (yield from lease_journal.prune(before_us=before_us, rows_max=self._limits.liberate_rows_max))

    async def _in_steps(self, step: Callable[[], Program[int]]) -> int:
        done = 0
        while True:
            started = self._monotonic()
            rows = await self._store.write(step)
            if not rows:
                return done
            done += rows
            await self._sleep(self._monotonic() - started)

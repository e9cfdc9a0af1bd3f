"""Frees resources whose leases expired, and deletes the rows of dropped pools and old rows of the journal of leases.

Nothing is remembered between steps: a process that takes over reads from the store what is left to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import structlog

from config.settings import LeaseSettings
from jobs.controls import Sleep
from jobs.ownership import HeldLease, Ownership
from storage.leases.claims import StoreClock
from storage.leases.lease_journal import lease_journal
from storage.leases.pools import lease_pools
from storage.leases.region_counts import Region
from storage.leases.upkeep import lease_upkeep
from storage.store import Program, Store

from .rounds import read_pool_pages, run_rounds

log = structlog.get_logger(__name__)

RESOURCE = "liberate"


class LiberateJob:
    def __init__(
        self,
        store: Store,
        ownership: Ownership,
        limits: LeaseSettings,
        clock: StoreClock,
        *,
        margin_us: int,
        monotonic: Callable[[], float],
        sleep: Sleep,
        rng: random.Random,
    ) -> None:
        self._store, self._ownership, self._limits, self._clock = store, ownership, limits, clock
        self._margin_us, self._monotonic, self._sleep, self._rng = margin_us, monotonic, sleep, rng

    async def run_forever(self) -> None:
        interval_s = self._limits.liberate_interval_s
        await run_rounds(self._ownership, RESOURCE, self._work, interval_s=interval_s, sleep=self._sleep)

    async def _work(self, _held: HeldLease) -> None:
        liberated = await self.liberate_expired()
        swept = await self._in_steps(self._sweep)
        forgotten = await self.prune_journal()
        if liberated or swept or forgotten:
            log.info("leases_liberated", leases=liberated, resources_deleted=swept, journal_rows_removed=forgotten)

    async def liberate_expired(self) -> int:
        """Free the resources whose leases expired longer ago than the margin; return the number of freed resources."""
        freed = 0
        async for page in read_pool_pages(self._store):
            for pool, regions in page:
                for region in regions:
                    freed += await self._in_steps(lambda place=(pool.key, region): self._free(place))  # type: ignore[misc]
        return freed

    async def prune_journal(self) -> int:
        return await self._in_steps(self._forget)

    def _free(self, region: Region) -> Program[int]:
        now_us = yield from self._clock()
        before_us, rows_max = now_us - self._margin_us, self._limits.liberate_rows_max
        return (
            yield from lease_upkeep.liberate_expired(
                region, before_us=before_us, now_us=now_us, rows_max=rows_max, rng=self._rng
            )
        )

    def _sweep(self) -> Program[int]:
        return lease_pools.sweep_dropped(rows_max=self._limits.liberate_rows_max)

    def _forget(self) -> Program[int]:
        before_us = (yield from self._clock()) - round(self._limits.lease_journal_retention_s * 1e6)
        return (yield from lease_journal.prune(before_us=before_us, rows_max=self._limits.liberate_rows_max))

    async def _in_steps(self, step: Callable[[], Program[int]]) -> int:
        done = 0
        while rows := await self._step(step):
            done += rows
        return done

    async def _step(self, step: Callable[[], Program[int]]) -> int:
        started = self._monotonic()
        rows = await self._store.write(step)
        if rows:
            await self._sleep(self._monotonic() - started)
        return rows

"""Moves available resources between the regions of a pool, before the regions run out of resources.

    measure all regions ──> update their loads (request rates) ──> store the loads ──> plan ──> move in bounded steps

Loads are stored before any resource moves, so a process that takes over continues from the last measurement. A resource
moves only if its state has not changed since it was read. So an outdated plan moves fewer resources, never leased ones.
"""

from functools import partial

import msgspec
import structlog

from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.leases.lease_records import Pool, ResourceChange
from storage.leases.lease_resources import lease_resources
from storage.leases.region_counts import Region, lease_counts
from storage.store import Program

from .liberate import read_pool_pages
from .rebalance_plan import Load, RegionState, Transfer, decode_load, plan_transfers, update_load

log = structlog.get_logger(__name__)

RESOURCE = "balance"


class BalanceJob:
    def __init__(self, context: JobContext) -> None:
        self._store, self._ownership, self._limits = context.store, Ownership(context), context.limits
        self._clock, self._margin_us = context.leases.clock, round(context.limits.lease_margin_s * 1e6)
        self._monotonic, self._sleep, self._rng = context.monotonic, context.make_sleep(RESOURCE), context.rng
        self._meter = context.meter

    async def run_forever(self) -> None:
        interval_s = self._limits.balance_interval_s
        await self._ownership.run_rounds(RESOURCE, self.balance_pools, interval_s=interval_s, sleep=self._sleep)

    async def balance_pools(self, held: HeldLease | None = None) -> int:
        """Measure every pool, and move resources to regions that will be short of them. Return how many were moved."""
        moved = 0
        async for pools in read_pool_pages(self._store):
            transfers = await self._store.write(partial(self._measure, pools, held))
            for pool in pools:
                resources = sum([await self._move(pool, transfer) for transfer in transfers[pool.key]])
                if resources:
                    self._meter.add("rankcurve_lease_resources_moved", resources)
                    log.info("resources_moved", client=pool.client_id, pool=pool.pool_id, resources=resources)
                moved += resources
        return moved

    def _measure(self, pools: list[Pool], held: HeldLease | None) -> Program[dict[int, list[Transfer]]]:
        if held is not None:
            yield from held.renew()
        keys = [pool.key for pool in pools]
        now_us, limit = (yield from self._clock()), self._limits.lease_expired_counted_max
        counts = yield from lease_resources.count_running(keys, before_us=now_us - self._margin_us, limit=limit)
        stored = yield from lease_counts.read_loads(keys)
        regions: dict[int, dict[str, RegionState]] = {key: {} for key in keys}
        loads: dict[Region, str] = {}
        for (key, region), counted in counts.items():
            found = Load(now_us, counted.held, counted.acquired, counted.refused)
            known = stored.get((key, region))
            load = found if known is None else update_load(decode_load(known), found, self._limits.balance_half_life_s)
            regions[key][region] = RegionState(counted.total - found.leased, load)
            loads[key, region] = msgspec.json.encode(load).decode()
        yield from lease_counts.set_loads(loads)
        return {key: plan_transfers(states, self._limits) for key, states in regions.items()}

    async def _move(self, pool: Pool, transfer: Transfer) -> int:
        moved = 0
        while moved < transfer.resources:
            started = self._monotonic()
            step = min(transfer.resources - moved, self._limits.balance_step_rows_max)
            done = await self._store.write(partial(self.move_resources, pool, transfer, step))
            if not done:
                break  # no resource is available any more, because keys have leased them
            moved += done
            await self._sleep(self._monotonic() - started)
        return moved

    def move_resources(self, pool: Pool, transfer: Transfer, limit: int) -> Program[int]:
        """Move up to `limit` resources: free ones first, then those with expired leases. Return how many moved.

        A resource moves only if its row has not changed since the row was read.
        """
        now_us = yield from self._clock()
        found = yield from lease_resources.find_free(pool.key, transfer.source, limit=limit)
        if len(found) < limit:
            before_us, left = now_us - self._margin_us, limit - len(found)
            found += yield from lease_resources.find_expired(pool.key, transfer.source, before_us=before_us, limit=left)
        changes = [ResourceChange(row, row.move(transfer.target, now_us)) for row in found]
        return (yield from lease_resources.change_resources(changes, self._rng, now_us=now_us))

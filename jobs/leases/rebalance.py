"""Moves available resources between the regions of a pool, before the regions need them.

    measure all regions ──> update the load of each ──> store the loads ──> plan ──> moves, in bounded steps

Loads are stored before any resource moves, so a process that takes over continues from the last measurement. A resource
moves only if its state has not changed since it was found. So an outdated plan moves fewer resources, never wrong ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from config.settings import LeaseSettings
from jobs.controls import Sleep
from jobs.ownership import HeldLease, Ownership
from storage.leases.claims import StoreClock
from storage.leases.lease_records import Pool, RegionCounts
from storage.leases.lease_resources import lease_resources
from storage.leases.region_counts import Region, lease_counts
from storage.leases.upkeep import lease_upkeep
from storage.store import Program, Store

from .rebalance_plan import Load, Move, RegionMeasurement, RegionState, plan_moves, start_load, update_load
from .rounds import read_pool_pages, run_rounds

log = structlog.get_logger(__name__)

RESOURCE = "balance"


class BalanceObserver(Protocol):
    """Reports of balancing to operators."""

    def resources_moved(self, resources: int) -> None:
        """Record that `resources` resources were moved to another region."""


class BalanceJob:
    def __init__(
        self,
        store: Store,
        ownership: Ownership,
        limits: LeaseSettings,
        clock: StoreClock,
        observer: BalanceObserver,
        *,
        margin_us: int,
        expired_counted_max: int,
        monotonic: Callable[[], float],
        sleep: Sleep,
        rng: random.Random,
    ) -> None:
        self._store, self._ownership, self._limits, self._clock = store, ownership, limits, clock
        self._observer, self._margin_us, self._expired_counted_max = observer, margin_us, expired_counted_max
        self._monotonic, self._sleep, self._rng = monotonic, sleep, rng

    async def run_forever(self) -> None:
        interval_s = self._limits.balance_interval_s
        await run_rounds(self._ownership, RESOURCE, self.balance_pools, interval_s=interval_s, sleep=self._sleep)

    async def balance_pools(self, held: HeldLease | None = None) -> int:
        """Measure every pool now, and balance those that need it; return how many resources were moved."""
        moved = 0
        async for page in read_pool_pages(self._store):
            pools = [pool for pool, _ in page]
            moves = await self._store.write(lambda pools=pools: self._measure(pools, held))  # type: ignore[misc]
            for pool in pools:
                moved += await self._follow(pool, moves[pool.key])
        return moved

    async def _follow(self, pool: Pool, moves: list[Move]) -> int:
        moved = 0
        for move in moves:
            moved += await self._move(pool, move)
        if moved:
            self._observer.resources_moved(moved)
            log.info("resources_moved", client=pool.client_id, pool=pool.pool_id, resources=moved)
        return moved

    def _measure(self, pools: list[Pool], held: HeldLease | None) -> Program[dict[int, list[Move]]]:
        if held is not None:
            yield from held.renew()
        keys = [pool.key for pool in pools]
        counts = yield from lease_counts.read_counts(keys)
        stored = yield from lease_upkeep.loads(keys)
        now_us = yield from self._clock()
        regions: dict[int, dict[str, RegionState]] = {key: {} for key in keys}
        for (key, region), counted in counts.items():
            found = yield from self._look((key, region), counted, now_us)
            known = stored.get((key, region))
            load = (
                start_load(found)
                if known is None
                else update_load(msgspec.json.decode(known, type=Load), found, self._limits.balance_half_life_s)
            )
            regions[key][region] = RegionState(found.available, load)
        yield from lease_upkeep.set_loads(
            {
                (key, region): msgspec.json.encode(state.load).decode()
                for key, states in regions.items()
                for region, state in states.items()
            }
        )
        return {key: plan_moves(states, self._limits) for key, states in regions.items()}

    def _look(self, region: Region, counted: RegionCounts, now_us: int) -> Program[RegionMeasurement]:
        over = yield from lease_resources.count_expired(
            *region, before_us=now_us - self._margin_us, limit=self._expired_counted_max
        )
        return RegionMeasurement(now_us, counted.total, counted.held - over, counted.acquired, counted.refused)

    async def _move(self, pool: Pool, move: Move) -> int:
        moved = 0
        while moved < move.resources:
            started = self._monotonic()
            step = min(move.resources - moved, self._limits.balance_step_rows_max)

            def program(step: int = step) -> Program[int]:
                now_us = yield from self._clock()
                times = {"before_us": now_us - self._margin_us, "now_us": now_us}
                return (
                    yield from lease_upkeep.move_resources(pool, move.source, move.target, step, **times, rng=self._rng)
                )

            done = await self._store.write(program)
            if not done:
                break  # keys have meanwhile leased the available resources
            moved += done
            await self._sleep(self._monotonic() - started)
        return moved

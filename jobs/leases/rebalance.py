"""Forecasts how many resources a pool's regions will need, and moves available ones there before a region runs out.

    measure all regions ──> update their loads (request rates) ──> store the loads ──> plan ──> move in bounded steps

Loads are stored before any resource moves, so a process that takes over continues from the last measurement. A resource
moves only if its state has not changed since it was read, so an outdated plan moves fewer resources, never leased ones.

A plan is a pure function of the loads. It says how many free resources each region will need, and which regions supply
them:

    level    requests for resources per second, including refused ones, as an exponentially weighted average
    lately   requests per second between the last two measurements; demand is never estimated below this
    trend    change of the level per second, averaged in the same way (Holt's double smoothing)
    need     requests expected within `balance_horizon_s`, minus leases expected to end by then, at least 0
    spare    the resources that are left when every region has its need
    target   need + a part of the spare resources, in proportion to demand; if there are too few resources for all
             needs, every region gets the same percentage of its need

No region gives resources that it needs itself. Small shortages are ignored, so that resources don't move to and fro.
"""

from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import NamedTuple

import msgspec
import structlog

from config.settings import LeaseSettings
from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.leases.lease_journal import Region, lease_counts
from storage.leases.lease_records import Pool, ResourceChange
from storage.leases.pools import lease_resources
from storage.store import Program

from .liberate import read_pool_pages

# An idle region is treated as if it had this fraction of the mean demand, so its first request finds a resource.
FLOOR_RATIO = 0.05
MOVED_BELOW_RATIO = 0.7  # a region gets resources if it has less than this fraction of its target


class Load(msgspec.Struct, frozen=True, array_like=True):
    """A measurement of a region, with averages over all measurements so far, which the first one lacks."""

    at_us: int  # when the region was measured
    leased: int  # number of running leases
    acquired: int  # number of leases granted since the pool was created
    refused: int  # number of requests refused since the pool was created
    level: float = 0.0  # requests per second
    trend: float = 0.0  # change of the level per second
    freed: float = 0.0  # average number of leases that expired or were released per second
    # The next two fields describe the time between the last two measurements.
    asked_lately: float = 0.0  # requests per second
    refused_lately: bool = False

    @property
    def has_averages(self) -> bool:
        """Tell whether a request came or a lease ended since the first measurement. If not, averages mean nothing."""
        return self.level > 0 or self.freed > 0


# Created at import, because the process would crash if two threads created it at the same time.
decode_load = msgspec.json.Decoder(Load).decode


class RegionState(NamedTuple):
    available: int  # resources that are free, or whose lease has expired
    load: Load


class Transfer(NamedTuple):
    source: str
    target: str
    resources: int


def update_load(load: Load, found: Load, half_life_s: float) -> Load:
    """Update `load` with the newer measurement `found`, or return it unchanged if `found` is not newer."""
    passed_s = (found.at_us - load.at_us) / 1e6
    if passed_s <= 0:
        return load
    acquired = max(0, found.acquired - load.acquired)
    refused = max(0, found.refused - load.refused)
    asked_per_s = (acquired + refused) / passed_s
    # Leases that have ended: leases that ran before, plus leases granted since, minus leases that run now.
    freed_per_s = max(0, load.leased + acquired - found.leased) / passed_s
    new = 1 - 0.5 ** (passed_s / half_life_s)
    counted, lately = (found.at_us, found.leased, found.acquired, found.refused), (asked_per_s, refused > 0)
    if not load.has_averages:
        return Load(*counted, asked_per_s, 0.0, freed_per_s, *lately)
    expected = max(0.0, load.level + load.trend * passed_s)
    level = expected + new * (asked_per_s - expected)
    trend = load.trend + new * ((level - load.level) / passed_s - load.trend)
    freed = load.freed + new * (freed_per_s - load.freed)
    return Load(*counted, level, trend, freed, *lately)


def forecast_demand(load: Load, horizon_s: float) -> float:
    """Estimate how many resources will be requested in the next `horizon_s` seconds.

    The estimate uses the averaged level and trend, or the latest rate if this rate is higher.
    """
    return max(load.asked_lately, load.level + load.trend * horizon_s / 2) * horizon_s


def forecast_need(load: Load, horizon_s: float) -> float:
    """Estimate how many of its available resources a region will use up in the next `horizon_s` seconds.

    Leases that will end reduce the need, because their resources can be leased again. But if a request was refused
    lately, this does not count: the region needs at least the latest request rate times `horizon_s`.
    """
    used = forecast_demand(load, horizon_s) - load.freed * horizon_s
    return max(0.0, used, load.asked_lately * horizon_s if load.refused_lately else 0.0)


def forecast_headroom(load: Load, available: int, horizon_s: float) -> int:
    """Estimate how many resources a region will have left in `horizon_s` seconds if no resources are moved."""
    return max(0, int(available - (forecast_demand(load, horizon_s) - load.freed * horizon_s)))


def compute_targets(regions: Mapping[str, RegionState], horizon_s: float) -> dict[str, float]:
    """Compute how many resources each region should have available. The targets add up to the number available now."""
    everything = sum(state.available for state in regions.values())
    needs = {region: forecast_need(state.load, horizon_s) for region, state in regions.items()}
    needed = sum(needs.values())
    if needed >= everything:
        return {region: everything * each / needed if needed else 0.0 for region, each in needs.items()}
    weights = {region: forecast_demand(state.load, horizon_s) for region, state in regions.items()}
    floor = FLOOR_RATIO * sum(weights.values()) / len(weights)
    weighed = sum(max(floor, weight) for weight in weights.values())
    if not weighed:
        return {region: float(state.available) for region, state in regions.items()}
    slack = everything - needed
    return {region: needs[region] + slack * max(floor, weights[region]) / weighed for region in regions}


def plan_transfers(regions: Mapping[str, RegionState], limits: LeaseSettings) -> list[Transfer]:
    """Plan transfers from regions above their targets to regions that will be short of resources.

    No region gets more than its target.
    """
    # If no region has any demand, the target of each region is the number of resources that it has already.
    wanted = compute_targets(regions, limits.balance_horizon_s)
    # If there are too few resources for all needs, even a small shortage causes refusals, so resources are moved.
    needed = sum(forecast_need(state.load, limits.balance_horizon_s) for state in regions.values())
    is_scarce = needed >= sum(state.available for state in regions.values())
    below_ratio = 1.0 if is_scarce else MOVED_BELOW_RATIO
    short = {
        region: int(wanted[region]) - state.available
        for region, state in regions.items()
        if state.available < below_ratio * wanted[region]
    }
    spare = {region: state.available - ceil(wanted[region]) for region, state in regions.items()}
    givers = sorted((region for region in spare if spare[region] > 0), key=lambda region: -spare[region])
    left = limits.balance_moves_max
    transfers: list[Transfer] = []
    for target in sorted(short, key=lambda region: -short[region]):
        for source in givers:
            resources = min(short[target], spare[source], left)
            if resources > 0:
                transfers.append(Transfer(source, target, resources))
                short[target] -= resources
                spare[source] -= resources
                left -= resources
    return transfers


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
        """Measure every pool, move resources to regions that will be short of them, and return how many were moved."""
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
                break  # no resource is left, because keys have leased them
            moved += done
            await self._sleep(self._monotonic() - started)
        return moved

    def move_resources(self, pool: Pool, transfer: Transfer, limit: int) -> Program[int]:
        """Move up to `limit` resources, first free ones, then those with expired leases, and return how many moved.

        A resource moves only if its row has not changed since the row was read.
        """
        now_us = yield from self._clock()
        found = yield from lease_resources.find_free(pool.key, transfer.source, limit=limit)
        if len(found) < limit:
            before_us, left = now_us - self._margin_us, limit - len(found)
            found += yield from lease_resources.find_expired(pool.key, transfer.source, before_us=before_us, limit=left)
        changes = [ResourceChange(row, row.move(transfer.target, now_us)) for row in found]
        return (yield from lease_resources.change_resources(changes, self._rng, now_us=now_us))

"""Count the refused leases of three regions with balanced and with static shares of a pool, for three simulated days.

    python -m benchmarks.lease_simulation [FOLDER FOR THE PICTURE]

The days have daily cycles, a news spike and a region that operators drain. The store's own programs and the balancer's
own job run on a simulated clock. The world with balanced shares and the one with static shares get the same keys at the
same minutes, because one seed decides them and refusals change nothing.

Bars: with balanced shares, at most 10 % as many leases are refused as with static shares. No resource is lost or given
to two keys.
"""

import asyncio
import heapq
import logging
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from benchmarks import report
from benchmarks.options import Options
from benchmarks.plots import new_figure
from config import Settings, load
from jobs.job_context import JobContext
from jobs.leases.liberate import LiberateJob
from jobs.leases.rebalance import BalanceJob
from service.stores import SQLITE_PREFIX, open_store
from storage.boards.catalog import Catalog
from storage.curves.curve_book import CurveBook
from storage.leases.lease_journal import lease_counts
from storage.leases.lease_records import Grant, LeaseRequest, Pool, PoolRequest, Release
from storage.leases.lease_transaction import LeaseTransactions
from storage.leases.pools import lease_pools
from storage.leases.work_leases import WorkLeases
from storage.meter import Meter
from storage.reads.open_boards import OpenBoards
from storage.schema.creation import create_schema
from storage.store import Program, Store

REGIONS = ("asia", "eu", "us")
MINUTES = 3 * 24 * 60
RESOURCES = 1_200
LEASE_MINUTES = 20.0  # mean length of a lease
_BASE_PER_MINUTE = 16.0  # keys that request a lease in a region per minute, on average over a day
_SWING = 0.85
# (start in minutes, length in minutes, added demand): for an hour from 14:00 on the second day, the demand is 2.6
# times the usual demand.
_SPIKE = (24 * 60 + 14 * 60, 60, 1.6)
_SPIKE_REGION, DRAINED_REGION = "eu", "us"
_RISE_MINUTES = 15
# (start, end) of the drain in minutes: from 19:00 to 23:00 on the third day, when the drained region is busiest.
DRAIN = (2 * 24 * 60 + 19 * 60, 2 * 24 * 60 + 23 * 60)
DRAINED = 150  # resources that operators remove from the region as they become free, and add again after the drain
_CLIENT, _POOL = "acme", "all"
_MINUTE_US = 60_000_000
_START_US = 1_760_000_000_000_000
_PICTURE = "lease_simulation.svg"
_EVERY_MINUTES = 20  # minutes between two points of a line in the picture


@dataclass(frozen=True, slots=True)
class Arrival:
    """A key that asks for one lease."""

    key: str
    region: str
    minutes: float  # how long the key wants the resource, in minutes
    returns: bool  # whether the key gives the resource back; otherwise it lets the lease expire


def demand_per_minute(region: str, minute: int) -> float:
    """Return the average number of keys that ask for a lease in a region during that minute."""
    hours = minute / 60 - 8 * REGIONS.index(region)
    usual = _BASE_PER_MINUTE * (1 + _SWING * math.sin(2 * math.pi * hours / 24))
    begun, lasts, more = _SPIKE
    if region == _SPIKE_REGION and begun <= minute < begun + lasts + _RISE_MINUTES:
        rise = min(1.0, (minute - begun) / _RISE_MINUTES, (begun + lasts + _RISE_MINUTES - minute) / _RISE_MINUTES)
        return usual * (1 + more * rise)
    return usual


def draw_arrivals() -> Iterator[list[Arrival]]:
    """Yield, minute by minute, the keys that ask for a lease."""
    rng = random.Random(2026)
    number = 0
    for minute in range(MINUTES):
        coming: list[Arrival] = []
        for region in REGIONS:
            due = rng.expovariate(1)
            mean = demand_per_minute(region, minute)
            while due < mean:
                due += rng.expovariate(1)
                number += 1
                minutes = min(120.0, max(1.0, rng.expovariate(1 / LEASE_MINUTES)))
                coming.append(Arrival(f"k{number}", region, minutes, returns=rng.random() < 0.5))
        yield coming


@dataclass(slots=True)
class Totals:
    asked: int = 0
    refused: int = 0
    doubled: int = 0
    lost: int = 0
    moved: int = 0
    refused_by_minute: list[int] = field(default_factory=list)  # at the end of each minute, the leases refused so far
    shares: dict[str, list[int]] = field(default_factory=lambda: {region: [] for region in REGIONS})
    used: dict[str, list[int]] = field(default_factory=lambda: {region: [] for region in REGIONS})


class World(Meter):
    """A simulated world: one store and its jobs, whose clock the simulation moves."""

    def __init__(self, store: Store, settings: Settings, *, balanced: bool) -> None:
        self._store, self._balanced = store, balanced
        self._now_us, self._rng = _START_US, random.Random(1)
        self._groups = LeaseTransactions(self._clock, margin_us=500_000, attempts_max=8, rng=self._rng)
        leases = WorkLeases(self._clock, margin_us=500_000)
        context = JobContext(
            store=store,
            catalog=Catalog(store),
            book=CurveBook(store, None, poll_rows_max=1),
            open_boards=OpenBoards(open_boards_max=1),
            leases=leases,
            holder="simulation",
            limits=settings.model_copy(update={"lease_margin_s": 0.5}),
            meter=self,
            now_us=lambda: self._now_us,
            monotonic=lambda: 0.0,
            sleep=self._no_pause,
            rng=self._rng,
        )
        self._balancer, self._liberator = BalanceJob(context), LiberateJob(context)
        self._balance_minutes = round(settings.balance_interval_s / 60)
        self._liberate_minutes = round(settings.liberate_interval_s / 60)
        # A heap of the ends of leases: (time, key, resource, whether the key gives the resource back).
        self._ends: list[tuple[int, str, str, bool]] = []
        self._held: dict[str, int] = {}  # the time at which the lease of each resource ends
        self.totals = Totals()

    def _clock(self) -> Program[int]:
        yield from ()
        return self._now_us

    async def _no_pause(self, _seconds: float) -> None:
        return

    def add(self, name: str, amount: float = 1, *labels: str) -> None:
        if name == "rankcurve_lease_resources_moved":
            self.totals.moved += int(amount)

    async def run(self) -> Totals:
        pool = await self._create()
        for minute, coming in enumerate(draw_arrivals()):
            self._now_us = _START_US + minute * _MINUTE_US
            await self._end_leases()
            await self._drain_region(pool, minute)
            if minute % self._liberate_minutes == 0:
                await self._liberator.liberate_expired()
            if self._balanced and minute % self._balance_minutes == 0:
                await self._balancer.balance_pools()
            await self._ask_for_leases(coming)
            await self._record_counts(pool)
        rows = await self._store.read(lambda: lease_pools.list_resources(pool, after="", limit=10 * RESOURCES))
        self.totals.lost = RESOURCES - len({row.resource for row in rows})
        return self.totals

    async def _create(self) -> Pool:
        pools = lease_pools
        pool, _ = await self._store.write(lambda: pools.save_pool(_CLIENT, _POOL, now_us=self._now_us, pools_max=10))
        share = RESOURCES // len(REGIONS)
        for index, region in enumerate(REGIONS):
            names = [f"r{number}" for number in range(index * share, (index + 1) * share)]
            await self._add_resources(pool, region, names)
        return pool

    async def _add_resources(self, pool: Pool, region: str, names: list[str]) -> None:
        pools = lease_pools
        await self._store.write(lambda: pools.add_resources(pool, region, names, now_us=self._now_us, rng=self._rng))

    async def _end_leases(self) -> None:
        given_back: list[PoolRequest] = []
        while self._ends and self._ends[0][0] <= self._now_us:
            _, key, resource, returns = heapq.heappop(self._ends)
            del self._held[resource]
            if returns:
                given_back.append(Release(_CLIENT, _POOL, key))
        if given_back:
            await self._store.write(lambda: self._groups.serve_requests(given_back))

    async def _drain_region(self, pool: Pool, minute: int) -> None:
        """Remove resources from a region during the drain, as operators do, and add them back afterwards."""
        pools = lease_pools
        first = REGIONS.index(DRAINED_REGION) * RESOURCES // len(REGIONS)
        drained = [f"r{number}" for number in range(first, first + DRAINED)]
        if DRAIN[0] <= minute < DRAIN[1]:
            await self._store.write(lambda: pools.remove_resources(pool, drained, now_us=self._now_us, rng=self._rng))
        if minute == DRAIN[1]:
            await self._add_resources(pool, DRAINED_REGION, drained)

    async def _ask_for_leases(self, coming: list[Arrival]) -> None:
        asked = [
            LeaseRequest(_CLIENT, _POOL, one.key, one.region, self._now_us + round(one.minutes * _MINUTE_US))
            for one in coming
        ]
        outcomes = await self._store.write(lambda: self._groups.serve_requests(asked)) if asked else []
        for one, outcome in zip(coming, outcomes, strict=True):
            self.totals.asked += 1
            if not isinstance(outcome, Grant):
                self.totals.refused += 1
                continue
            self.totals.doubled += outcome.resource in self._held
            self._held[outcome.resource] = outcome.expires_at_us
            # A key gives its lease back a little before the lease ends: a lease that has ended cannot be given back.
            heapq.heappush(
                self._ends, (outcome.expires_at_us - (one.returns * 1_000), one.key, outcome.resource, one.returns)
            )

    async def _record_counts(self, pool: Pool) -> None:
        counts = await self._store.read(lambda: lease_counts.read_counts([pool.key]))
        self.totals.refused_by_minute.append(self.totals.refused)
        for region in REGIONS:
            self.totals.shares[region].append(counts[pool.key, region].total)
            self.totals.used[region].append(counts[pool.key, region].held)


async def run_world(folder: Path, *, balanced: bool) -> Totals:
    settings = load({"store": f"{SQLITE_PREFIX}{folder}/{'balanced' if balanced else 'static'}.db"}, {})
    store = await open_store(settings)
    try:
        await store.write(create_schema)
        return await World(store, settings, balanced=balanced).run()
    finally:
        await store.close()


def draw_picture(static: Totals, balanced: Totals, path: Path) -> None:
    """Draw each region's demand, its share in the balanced world, and the refused leases of both worlds."""
    figure = new_figure(9, 8)
    axes: Any = figure.subplots(3, 1, sharex=True)
    hours = [minute / 60 for minute in range(0, MINUTES, _EVERY_MINUTES)]
    for region in REGIONS:
        asked = [demand_per_minute(region, minute) for minute in range(0, MINUTES, _EVERY_MINUTES)]
        (line,) = axes[0].plot(hours, asked, label=region)
        axes[1].plot(hours, balanced.shares[region][::_EVERY_MINUTES], color=line.get_color(), label=f"{region}: share")
        axes[1].plot(hours, balanced.used[region][::_EVERY_MINUTES], color=line.get_color(), linestyle=":", linewidth=1)
    axes[0].set_ylabel("keys that ask, a minute")
    axes[1].set_ylabel("resources (dotted: leased)")
    axes[2].plot(hours, static.refused_by_minute[::_EVERY_MINUTES], color="gray", label="static shares")
    axes[2].plot(hours, balanced.refused_by_minute[::_EVERY_MINUTES], color="black", label="balanced")
    axes[2].set_ylabel("leases refused so far")
    axes[2].set_xlabel("hours")
    for each in axes:
        each.axvspan(*(minute / 60 for minute in DRAIN), color="red", alpha=0.08, linewidth=0)
        each.legend(loc="upper left", fontsize="small")
        each.grid(alpha=0.3)
    figure.suptitle(f"{RESOURCES:,} resources in three regions; a spike in eu, operators drain {DRAINED_REGION} (red)")
    figure.savefig(path, format="svg", metadata={"Date": None})
    # Rounded numbers make the file a third smaller.
    path.write_text(re.sub(r"(\d\.\d)\d+", r"\1", path.read_text(encoding="utf-8")), encoding="utf-8")


def measure(options: Options, folder: Path) -> list[report.Bar]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    static = asyncio.run(run_world(folder, balanced=False))
    balanced = asyncio.run(run_world(folder, balanced=True))
    report.print_table(
        ["", "asked", "refused", "moved"],
        [
            [name, totals.asked, totals.refused, totals.moved]
            for name, totals in (("static", static), ("balanced", balanced))
        ],
    )
    if options.data is not None:
        draw_picture(static, balanced, options.data / _PICTURE)
        print(f"   drawn: {options.data / _PICTURE}")
    return [
        report.Bar("refusals that balancing spares", 100 * (1 - balanced.refused / max(1, static.refused)), 90, " %"),
        report.Bar("refusals with static shares", static.refused, 1),
        report.Bar("resources lost", abs(static.lost) + abs(balanced.lost), 0, at_most=True),
        report.Bar("resources that two had", static.doubled + balanced.doubled, 0, at_most=True),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"leases of three regions through {MINUTES // 1440} days, simulated")

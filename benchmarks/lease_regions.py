"""Count the keys that get two resources from three stores that read each other's lease journals with a second's delay.

python -m benchmarks.lease_regions [--rows N]     (as many keys as rows)

Every key requests a lease once in each of three regions within two hours. The stores' own programs run on a simulated
clock, and the clocks of the stores differ a little. The figures come from the leases that the simulation saw granted,
not from the counts of the stores.

Bars: at most 0.1 % of the keys get two resources. All of these keys are found, and their second resources are released.
"""

import asyncio
import random
import sys
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.options import Options, parse_options
from config import load
from service.stores import SQLITE_PREFIX, open_store
from storage.leases.lease_journal import lease_journal
from storage.leases.lease_records import Grant, LeaseRequest, PoolSpec
from storage.leases.lease_transaction import LeaseTransactions
from storage.leases.peers.elsewhere import remote_leases
from storage.leases.peers.exchange import LeaseExchange
from storage.leases.pools import lease_pools
from storage.schema.creation import create_schema
from storage.store import Program, Store

REGIONS = ("asia", "eu", "us")
DELAY_S = 1.0
_SPAN_S = 2 * 3_600  # within this time, a key requests a lease once in each region, at random moments
_TICK_S = 0.1
_CLOCKS_OFF_US = 50_000  # the difference between the clocks of neighbouring stores
_CLIENT, _POOL = "acme", "numbers"
_START_US = 1_760_000_000_000_000
_LEASE_US = 4 * _SPAN_S * 1_000_000
_PAGE = 1_000


@dataclass(slots=True)
class Region:
    name: str
    store: Store
    groups: LeaseTransactions
    exchange: LeaseExchange


@dataclass(slots=True)
class World:
    now_us: int = _START_US
    regions: list[Region] = field(default_factory=list)
    acquired: dict[str, list[str]] = field(default_factory=dict)  # for each key, the regions in which it got a resource
    counted: Counter[str] = field(default_factory=Counter)

    async def open_stores(self, folder: Path, stack: AsyncExitStack, keys: int) -> None:
        for index, name in enumerate(REGIONS):
            store = await open_store(load({"store": f"{SQLITE_PREFIX}{folder}/{name}.db"}, {}))
            stack.push_async_callback(store.close)
            await store.write(lambda store=store: create_schema(store.dialect))  # type: ignore[misc]

            def clock(off_us: int = index * _CLOCKS_OFF_US) -> Program[int]:
                yield from ()
                return self.now_us + off_us

            rng = random.Random(index)
            groups = LeaseTransactions(store.dialect, clock, margin_us=500_000, attempts_max=8, rng=rng, peers=True)
            exchange = LeaseExchange(clock, store_name=name, release_duplicates=True, attempts_max=8, rng=rng)
            await store.write(lambda store=store, name=name: _fill_pool(store, name, keys))  # type: ignore[misc]
            self.regions.append(Region(name, store, groups, exchange))

    async def ask_region(self, region: Region, keys: list[str]) -> None:
        asked = [LeaseRequest(_CLIENT, _POOL, key, region.name, None, _LEASE_US) for key in keys]
        for key, outcome in zip(
            keys, await region.store.write(lambda: region.groups.serve_requests(asked)), strict=True
        ):
            if not isinstance(outcome, Grant):
                self.counted["refused"] += 1
            elif outcome.acquired:
                self.acquired.setdefault(key, []).append(region.name)

    async def exchange_journals(self) -> None:
        """Let each store read those events of the other stores that are at least `DELAY_S` seconds old."""
        for reader in self.regions:
            for peer in self.regions:
                if peer is not reader:
                    await self._read_journal(reader, peer)

    async def _read_journal(self, reader: Region, peer: Region) -> None:
        while True:
            after = await reader.store.read(lambda: remote_leases.read_cursor(peer.name))
            page = await peer.store.read(partial(lease_journal.read_page, after, limit=_PAGE))
            off_us = self.regions.index(peer) * _CLOCKS_OFF_US
            old = [event for event in page if event.at_us <= self.now_us + off_us - DELAY_S * 1e6]
            if not old:
                return
            taken = await reader.store.write(
                lambda old=old: reader.exchange.apply_page(peer.name, old, rows_max=_PAGE)  # type: ignore[misc]
            )
            self.counted["found"] += taken.duplicates
            self.counted["released"] += taken.released
            if len(page) < _PAGE:
                return

    async def count_held_twice(self) -> int:
        """Return the number of keys that currently have more than one resource."""
        holders: Counter[str] = Counter()
        for region in self.regions:
            pools = lease_pools
            pool = await region.store.read(lambda pools=pools: pools.read_pool(_CLIENT, _POOL))  # type: ignore[misc]
            after = ""
            while True:
                rows = await region.store.read(
                    lambda pools=pools, pool=pool, after=after: pools.list_resources(pool, after=after, limit=10_000)  # type: ignore[misc]
                )
                holders.update(row.holder for row in rows if not row.is_free and row.holder is not None)
                if len(rows) < 10_000:
                    break
                after = rows[-1].resource
        return sum(count > 1 for count in holders.values())


def _fill_pool(store: Store, region: str, keys: int) -> Program[None]:
    pools = lease_pools
    pool, _ = yield from pools.save_pool(_CLIENT, _POOL, PoolSpec(10), now_us=_START_US, pools_max=10)
    names = [f"{region}-{number}" for number in range(keys)]
    yield from pools.add_resources(pool, region, names, now_us=_START_US, rng=random.Random(1))


async def run_regions(folder: Path, keys: int) -> tuple[World, int]:
    rng = random.Random(2026)
    ticks: dict[int, list[tuple[int, str]]] = {}
    for number in range(keys):
        for index in range(len(REGIONS)):
            ticks.setdefault(int(rng.uniform(0, _SPAN_S) / _TICK_S), []).append((index, f"key-{number}"))
    world = World()
    async with AsyncExitStack() as stack:
        await world.open_stores(folder, stack, keys)
        exchanged_us = world.now_us
        for tick in sorted(ticks):
            world.now_us = _START_US + round(tick * _TICK_S * 1e6)
            while exchanged_us + DELAY_S * 1e6 / 2 <= world.now_us:
                at_us, world.now_us = world.now_us, exchanged_us + round(DELAY_S * 1e6 / 2)
                await world.exchange_journals()
                exchanged_us, world.now_us = world.now_us, at_us
            for index in range(len(REGIONS)):
                asking = [key for each, key in ticks[tick] if each == index]
                if asking:
                    await world.ask_region(world.regions[index], asking)
        for _ in range(10):
            world.now_us += round(DELAY_S * 1e6)
            await world.exchange_journals()
        return world, await world.count_held_twice()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    world, held_twice = asyncio.run(run_regions(folder, options.rows))
    twice = sum(len(regions) > 1 for regions in world.acquired.values())
    extra = sum(len(regions) - 1 for regions in world.acquired.values())
    print(
        f"   {len(world.acquired):,} keys got a resource, {twice} of them in more than one store: {dict(world.counted)}"
    )
    return [
        report.Bar("keys with a resource in two stores", 100 * twice / len(world.acquired), 0.1, " %", at_most=True),
        report.Bar("keys that got two at all", twice, 1),
        report.Bar("duplicates that were not found", extra - world.counted["found"], 0, at_most=True),
        report.Bar("duplicates that were not released", extra - world.counted["released"], 0, at_most=True),
        report.Bar("keys that have two in the end", held_twice, 0, at_most=True),
        report.Bar("keys refused", world.counted["refused"], 0, at_most=True),
    ]


def main() -> int:
    options = parse_options(__doc__, rows=20_000)
    title = f"leases in three stores, {DELAY_S:g} s apart: {options.rows:,} keys ask in each within {_SPAN_S // 3600} h"
    return report.run_benchmark(options, title + " (simulated clock)", measure)


if __name__ == "__main__":
    sys.exit(main())

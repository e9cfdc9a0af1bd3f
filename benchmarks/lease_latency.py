"""Measure the time of lease requests over HTTP, with pools of 10,000 to 1,000,000 resources.

python -m benchmarks.lease_latency [--rows N] [--seconds S] [--rounds N]   (rows: the largest pool)

A request either gets the lease that its key already has, or acquires a lease for a new key. The pools of all sizes are
in one store; on PostgreSQL the store holds 15.5 M resources. Rounds with the different sizes take turns. Requests are
sent at half of the highest rate that the service reaches. The time of a request counts from when it was due, not from
when the client sent it. Each round gives a p50 and a p99 of thousands of requests. The reported figures are medians
over the rounds.

The database writes the rows of the pools itself, because over HTTP this would take an hour. They are the same as if
requests had written them. The indexes are created after the rows, as is usual in bulk loads.

Bars: p50 and p99 with 1,000,000 resources are at most 1.5 times those with 10,000. p99 is at most 4 ms to get a lease
and 12 ms to acquire a lease.
"""

import asyncio
import json
import os
import random
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.bulk import drop_index, run_statement
from benchmarks.options import Options
from benchmarks.paced import Ask, PacedClient, build_post, run_punctually
from benchmarks.servers import run_sql, serve_store
from config import load
from service.stores import SQLITE_PREFIX, open_store
from storage.leases.lease_journal import lease_counts
from storage.leases.lease_records import RegionCounts
from storage.leases.pools import RESOURCE_COLUMNS, lease_pools
from storage.schema.creation import create_schema
from storage.schema.lease_tables import LEASE_RESOURCES, RESOURCE_TABLES
from tests.servers import DURABLE, postgres

CLIENT, REGION = "bench", "eu"
FAR_US = 4_000_000_000_000_000  # the time at which the leases end: long after the measurement
_FREE_SINCE_US = 1_760_000_000_000_000
_RESOURCE_DIGITS = 10  # the name of a resource is as long as a telephone number
# These settings avoid checkpoints. A checkpoint would slow the rounds of one size but not the rounds of the others.
_SERVER = {
    **DURABLE,
    "shared_buffers": "1GB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}
_FLAT = 1.5
_P99_MS = {"get": 4.0, "acquire": 12.0}
_LEASE_S = 3_600
_WARM_S = 2.0
_ALL = 15_500_000
_SMALL = 10_000  # a pool with so few resources has enough free resources for one round only
_SATURATED = "saturated"  # the pool that is used only to find the saturating rates
_SATURATED_MIN = 200_000


def key_at(number: int) -> str:
    """Return the key that leases the resource with this number."""
    return f"key-{number}"


def fill_pools(store_url: str, pools: dict[str, int]) -> None:
    """Create pools in an empty store, and print how long this took.

    `pools` maps each pool's id to its number of resources. Every second resource is leased.
    """
    print(f"   loading {sum(pools.values()):,} resources", end="", flush=True)
    begun = time.perf_counter()
    asyncio.run(_fill(store_url, pools))
    print(f": {time.perf_counter() - begun:.0f} s", flush=True)


async def _fill(store_url: str, sizes: dict[str, int]) -> None:
    store = await open_store(load({"store": store_url, "statement_timeout_s": 3_600}, {}))
    try:
        await store.write(create_schema)
        _, *indexes = RESOURCE_TABLES
        for name in ("lease_resources_holder", "lease_resources_free", "lease_resources_leased"):
            await run_statement(store, drop_index(name, LEASE_RESOURCES))
        for pool_id, size in sizes.items():
            pool, _ = await store.write(
                partial(lease_pools.save_pool, CLIENT, pool_id, now_us=_FREE_SINCE_US, pools_max=100)
            )
            counts = {(pool.key, REGION): RegionCounts(total=size, held=size // 2, acquired=size // 2)}
            await store.write(partial(lease_counts.add_counts, counts, random.Random(1)))
            await asyncio.to_thread(run_sql, store_url, _rows(pool.key, size))
        for index in indexes:
            await run_statement(store, index)
    finally:
        await store.close()


def _rows(pool_key: int, size: int) -> str:
    """Return the statement that inserts a pool's resources, in SQL that both databases understand."""
    digits = f"substr(CAST({10**_RESOURCE_DIGITS} + i AS text), 2)"
    cells = {
        "pool_key": f"{pool_key}",
        "resource": f"'+49' || {digits}",
        "region": f"'{REGION}'",
        "holder": f"CASE i % 2 WHEN 0 THEN '{key_at(0)[:-1]}' || CAST(i AS text) END",
        "version": "1 - i % 2",
        "expires_at": f"CASE i % 2 WHEN 0 THEN {FAR_US} ELSE 0 END",
        "free_since": f"CASE i % 2 WHEN 1 THEN {_FREE_SINCE_US} + i END",
        "acquired_at": f"CASE i % 2 WHEN 0 THEN {_FREE_SINCE_US} ELSE 0 END",
    }
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {size})"
    into = f"INSERT INTO {LEASE_RESOURCES} ({', '.join(RESOURCE_COLUMNS)})"
    return f"{into} {numbers} SELECT {', '.join(cells[name] for name in RESOURCE_COLUMNS)} FROM n"


def pool_ids(size: int, rounds: int) -> list[str]:
    """Return the ids of enough pools for `rounds` rounds, with `size` resources in each pool."""
    return [f"p{size}-{number}" for number in range(rounds + 1 if size <= _SMALL else 1)]


def _saturated_size(sizes: list[int]) -> int:
    return max(sizes[-1], _SATURATED_MIN)


class Asker:
    """Builds lease requests for pools of one size."""

    def __init__(self, pools: list[str], size: int, rounds: int, rng: random.Random) -> None:
        self.free = len(pools) * (size // 2) // (rounds + 1)  # resources per round
        self._pools, self._keys, self._rng = pools, size // 2, rng
        self._pool_id = pools[0]

    def begin_round(self, number: int) -> None:
        self._pool_id = self._pools[number % len(self._pools)]

    def get(self) -> bytes:
        """Build a request for a key that has a lease. The service returns that lease, because it lasts long enough."""
        return self._body(key_at(self._rng.randrange(self._keys) * 2), lease_seconds=1)

    def acquire(self) -> bytes:
        """Build a request for a key that has no lease."""
        return self._body(f"new-{self._rng.getrandbits(60)}", lease_seconds=_LEASE_S)

    def _body(self, name: str, **lasts: object) -> bytes:
        asked = {"client_id": CLIENT, "pool_id": self._pool_id, "key": name, "region": REGION, **lasts}
        return build_post("/v1/leases", json.dumps(asked).encode())


Figures = dict[tuple[str, int], tuple[float, float]]  # p50 and p99 in ms, by kind of request and size


async def measure_service(port: int, sizes: list[int], options: Options) -> tuple[Figures, dict[str, float]]:
    rng = random.Random()  # no seed: with a fixed seed, the keys would have leases from an earlier run
    askers = {size: Asker(pool_ids(size, options.rounds), size, options.rounds, rng) for size in sizes}
    saturating = Asker([_SATURATED], _saturated_size(sizes), options.rounds, rng)
    rates: dict[str, float] = {}
    rounds: dict[tuple[str, int], list[tuple[float, float]]] = {}
    async with PacedClient(port) as paced:
        for what in ("get", "acquire"):
            asks: dict[int, Ask] = {size: getattr(asker, what) for size, asker in askers.items()}
            saturate: Ask = getattr(saturating, what)
            await paced.measure_saturation(saturate, seconds=_WARM_S)
            rates[what] = await paced.measure_saturation(saturate, seconds=options.seconds)
            for number in range(options.rounds + 1):
                for size in sizes if number % 2 else sizes[::-1]:
                    askers[size].begin_round(number)
                    seconds = options.seconds if number else min(options.seconds, _WARM_S)
                    if what == "acquire":
                        seconds = min(seconds, 0.9 * askers[size].free / (rates[what] / 2))
                    took = sorted(await paced.send_at_rate(asks[size], per_s=rates[what] / 2, seconds=seconds, rng=rng))
                    if number:
                        quantiles = took[len(took) // 2], took[int(len(took) * 0.99)]
                        rounds.setdefault((what, size), []).append(quantiles)
    figures = {
        place: (statistics.median(one[0] for one in found), statistics.median(one[1] for one in found))
        for place, found in rounds.items()
    }
    return figures, rates


def measure_on(name: str, url: str, folder: Path, sizes: list[int], options: Options) -> list[report.Bar]:
    with serve_store(url, folder) as server:
        figures, rates = run_punctually(measure_service(server.port, sizes, options))
    print(f"   {name}: saturated at {rates['get']:,.0f} gets/s, {rates['acquire']:,.0f} acquisitions/s")
    report.print_table(
        [name, "resources", "p50 ms", "p99 ms"],
        [[what, size, p50, p99] for (what, size), (p50, p99) in figures.items()],
    )
    bars = []
    for what in ("get", "acquire"):
        for at, quantile in enumerate(("p50", "p99")):
            found = [figures[what, size][at] for size in sizes]
            title = f"{name}: {what} {quantile}, {sizes[-1]:,} / {sizes[0]:,}"
            bars.append(report.Bar(title, found[-1] / found[0], _FLAT, at_most=True))
        worst = max(figures[what, size][1] for size in sizes)
        bars.append(report.Bar(f"{name}: {what} p99, any size", worst, _P99_MS[what], " ms", at_most=True))
    return bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size <= options.rows]
    pools = {name: size for size in sizes for name in pool_ids(size, options.rounds)}
    pools[_SATURATED] = _saturated_size(sizes)
    store = folder / "leases.db"
    url = f"{SQLITE_PREFIX}{store}"
    fill_pools(url, pools)
    os.sync()  # without this call, the system would write gigabytes to disk during the rounds
    bars = measure_on("SQLite", url, folder, sizes, options)
    store.unlink()
    if sizes[-1] == 1_000_000:
        pools["rest"] = _ALL - sum(pools.values())
    with postgres(_SERVER) as cluster:
        fill_pools(cluster.url(), pools)
        cluster.run_sql("VACUUM (FREEZE, ANALYZE)", "CHECKPOINT")
        os.sync()
        return bars + measure_on("PostgreSQL", cluster.url(), folder, sizes, options)


if __name__ == "__main__":
    report.run_program(measure, __doc__, "leases: pools of up to {rows:,} resources", rounds=6)

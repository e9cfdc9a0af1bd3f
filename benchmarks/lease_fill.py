"""Fill pools of millions of resources. The database writes the rows itself, because over HTTP this would take an hour.

The rows and counts are the same as if requests had written them. The indexes are created after the rows, as is usual in
bulk loads.
"""

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial

from benchmarks.bulk import run_statement
from config import load
from querybuilder import drop_index
from service.stores import open_store
from storage.leases.lease_records import PoolSpec, RegionCounts
from storage.leases.lease_resources import RESOURCE_COLUMNS
from storage.leases.pools import lease_pools
from storage.leases.region_counts import lease_counts
from storage.schema.creation import create_schema
from storage.schema.lease_tables import LEASE_RESOURCES, RESOURCE_TABLES

CLIENT, REGION, LANES = "bench", "eu", 10
FAR_US = 4_000_000_000_000_000  # the time at which the leases end: long after the measurement
_FREE_SINCE_US = 1_760_000_000_000_000
_RESOURCE_DIGITS = 10  # the name of a resource is as long as a telephone number


def key_at(number: int) -> str:
    """Return the key that has leased the resource with this number."""
    return f"key-{number}"


def fill_pools(store_url: str, run_sql: Callable[[str], object], pools: dict[str, int]) -> None:
    """Create pools in an empty store, and print how long this took.

    `pools` maps the id of a pool to its number of resources. Every second resource is leased. `run_sql` runs a
    statement on the same store.
    """
    print(f"   loading {sum(pools.values()):,} resources", end="", flush=True)
    begun = time.perf_counter()
    asyncio.run(_fill(store_url, run_sql, pools))
    print(f": {time.perf_counter() - begun:.0f} s", flush=True)


async def _fill(store_url: str, run_sql: Callable[[str], object], sizes: dict[str, int]) -> None:
    store = await open_store(load({"store": store_url, "statement_timeout_s": 3_600}, {}))
    try:
        dialect = store.dialect
        await store.write(lambda: create_schema(dialect))
        _, *indexes = RESOURCE_TABLES
        for name in ("lease_resources_holder", "lease_resources_free", "lease_resources_leased"):
            await run_statement(store, drop_index(name, LEASE_RESOURCES))
        for pool_id, size in sizes.items():
            spec = PoolSpec(LANES)
            pool, _ = await store.write(
                partial(lease_pools.save_pool, CLIENT, pool_id, spec, now_us=_FREE_SINCE_US, pools_max=100)
            )
            counts = {(pool.key, REGION): RegionCounts(total=size, held=size // 2, acquired=size // 2)}
            await store.write(partial(lease_counts.add_counts, counts, random.Random(1)))
            await asyncio.to_thread(run_sql, _rows(pool.key, size))
        for index in indexes:
            await run_statement(store, index)
    finally:
        await store.close()


def _rows(pool_key: int, size: int) -> str:
    """Return the statement that inserts the resources of a pool, in SQL for both databases."""
    digits = f"substr(CAST({10**_RESOURCE_DIGITS} + i AS text), 2)"
    cells = {
        "pool_key": f"{pool_key}",
        "resource": f"'+49' || {digits}",
        "region": f"'{REGION}'",
        "lane": f"(i / 2) % {LANES}",
        "holder": f"CASE i % 2 WHEN 0 THEN '{key_at(0)[:-1]}' || CAST(i AS text) END",
        "version": "1 - i % 2",
        "expires_at": f"CASE i % 2 WHEN 0 THEN {FAR_US} ELSE 0 END",
        "free_since": f"CASE i % 2 WHEN 1 THEN {_FREE_SINCE_US} + i END",
        "acquired_at": f"CASE i % 2 WHEN 0 THEN {_FREE_SINCE_US} ELSE 0 END",
    }
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {size})"
    into = f"INSERT INTO {LEASE_RESOURCES} ({', '.join(RESOURCE_COLUMNS)})"
    return f"{into} {numbers} SELECT {', '.join(cells[name] for name in RESOURCE_COLUMNS)} FROM n"

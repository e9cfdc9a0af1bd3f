"""Pools of millions of resources, written through the store itself: by HTTP they would take an hour.

Rule kept: rows and counts are those that as many requests would have left; indexes are only made after the rows, as any
bulk load does.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial

from config import load
from querybuilder import INTEGER, TEXT, Query, drop_index, insert, param
from service.stores import open_store
from storage.lease_counts import lease_counts
from storage.lease_pools import lease_pools
from storage.lease_records import Pool, PoolSpec, RegionCounts
from storage.lease_resources import NAMES
from storage.lease_tables import LEASE_RESOURCES, lease_resource_tables
from storage.migrate import migrate
from storage.store import Program, Store

CLIENT, REGION, PARTITIONS = "bench", "eu", 10
FAR_US = 4_000_000_000_000_000  # when the leases end: long after the measurement
_BATCH_ROWS = 50_000
_FREE_SINCE_US = 1_760_000_000_000_000


def resource(number: int) -> str:
    """A resource's text, as long as a telephone number."""
    return f"+49{number:010d}"


def key(number: int) -> str:
    """The key that has the resource of that number."""
    return f"key-{number}"


def fill(store_url: str, pools: dict[str, int]) -> None:
    """Pools of so many resources in an empty store, every second one leased. Prints how long it took."""
    print(f"   loading {sum(pools.values()):,} resources", end="", flush=True)
    begun = time.perf_counter()
    asyncio.run(_fill(store_url, pools))
    print(f": {time.perf_counter() - begun:.0f} s", flush=True)


async def _fill(store_url: str, sizes: dict[str, int]) -> None:
    store = await open_store(load({"store": store_url, "statement_timeout_s": 3_600}, {}))
    try:
        dialect = store.dialect
        await store.write(lambda: migrate(dialect))
        _, *indexes = lease_resource_tables()
        for name in ("lease_resources_holder", "lease_resources_free", "lease_resources_leased"):
            await _run(store, drop_index(name))
        kinds = dict.fromkeys(NAMES, INTEGER) | dict.fromkeys(("resource", "region", "holder"), TEXT)
        add = insert(LEASE_RESOURCES).rows(param("rows"), **kinds).compile(dialect)
        for pool_id, size in sizes.items():
            spec = PoolSpec(PARTITIONS)
            pool, _ = await store.write(
                partial(lease_pools(dialect).put, CLIENT, pool_id, spec, now_us=_FREE_SINCE_US, pools_max=100)
            )
            for start in range(0, size, _BATCH_ROWS):
                rows = [_row(pool, number) for number in range(start, min(start + _BATCH_ROWS, size))]
                await store.write(lambda rows=rows: _written(add.bind(rows=rows)))  # type: ignore[misc]
            counts = {(pool.key, REGION): RegionCounts(total=size, held=size // 2, acquired=size // 2)}
            await store.write(partial(lease_counts(dialect).add, counts, random.Random(1)))
        for index in indexes:
            await _run(store, index)
    finally:
        await store.close()


def _row(pool: Pool, number: int) -> Sequence[object]:
    leased = number % 2 == 0
    return (
        pool.key, resource(number), REGION, number // 2 % PARTITIONS, key(number) if leased else None, int(leased),
        FAR_US if leased else 0, None if leased else _FREE_SINCE_US + number,
        _FREE_SINCE_US if leased else 0,
    )  # fmt: skip


def _written(query: object) -> Program[None]:
    yield query  # type: ignore[misc]


async def _run(store: Store, query: Query) -> None:
    def program() -> Program[None]:
        yield query.build(store.dialect)

    await store.write(program)

"""Handlers and routes of pools, and of the resources that operators put into them.

The numbers of a pool come from stored counts. Until an ended lease is taken back (liberated), the counts include it.
Such leases are counted row by row and subtracted, at most `lease_expired_counted_max` in each region.
"""

import random

import msgspec

from jobs.leases.rebalance import decode_load, forecast_headroom
from service.context import Context
from service.contract.keys import Role
from service.contract.lease_messages import (
    AddedResources,
    AddResources,
    PoolAnswer,
    PoolList,
    PoolsQuery,
    RegionAnswer,
    RemovedResources,
    RemoveResources,
    ResourceAnswer,
    ResourceList,
    parse_resource,
)
from service.contract.problems import check_count
from service.contract.queries import ListQuery
from service.contract.routes import Call, Reply, Route
from service.contract.values import format_us
from storage.leases.claims import store_clock
from storage.leases.lease_journal import lease_counts
from storage.leases.lease_records import Pool, Resource
from storage.leases.lease_resources import lease_resources
from storage.leases.pools import lease_pools
from storage.store import Program

from .leases import TAG

_POOL = "/v1/pools/{client_id}/{pool_id}"
_RESOURCES = _POOL + "/resources"
_RNG = random.Random()  # a stored count is the sum of several rows; this chooses the row that a request changes


async def put_pool(context: Context, call: Call) -> Reply:
    pools_max = context.settings.lease_pools_max
    pool, made = await context.store.write(
        lambda: lease_pools.save_pool(**call.path, now_us=context.now_us(), pools_max=pools_max)
    )
    return Reply(await _answer(context, pool), status=201 if made else 200)


async def get_pool(context: Context, call: Call) -> PoolAnswer:
    pool = await context.store.read(lambda: lease_pools.read_pool(**call.path))
    return await _answer(context, pool)


async def get_pools(context: Context, call: Call) -> PoolList:
    query: PoolsQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    client_id = query.client_id
    after = context.cursors.find_start(query.cursor, client_id, ("", ""))
    pools = await context.store.read(lambda: lease_pools.list_pools(after=after, client_id=client_id, limit=limit + 1))
    shown, next_page = context.cursors.cut_page(pools, limit, client_id, lambda last: last.name)
    return PoolList([_pool_answer(pool) for pool in shown], next_page)


async def remove_pool(context: Context, call: Call) -> None:
    await context.store.write(lambda: lease_pools.drop_pool(**call.path, now_us=context.now_us()))


async def add_resources(context: Context, call: Call) -> AddedResources:
    body: AddResources = call.body
    names = _resources(context, body.resources)

    def program() -> Program[AddedResources]:
        pool = yield from lease_pools.read_pool(**call.path)
        now_us = yield from store_clock()
        added = yield from lease_pools.add_resources(pool, body.region, names, now_us=now_us, rng=_RNG)
        return AddedResources(len(added), len(names) - len(added))

    return await context.store.write(program)


async def remove_resources(context: Context, call: Call) -> RemovedResources:
    body: RemoveResources = call.body
    names = _resources(context, body.resources)

    def program() -> Program[RemovedResources]:
        pool = yield from lease_pools.read_pool(**call.path)
        now_us = yield from store_clock()
        removed = yield from lease_pools.remove_resources(pool, names, now_us=now_us, rng=_RNG)
        return RemovedResources(*removed)

    return await context.store.write(program)


async def get_resources(context: Context, call: Call) -> ResourceList:
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default

    def program() -> Program[tuple[Pool, list[Resource]]]:
        pool = yield from lease_pools.read_pool(**call.path)
        after = context.cursors.find_start(query.cursor, pool.key, "")
        return pool, (yield from lease_pools.list_resources(pool, after=after, limit=limit + 1))

    pool, rows = await context.store.read(program)
    shown, next_page = context.cursors.cut_page(rows, limit, pool.key, lambda last: last.resource)
    listed = [
        ResourceAnswer(
            resource=row.resource,
            region=row.region,
            version=row.version,
            key=None if row.is_free else row.holder,
            lease_expires=None if row.is_free else format_us(row.expires_at_us),
        )
        for row in shown
    ]
    return ResourceList(listed, next_page)


def _resources(context: Context, given: list[str]) -> list[str]:
    most = context.settings.lease_resources_per_request_max
    check_count(len(given), most, "too_many_resources", "/resources", "resources")
    names = [parse_resource(text, pointer=f"/resources/{index}") for index, text in enumerate(given)]
    return list(dict.fromkeys(names))


async def _answer(context: Context, pool: Pool) -> PoolAnswer:
    settings = context.settings

    def program() -> Program[dict[str, RegionAnswer]]:
        before_us = (yield from store_clock()) - round(settings.lease_margin_s * 1e6)
        limit = settings.lease_expired_counted_max
        counts = yield from lease_resources.count_running([pool.key], before_us=before_us, limit=limit)
        loads = yield from lease_counts.read_loads([pool.key])
        regions: dict[str, RegionAnswer] = {}
        for (_, region), (total, leased, _, _) in counts.items():
            available, left = total - leased, None
            stored = loads.get((pool.key, region))
            if stored is not None and (load := decode_load(stored)).has_averages:
                left = forecast_headroom(load, available, settings.balance_horizon_s)
            regions[region] = RegionAnswer(total=total, leased=leased, available=available, headroom=left)
        return regions

    regions = await context.store.read(program)
    return msgspec.structs.replace(_pool_answer(pool), regions=regions, headroom_seconds=settings.balance_horizon_s)


def _pool_answer(pool: Pool) -> PoolAnswer:
    return PoolAnswer(client_id=pool.client_id, pool_id=pool.pool_id, created_at=format_us(pool.created_at_us))


POOLS = [
    Route("GET", "/v1/pools", get_pools, Role.WRITER, "pools", TAG, query=PoolsQuery),
    Route("PUT", _POOL, put_pool, Role.OPS, "put_pool", TAG),
    Route("GET", _POOL, get_pool, Role.WRITER, "pool", TAG),
    Route("DELETE", _POOL, remove_pool, Role.OPS, "delete_pool", TAG),
    Route("POST", _RESOURCES, add_resources, Role.OPS, "add_resources", TAG, body=AddResources),
    Route("GET", _RESOURCES, get_resources, Role.OPS, "resources", TAG, query=ListQuery),
    Route("DELETE", _RESOURCES, remove_resources, Role.OPS, "remove_resources", TAG, body=RemoveResources),
]  # fmt: skip

"""Handlers and routes for pools (sets of resources) and for leases, which give a resource to a key for a limited time.

Operators change pools. Callers with the role writer read pools, ask for leases, return them and read their journal. The
store's clock decides when a lease ends, because the clocks of processes differ.

A pool's numbers come from stored counts, which include an ended lease until it is taken back (liberated). So these
leases are counted row by row and subtracted, at most `lease_expired_counted_max` in each region.
"""

import random

import msgspec
from msgspec import UNSET

from jobs.leases.rebalance import decode_load, forecast_headroom
from service.context import Context
from service.contract.api_keys import Role
from service.contract.lease_messages import (
    AddedResources,
    AddResources,
    AskLease,
    LeaseAnswer,
    LeaseEventLine,
    PoolAnswer,
    PoolList,
    PoolsQuery,
    RegionAnswer,
    RemovedResources,
    RemoveResources,
    ResourceAnswer,
    ResourceList,
    parse_lease_key,
    parse_resource,
)
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import ProblemError, check_count
from service.contract.queries import LeaseJournalQuery, ListQuery
from service.contract.routes import Call, Reply, Route
from service.contract.values import format_us, to_micros
from service.streams.long_answers import encode_in_turns
from storage.leases.lease_journal import PublishedLeaseEvent, lease_counts, lease_journal
from storage.leases.lease_records import Grant, LeaseRequest, Pool, Release, Resource
from storage.leases.pools import lease_pools, lease_resources
from storage.leases.work_leases import store_clock
from storage.store import Program

TAG = "Leases"
_LEASE = "/v1/leases/{client_id}/{pool_id}/{key}"


async def ask_lease(context: Context, call: Call) -> LeaseAnswer:
    body: AskLease = call.body
    key = parse_lease_key(body.key, pointer="/key")
    expires_at_us, lease_us = _how_long(context, body)
    given = await context.lease_batcher.request_lease(
        LeaseRequest(body.client_id, body.pool_id, key, body.region, expires_at_us, lease_us)
    )
    return _answer(given)


async def get_lease(context: Context, call: Call) -> LeaseAnswer:
    return _answer(await context.lease_batcher.find_lease(**call.path))


async def give_back(context: Context, call: Call) -> None:
    await context.lease_batcher.release_lease(Release(**call.path))


async def get_lease_journal(context: Context, call: Call) -> Reply:
    query: LeaseJournalQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    async with context.long_answers.hold_turn():
        events = await context.store.read(lambda: lease_journal.read_page(query.after, limit=limit), heavy=True)
        return Reply(await encode_in_turns(map(_line, events)), media_type=NDJSON_TYPE)


def _how_long(context: Context, body: AskLease) -> tuple[int | None, int]:
    expires, seconds = body.lease_expires, body.lease_seconds
    if (expires is UNSET) == (seconds is UNSET):
        detail = "give either lease_expires or lease_seconds"
        raise ProblemError("bad_request", detail, pointer="/lease_expires")
    most_s = context.settings.lease_s_max
    if seconds is not UNSET:
        if seconds > most_s:
            raise ProblemError("bad_value", f"a lease lasts at most {most_s:.15g} s", pointer="/lease_seconds")
        return None, max(1, round(seconds * 1e6))
    expires_at_us = to_micros(expires)  # type: ignore[arg-type]
    # This check only refuses a lease that would be much too long. The store's clock decides when the lease ends.
    if expires_at_us > context.now_us() + most_s * 1e6:
        raise ProblemError("bad_value", f"a lease lasts at most {most_s:.15g} s", pointer="/lease_expires")
    return expires_at_us, 0


def _answer(given: Grant) -> LeaseAnswer:
    return LeaseAnswer(
        resource=given.resource,
        key=given.key,
        lease_expires=format_us(given.expires_at_us),
        expires_in=(given.expires_at_us - given.now_us) / 1e6,
        version=given.version,
        acquired=given.acquired,
        region=given.region,
    )


def _line(event: PublishedLeaseEvent) -> LeaseEventLine:
    return LeaseEventLine(
        seq=event.number,
        at=format_us(event.at_us),
        kind=event.kind,
        client_id=event.client_id,
        pool_id=event.pool_id,
        resource=event.resource,
        key=event.key,
        region=event.region,
        version=event.version,
        lease_expires=format_us(event.expires_at_us) if event.expires_at_us else None,
    )


LEASES = [
    Route("POST", "/v1/leases", ask_lease, Role.WRITER, "ask_lease", TAG, has_own_metrics=True, body=AskLease),
    Route("GET", _LEASE, get_lease, Role.WRITER, "lease", TAG),
    Route("DELETE", _LEASE, give_back, Role.WRITER, "give_back_lease", TAG),
    Route("GET", "/v1/leases/journal", get_lease_journal, Role.WRITER, "lease_journal", TAG, query=LeaseJournalQuery),
]  # fmt: skip


_POOL = "/v1/pools/{client_id}/{pool_id}"
_RESOURCES = _POOL + "/resources"
_RNG = random.Random()  # chooses which row a request changes, because a stored count is the sum of several rows


async def put_pool(context: Context, call: Call) -> Reply:
    pools_max = context.settings.lease_pools_max
    pool, made = await context.store.write(
        lambda: lease_pools.save_pool(**call.path, now_us=context.now_us(), pools_max=pools_max)
    )
    return Reply(await _measured_answer(context, pool), status=201 if made else 200)


async def get_pool(context: Context, call: Call) -> PoolAnswer:
    pool = await context.store.read(lambda: lease_pools.read_pool(**call.path))
    return await _measured_answer(context, pool)


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


async def _measured_answer(context: Context, pool: Pool) -> PoolAnswer:
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
    Route("PUT", _POOL, put_pool, Role.OPS, "put_pool", TAG, acts=("pool.created",)),
    Route("GET", _POOL, get_pool, Role.WRITER, "pool", TAG),
    Route("DELETE", _POOL, remove_pool, Role.OPS, "delete_pool", TAG, acts=("pool.deleted",)),
    Route("POST", _RESOURCES, add_resources, Role.OPS, "add_resources", TAG, body=AddResources,
        acts=("resources.added",)),
    Route("GET", _RESOURCES, get_resources, Role.OPS, "resources", TAG, query=ListQuery),
    Route("DELETE", _RESOURCES, remove_resources, Role.OPS, "remove_resources", TAG, body=RemoveResources,
        acts=("resources.removed",)),
]  # fmt: skip

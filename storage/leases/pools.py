"""Makes, lists, fills, empties and drops the pools of resources, as operators request it.

Nobody takes a running lease away from a key, not even an operator. So a leased resource stays in its pool until its
lease ends. The exception is to drop a whole pool, which ends all its leases. Callers do not see a dropped pool, and
`LeasePools.sweep_dropped` deletes the rows of the pool later, in bounded steps.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from querybuilder import (
    ASC,
    TEXT,
    Lock,
    asc,
    coalesce,
    col,
    count,
    delete,
    insert,
    larger_of,
    max_,
    param,
    plus,
    rows,
    seek,
    select,
    update,
)
from storage.errors import CatalogFullError, UnknownPoolError
from storage.schema.lease_tables import LEASE_POOLS, LEASE_RESOURCES, VERSIONS_IN_FLIGHT
from storage.schema.sequences import take_number
from storage.store import Program

from .lease_journal import lease_counts
from .lease_records import LeaseEvent, LeaseEventKind, Pool, Resource
from .lease_resources import RESOURCE_COLUMNS, lease_resources, pool_condition
from .work_leases import GIVEN_BACK

POOL_SEQUENCE = "pool_key"
POOL_COLUMNS = ("pool_key", "client_id", "pool_id", "created_at", "floor")


class Removed(NamedTuple):
    removed: int
    leased: int  # resources that were not removed, because they are leased
    unknown: int  # resources that were not removed, because they are not in the pool


class LeasePools:
    def __init__(self) -> None:
        by_key, exists = col("pool_key").eq(param("pool_key")), col("deleted_at").is_null()
        client_id, pool_id, floor, resource = map(col, ("client_id", "pool_id", "floor", "resource"))
        named = rows("v", param("names"), client_id=TEXT, pool_id=TEXT)
        pools = select(*(col(name, "p") for name in POOL_COLUMNS)).from_(LEASE_POOLS, "p")
        self._by_names = pools.join(named, pool_condition("v")).packed().prepared()
        page = select(*map(col, POOL_COLUMNS)).from_(LEASE_POOLS).where(exists).order_by(asc(client_id), asc(pool_id))
        page = page.limit(param("limit")).packed()
        after = seek((client_id, ASC, param("client_id")), (pool_id, ASC, param("pool_id")))
        self._listed = page.where(after).prepared()
        one_client = client_id.eq(param("client_id"))
        self._of_client = page.where(one_client, pool_id.gt(param("pool_id"))).prepared()
        self._number = select(count()).from_(LEASE_POOLS).where(exists).prepared()
        same_name = (one_client, pool_id.eq(param("pool_id")))
        self._dropped_floor = select(coalesce(max_(floor), 0)).from_(LEASE_POOLS).where(*same_name).prepared()
        values = {name: param(name) for name in POOL_COLUMNS}
        self._insert = insert(LEASE_POOLS).values(**values, deleted_at=None, swept=0).prepared()
        higher = (by_key, floor.lt(param("floor")))
        self._set_floor = update(LEASE_POOLS).set(floor=param("floor")).where(*higher).prepared()
        still_there = select(floor).from_(LEASE_POOLS).where(by_key, exists)
        self._hold = still_there.locked(Lock.NO_KEY_UPDATE).prepared()
        # The floor of a dropped pool is greater than every version of its resources. So a later pool with the same id
        # never uses a version again.
        newest = select(max_(col("version"))).from_(LEASE_RESOURCES).where(by_key).scalar()
        floor_after = plus(larger_of(floor, coalesce(newest, 0)), VERSIONS_IN_FLIGHT)
        dropping = update(LEASE_POOLS).set(deleted_at=param("now_us"), floor=floor_after)
        self._drop = dropping.where(by_key).prepared()
        dropped = select(col("pool_key")).from_(LEASE_POOLS).where(col("deleted_at").not_null(), col("swept").eq(0))
        self._to_sweep = dropped.order_by(asc(col("pool_key"))).limit(1).prepared()
        some = select(resource).from_(LEASE_RESOURCES).where(by_key).order_by(asc(resource)).limit(param("limit"))
        self._sweep = delete(LEASE_RESOURCES).where(by_key, resource.in_(some)).prepared()
        self._swept = update(LEASE_POOLS).set(swept=1).where(by_key).prepared()
        add = insert(LEASE_RESOURCES).rows(param("rows"), **RESOURCE_COLUMNS).on_conflict("pool_key", "resource")
        self._add = add.do_nothing().returning(resource).prepared()
        # Only free resources are deleted. If another transaction leases a resource meanwhile, the resource stays.
        free = (by_key, resource.in_(param("resources")), col("free_since").not_null())
        self._remove = delete(LEASE_RESOURCES).where(*free).returning(*map(col, RESOURCE_COLUMNS)).prepared()
        listed = select(*map(col, RESOURCE_COLUMNS)).from_(LEASE_RESOURCES).where(by_key, resource.gt(param("after")))
        self._page = listed.order_by(asc(resource)).limit(param("limit")).packed().prepared()

    def find_by_names(self, names: Sequence[tuple[str, str]]) -> Program[dict[tuple[str, str], Pool]]:
        """Return the named pools that exist, by client id and pool id."""
        found = yield self._by_names.bind(names=sorted(set(names)))
        return {pool.name: pool for pool in (Pool(*row) for row in found)}

    def read_pool(self, client_id: str, pool_id: str) -> Program[Pool]:
        """Return one pool, or raise `UnknownPoolError`."""
        found = yield from self.find_by_names([(client_id, pool_id)])
        if not found:
            raise UnknownPoolError(f"the client {client_id!r} has no pool {pool_id!r}")
        return found[client_id, pool_id]

    def list_pools(
        self, *, after: tuple[str, str] = ("", ""), client_id: str | None, limit: int
    ) -> Program[list[Pool]]:
        """Return up to `limit` pools whose ids follow `after`, in order; with `client_id`, only this client's pools."""
        if client_id is None:
            found = yield self._listed.bind(client_id=after[0], pool_id=after[1], limit=limit)
        else:
            found = yield self._of_client.bind(client_id=client_id, pool_id=after[1], limit=limit)
        return [Pool(*row) for row in found]

    def save_pool(self, client_id: str, pool_id: str, *, now_us: int, pools_max: int) -> Program[tuple[Pool, bool]]:
        """Create a pool unless it exists. Return the pool and whether it is new.

        Raises:
            CatalogFullError: the pool is new, and the store already has `pools_max` pools.
        """
        found = yield from self.find_by_names([(client_id, pool_id)])
        if found:
            return found[client_id, pool_id], False
        [[number]] = yield self._number.bind()
        if number >= pools_max:
            raise CatalogFullError(f"this store holds {pools_max} pools, as many as lease_pools_max allows")
        key = yield from take_number(POOL_SEQUENCE)
        bound = {"pool_key": key, "client_id": client_id, "pool_id": pool_id, "created_at": now_us}
        [[floor]] = yield self._dropped_floor.bind(client_id=client_id, pool_id=pool_id)
        yield self._insert.bind(**bound, floor=floor)
        return Pool(key, client_id, pool_id, now_us, floor), True

    def drop_pool(self, client_id: str, pool_id: str, *, now_us: int) -> Program[None]:
        """Drop a pool, which ends all its leases. Raise `UnknownPoolError` if there is no such pool."""
        pool = yield from self.read_pool(client_id, pool_id)
        yield self._drop.bind(pool_key=pool.key, now_us=now_us)

    def sweep_dropped(self, *, rows_max: int) -> Program[int]:
        """Delete up to `rows_max` rows of a dropped pool. Return how many, or 1 if none; 0: no dropped pool is left."""
        found = yield self._to_sweep.bind()
        if not found:
            return 0
        [[pool_key]] = found
        [[deleted]] = yield self._sweep.bind(pool_key=pool_key, limit=rows_max)
        if deleted < rows_max:
            yield from lease_counts.delete_counts(pool_key)
            yield self._swept.bind(pool_key=pool_key)
        return max(1, int(deleted))  # after 0 the caller stops, but another dropped pool may still have rows

    def add_resources(
        self, pool: Pool, region: str, names: Sequence[str], *, now_us: int, rng: random.Random
    ) -> Program[list[str]]:
        """Add resources to a region, and return the names of the new ones. Resources already in the pool do not change.

        Raises:
            UnknownPoolError: the pool was dropped after the caller read it.
        """
        floor = yield from self._hold_floor(pool)
        wanted = {name: Resource(pool.key, name, region, None, floor, GIVEN_BACK, now_us) for name in names}
        added = yield self._add.bind(rows=[wanted[name] for name in sorted(wanted)])
        events = [LeaseEvent(LeaseEventKind.ADDED, wanted[name], None, now_us) for [name] in added]
        yield from lease_resources.record_events(events, rng)
        return [name for [name] in added]

    def remove_resources(
        self, pool: Pool, names: Sequence[str], *, now_us: int, rng: random.Random
    ) -> Program[Removed]:
        """Remove free resources from a pool. Leased resources stay. Raises UnknownPoolError if the pool was dropped."""
        yield from self._hold_floor(pool)
        wanted = sorted(set(names))
        found = yield self._remove.bind(pool_key=pool.key, resources=wanted)
        removed = [Resource(*row) for row in found]
        if removed:
            yield self._set_floor.bind(pool_key=pool.key, floor=1 + max(row.version for row in removed))
        leased = len((yield from lease_resources.find_by_names([(pool.key, name) for name in wanted])))
        events = [LeaseEvent(LeaseEventKind.REMOVED, row, None, now_us) for row in removed]
        yield from lease_resources.record_events(events, rng)
        return Removed(len(removed), leased, len(wanted) - len(removed) - leased)

    def _hold_floor(self, pool: Pool) -> Program[int]:
        """Lock a pool, so that no other transaction adds or removes resources. Return the version for new resources."""
        found = yield self._hold.bind(pool_key=pool.key)
        if not found:
            raise UnknownPoolError(f"the client {pool.client_id!r} has no pool {pool.pool_id!r}")
        return int(found[0][0])

    def list_resources(self, pool: Pool, *, after: str, limit: int) -> Program[list[Resource]]:
        """Return up to `limit` resources of a pool whose names follow `after`, ordered by name."""
        found = yield self._page.bind(pool_key=pool.key, after=after, limit=limit)
        return [Resource(*row) for row in found]


lease_pools = LeasePools()

"""Creates, lists, fills, empties and drops resource pools for operators, and finds and changes their resources.

Nobody takes a running lease away from a key, not even an operator, because a game may be running on the resource. A
leased resource therefore stays in its pool until its lease ends. The one exception is dropping a whole pool, which ends
all its leases. Callers no longer see a dropped pool, and `LeasePools.sweep_dropped` deletes its rows later, in bounded
steps.

A transaction changes a resource only if no other transaction has changed it since it was found.

On databases with row locks, `find_free` locks the free resources that it finds, and leaves out those that another
transaction has locked. Concurrent transactions therefore never find the same free resource, and `find_free` never waits
for another transaction.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from querybuilder import (
    ASC,
    INTEGER,
    TEXT,
    Condition,
    Lock,
    Select,
    Update,
    all_of,
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
from storage.schema.placement import TABLES
from storage.schema.sequences import take_number
from storage.store import Program

from .lease_journal import Region, count_events, lease_counts, lease_journal
from .lease_records import LeaseEvent, LeaseEventKind, Pool, RegionCounts, Resource, ResourceChange
from .work_leases import GIVEN_BACK

RESOURCE_COLUMNS = TABLES[LEASE_RESOURCES].kinds  # names and types, in the order of the fields of `Resource`
ResourceKey = tuple[int, str]  # a pool's key, and the key of a holder or the name of a resource


def _select_named(column: str) -> Select:
    same = all_of(col("pool_key", "r").eq(col("pool_key", "v")), col(column, "r").eq(col("name", "v")))
    keys = rows("v", param("keys"), pool_key=INTEGER, name=TEXT)
    found = select(*(col(name, "r") for name in RESOURCE_COLUMNS)).from_(keys)
    return found.join(LEASE_RESOURCES, same, alias="r").packed()


def _build_write() -> Update:
    """Build the update that changes resources whose version and expiry are still as found. Its parameter is `rows`.

    A resource never has the same version and expiry twice, because an extended lease expires later, and a new lease has
    a new version.
    """
    keys, found = ("pool_key", "resource"), ("version", "expires_at")
    written = {name: kind for name, kind in RESOURCE_COLUMNS.items() if name not in keys}
    kinds = {"pool_key": INTEGER, "resource": TEXT, "was_version": INTEGER, "was_expires_at": INTEGER} | written
    return (
        update(LEASE_RESOURCES)
        .set(**{name: col(name, "v") for name in written})
        .from_rows("v", param("rows"), **kinds)
        .where(
            *(col(name, LEASE_RESOURCES).eq(col(name, "v")) for name in keys),
            *(col(name, LEASE_RESOURCES).eq(col(f"was_{name}", "v")) for name in found),
        )
        .returning(*(col(name, LEASE_RESOURCES) for name in keys))
    )


def pool_condition(asked: str) -> Condition:
    """Build a join condition: pool `p` has not been dropped, and has the client id and pool id of the row `asked`."""
    same = (col(name, "p").eq(col(name, asked)) for name in ("client_id", "pool_id"))
    return all_of(*same, col("deleted_at", "p").is_null())


class LeaseResources:
    def __init__(self) -> None:
        self._by_holders = _select_named("holder").prepared()
        self._by_names = _select_named("resource").prepared()
        resource, free_since, expires_at = map(col, ("resource", "free_since", "expires_at"))
        here = (col("pool_key").eq(param("pool_key")), col("region").eq(param("region")))
        in_region = select(*map(col, RESOURCE_COLUMNS)).from_(LEASE_RESOURCES).where(*here).limit(param("limit"))
        queue = in_region.where(free_since.not_null(), free_since.ge(param("since")))
        self._free = queue.order_by(asc(free_since), asc(resource)).locked(Lock.NEXT).prepared()
        over = in_region.where(free_since.is_null(), expires_at.le(param("expired_before")))
        expired = over.order_by(asc(expires_at), asc(resource))
        self._expired = expired.locked(Lock.NO_KEY_UPDATE).prepared()
        self._count_expired = select(count()).from_(expired).prepared()
        self._write = _build_write().prepared()

    def find_by_holders(self, keys: Iterable[ResourceKey]) -> Program[dict[ResourceKey, Resource]]:
        """Find, for each pool key and lease key, the resource that the key leases, or leased last and may get again."""
        found = yield self._by_holders.bind(keys=keys)
        return {(row[0], row[3]): Resource(*row) for row in found}

    def find_by_names(self, names: Iterable[ResourceKey]) -> Program[dict[ResourceKey, Resource]]:
        found = yield self._by_names.bind(keys=names)
        return {(row[0], row[1]): Resource(*row) for row in found}

    def find_free(self, pool_key: int, region: str, *, limit: int, since_us: int = 0) -> Program[list[Resource]]:
        """Lock and return up to `limit` free resources of a region, the longest free first.

        Leave out resources that became free before `since_us`.
        """
        found = yield self._free.bind(pool_key=pool_key, region=region, since=since_us, limit=limit)
        return [Resource(*row) for row in found]

    def find_expired(self, pool_key: int, region: str, *, before_us: int, limit: int) -> Program[list[Resource]]:
        """Lock and return up to `limit` resources whose leases expired at or before `before_us`, earliest first."""
        found = yield self._expired.bind(pool_key=pool_key, region=region, expired_before=before_us, limit=limit)
        return [Resource(*row) for row in found]

    def count_running(
        self, pool_keys: Sequence[int], *, before_us: int, limit: int
    ) -> Program[dict[Region, RegionCounts]]:
        """Read the counts of pools by region. Leases that expired at or before `before_us` are not counted as held.

        In a region with more than `limit` expired leases, the others are counted as held.
        """
        counts = yield from lease_counts.read_counts(pool_keys)
        for (pool_key, region), stored in counts.items():
            bound = {"pool_key": pool_key, "region": region, "expired_before": before_us, "limit": limit}
            [[over]] = yield self._count_expired.bind(**bound)
            counts[pool_key, region] = stored._replace(held=stored.held - int(over))
        return counts

    def write_changes(self, changes: Sequence[ResourceChange]) -> Program[set[ResourceKey]]:
        """Change the resources that are still as in `before`, and return the pool key and name of each changed one."""
        if not changes:
            return set()
        # All transactions lock resources in this order, so that they seldom deadlock.
        ordered = [(*before[:2], before.version, before.expires_at_us, *after[2:]) for before, after in sorted(changes)]
        changed = yield self._write.bind(rows=ordered)
        return {(row[0], row[1]) for row in changed}

    def record_events(
        self, events: Sequence[LeaseEvent], rng: random.Random, *, refused: Sequence[Region] = ()
    ) -> Program[None]:
        """Append this transaction's events to the journal, and add the events and refused requests to the counts.

        Call this only once in a transaction.
        """
        yield from lease_journal.append_events(events)
        yield from lease_counts.add_counts(count_events(events, refused), rng)

    def change_resources(self, changes: Sequence[ResourceChange], rng: random.Random, *, now_us: int) -> Program[int]:
        """Change resources as `write_changes` does, record the events, and return how many resources were changed."""
        written = yield from self.write_changes(changes)
        events = [event for one in changes if one.before[:2] in written for event in one.find_events(now_us)]
        yield from self.record_events(events, rng)
        return len(written)


lease_resources = LeaseResources()


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
        # Only free resources are deleted. If another transaction leases a resource first, the resource stays.
        free = (by_key, resource.in_(param("resources")), col("free_since").not_null())
        self._remove = delete(LEASE_RESOURCES).where(*free).returning(*map(col, RESOURCE_COLUMNS)).prepared()
        listed = select(*map(col, RESOURCE_COLUMNS)).from_(LEASE_RESOURCES).where(by_key, resource.gt(param("after")))
        self._page = listed.order_by(asc(resource)).limit(param("limit")).packed().prepared()

    def find_by_names(self, names: Sequence[tuple[str, str]]) -> Program[dict[tuple[str, str], Pool]]:
        found = yield self._by_names.bind(names=sorted(set(names)))
        return {pool.name: pool for pool in (Pool(*row) for row in found)}

    def read_pool(self, client_id: str, pool_id: str) -> Program[Pool]:
        found = yield from self.find_by_names([(client_id, pool_id)])
        if not found:
            raise UnknownPoolError(f"the client {client_id!r} has no pool {pool_id!r}")
        return found[client_id, pool_id]

    def list_pools(
        self, *, after: tuple[str, str] = ("", ""), client_id: str | None, limit: int
    ) -> Program[list[Pool]]:
        """List up to `limit` pools whose ids follow `after`, in order, for all clients or only for `client_id`."""
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
            raise CatalogFullError(f"the store already holds {pools_max} pools, the limit set by lease_pools_max")
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
        """Delete up to `rows_max` rows of one dropped pool, and return 0 only once no dropped pool is left.

        Otherwise return the number of deleted rows, or 1 if the pool had none left.
        """
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
        """Add resources to a region, leave those already in the pool unchanged, and return the names of the new ones.

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
        """Remove free resources from a pool, but keep leased ones. Raises UnknownPoolError if the pool was dropped."""
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
        """Lock a pool against adding and removing resources elsewhere, and return the version for new resources."""
        found = yield self._hold.bind(pool_key=pool.key)
        if not found:
            raise UnknownPoolError(f"the client {pool.client_id!r} has no pool {pool.pool_id!r}")
        return int(found[0][0])

    def list_resources(self, pool: Pool, *, after: str, limit: int) -> Program[list[Resource]]:
        """List up to `limit` resources of a pool whose names follow `after`, ordered by name."""
        found = yield self._page.bind(pool_key=pool.key, after=after, limit=limit)
        return [Resource(*row) for row in found]


lease_pools = LeasePools()

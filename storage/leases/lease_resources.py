"""Finds and changes the resources of pools, which are rows of one table, and records the changes.

A transaction changes a row only if no other transaction has changed the row since it was found.

On databases with row locks, `find_free` locks the free resources that it finds, and leaves out resources that another
transaction has locked. So concurrent transactions never find the same free resource, and `find_free` never waits for
another transaction.
"""

import random
from collections.abc import Iterable, Sequence

from querybuilder import (
    INTEGER,
    TEXT,
    Condition,
    Lock,
    Select,
    Update,
    all_of,
    asc,
    col,
    count,
    param,
    rows,
    select,
    update,
)
from storage.schema.lease_tables import LEASE_RESOURCES
from storage.schema.placement import TABLES
from storage.store import Program

from .lease_journal import Region, count_events, lease_counts, lease_journal
from .lease_records import LeaseEvent, RegionCounts, Resource, ResourceChange

RESOURCE_COLUMNS = TABLES[LEASE_RESOURCES].kinds  # names and types, in the order of the fields of `Resource`
ResourceKey = tuple[int, str]  # a pool's key, and the key of a holder or the name of a resource


def _select_named(column: str) -> Select:
    """Return a query that finds resources. Its parameter `keys` takes pairs of a pool key and a value of `column`."""
    same = all_of(col("pool_key", "r").eq(col("pool_key", "v")), col(column, "r").eq(col("name", "v")))
    keys = rows("v", param("keys"), pool_key=INTEGER, name=TEXT)
    found = select(*(col(name, "r") for name in RESOURCE_COLUMNS)).from_(keys)
    return found.join(LEASE_RESOURCES, same, alias="r").packed()


def _build_write() -> Update:
    """Return the update that changes resources that still have the version and expiry that were found.

    A resource never has the same pair of version and expiry again, because an extended lease expires later, and a new
    lease has a new version. The update has the parameter `rows`.
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
    """Return a condition for a join: the pool `p` exists, and has the client id and pool id of the row `asked`."""
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
        """For each pool key and lease key, return the resource that the key leases, or had last and may get back."""
        found = yield self._by_holders.bind(keys=keys)
        return {(row[0], row[3]): Resource(*row) for row in found}

    def find_by_names(self, names: Iterable[ResourceKey]) -> Program[dict[ResourceKey, Resource]]:
        """Return the named resources that exist, by pool key and name."""
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
        """Return the counts of pools by region. Leases that expired at or before `before_us` are not counted as held.

        In a region with more than `limit` expired leases, the others are counted as held.
        """
        counts = yield from lease_counts.read_counts(pool_keys)
        for (pool_key, region), stored in counts.items():
            bound = {"pool_key": pool_key, "region": region, "expired_before": before_us, "limit": limit}
            [[over]] = yield self._count_expired.bind(**bound)
            counts[pool_key, region] = stored._replace(held=stored.held - int(over))
        return counts

    def write_changes(self, changes: Sequence[ResourceChange]) -> Program[set[ResourceKey]]:
        """Change the resources that are still as in `before`. Return the pool key and name of each that was changed."""
        if not changes:
            return set()
        # All transactions lock resources in this order, so that they seldom deadlock.
        ordered = [(*before[:2], before.version, before.expires_at_us, *after[2:]) for before, after in sorted(changes)]
        changed = yield self._write.bind(rows=ordered)
        return {(row[0], row[1]) for row in changed}

    def record_events(
        self, events: Sequence[LeaseEvent], rng: random.Random, *, refused: Sequence[Region] = ()
    ) -> Program[None]:
        """Append all events of this transaction to the journal, and add events and refused requests to the counts.

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

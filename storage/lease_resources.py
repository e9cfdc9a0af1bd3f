"""The rows of resources: how they are found, each way through one small index, and how they are changed.

The rule: what was found is changed on condition that it is still so (`Claims.write`), whoever changes it. What is
free is locked as it is picked, where writers do meet in the rows: who picks next waits for a commit instead of losing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Condition,
    Dialect,
    Lock,
    Select,
    all_of,
    asc,
    col,
    count,
    param,
    rows,
    select,
)

from .claims import Claims
from .lease_records import Resource
from .lease_tables import LEASE_RESOURCES
from .store import Program, Rows

NAMES = ("pool_key", "resource", "region", "partition", "holder", "version", "expires_at", "free_since", "acquired_at")
HERE = "r"  # the table's alias
Key = tuple[int, str]  # pool key, and a holder's key or a resource's name


class Change(NamedTuple):
    """A resource as it was found and as it is to be."""

    before: Resource
    after: Resource


def stored() -> Select:
    """All that is stored of a resource."""
    return select(*(col(name, HERE) for name in NAMES))


def named(column: str) -> Select:
    """The resources of many pools that have these names in a column."""
    same = (col("pool_key", HERE).eq(col("pool_key", "v")), col(column, HERE).eq(col("name", "v")))
    keys = rows("v", param("keys"), pool_key=INTEGER, name=TEXT)
    return stored().from_(keys).join(LEASE_RESOURCES, all_of(*same), alias=HERE).packed()


def live_pool(asked: str) -> Condition:
    """Whether a pool `p` is the one that a row of `asked` names by client and pool id."""
    same = (col(name, "p").eq(col(name, asked)) for name in ("client_id", "pool_id"))
    return all_of(*same, col("deleted_at", "p").is_null())


def written(changes: Sequence[Change]) -> list[tuple[object, ...]]:
    """Changes as rows of `LeaseResources.writing`, in the order in which everyone locks resources."""
    return [
        (
            *before[:2], before.version, before.expires_at_us,
            after.holder, after.version, after.expires_at_us, after.region, after.partition, after.free_since_us,
            after.acquired_at_us,
        )
        for before, after in sorted(changes)
    ]  # fmt: skip


class LeaseResources:
    """The statements, for one dialect; see `lease_resources`."""

    def __init__(self, dialect: Dialect) -> None:
        more = {"region": TEXT, "partition": INTEGER, "free_since": INTEGER, "acquired_at": INTEGER}
        self._claims = Claims(dialect, LEASE_RESOURCES, {"pool_key": INTEGER, "resource": TEXT}, more)
        self.writing = self._claims.writing
        self._by_holders = named("holder").compile(dialect)
        self._by_names = named("resource").compile(dialect)
        region = (col("pool_key", HERE).eq(param("pool_key")), col("region", HERE).eq(param("region")))
        in_region = stored().from_(LEASE_RESOURCES, HERE).where(*region).limit(param("limit"))
        line = in_region.where(
            col("partition", HERE).eq(param("partition")),
            col("free_since", HERE).not_null(),
            col("free_since", HERE).ge(param("since")),
        ).order_by(asc(col("free_since", HERE)), asc(col("resource", HERE)))
        self._see_free = line.compile(dialect)
        self._free = line.locked(Lock.NO_KEY_UPDATE).compile(dialect)
        expired = in_region.where(
            col("free_since", HERE).is_null(), col("expires_at", HERE).le(param("expired_before"))
        ).order_by(asc(col("expires_at", HERE)), asc(col("resource", HERE)))
        self._expired = expired.locked(Lock.NO_KEY_UPDATE).compile(dialect)
        self._count_expired = select(count()).from_(expired).compile(dialect)

    def by_holders(self, keys: Iterable[Key]) -> Program[dict[Key, Resource]]:
        """The resources that keys have, or had last and may find again, by pool and key."""
        found = yield self._by_holders.bind(keys=keys)
        return {(row[0], row[4]): Resource(*row) for row in found}

    def by_names(self, names: Iterable[Key]) -> Program[dict[Key, Resource]]:
        """Resources by pool and name."""
        found = yield self._by_names.bind(keys=names)
        return {(row[0], row[1]): Resource(*row) for row in found}

    def free(
        self, pool_key: int, region: str, partition: int, *, limit: int, since_us: int = 0, locked: bool = True
    ) -> Program[list[Resource]]:
        """Of a partition's free resources those that have been free for longest, but for those free before a time."""
        statement = self._free if locked else self._see_free
        bound = {"pool_key": pool_key, "region": region, "partition": partition}
        found = yield statement.bind(**bound, since=since_us, limit=limit)
        return [Resource(*row) for row in found]

    def expired(self, pool_key: int, region: str, *, before_us: int, limit: int) -> Program[list[Resource]]:
        """Of a region's leases those that were over before a time, the longest over first."""
        found = yield self._expired.bind(pool_key=pool_key, region=region, expired_before=before_us, limit=limit)
        return [Resource(*row) for row in found]

    def count_expired(self, pool_key: int, region: str, *, before_us: int, limit: int) -> Program[int]:
        """How many they are, as far as `limit`."""
        bound = {"pool_key": pool_key, "region": region, "expired_before": before_us, "limit": limit}
        found = yield self._count_expired.bind(**bound)
        return int(found[0][0])

    def write(self, changes: Sequence[Change]) -> Program[set[Key]]:
        """Change resources, those that are still as they were found; which these were, by pool and name."""
        if not changes:
            return set()
        changed: Rows = yield self._claims.write(written(changes))
        return {(row[0], row[1]) for row in changed}


@lru_cache
def lease_resources(dialect: Dialect) -> LeaseResources:
    """The statements, compiled once."""
    return LeaseResources(dialect)

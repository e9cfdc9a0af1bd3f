"""How many resources each region of a pool has, how many are leased, and what was asked of it: kept, never counted.

The rule: what changes a resource changes the counts in the same transaction. A count is the sum of its shares, so that
transactions under way don't stand in line for one row; and they are written last, so that a row is locked for no longer
than the commit takes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from querybuilder import (
    INTEGER,
    TEXT,
    Dialect,
    Insert,
    asc,
    col,
    delete,
    excluded,
    insert,
    param,
    plus,
    select,
    sum_,
)

from .lease_records import RegionCounts
from .lease_tables import LEASE_COUNTS
from .store import Program

_SHARES = 8
_FIELDS = RegionCounts._fields

Region = tuple[int, str]  # pool key, region


def adding(parameter: str) -> Insert:
    """The query that adds rows of `LeaseCounts.rows`, which are this parameter."""
    kinds = {"pool_key": INTEGER, "region": TEXT, "share": INTEGER, **dict.fromkeys(_FIELDS, INTEGER)}
    sums = {name: plus(col(name, LEASE_COUNTS), excluded(name)) for name in _FIELDS}
    counted = insert(LEASE_COUNTS).rows(param(parameter), **kinds)
    return counted.on_conflict("pool_key", "region", "share").do_update(where=None, **sums)


class LeaseCounts:
    """The statements, for one dialect; see `lease_counts`."""

    def __init__(self, dialect: Dialect) -> None:
        self._shares = _SHARES if dialect.row_locks else 1
        self._add = adding("rows").compile(dialect)
        self._of_pools = (
            select(col("pool_key"), col("region"), *(sum_(col(name)) for name in _FIELDS))
            .from_(LEASE_COUNTS)
            .where(col("pool_key").in_(param("pools")))
            .group_by(col("pool_key"), col("region"))
            .order_by(asc(col("pool_key")), asc(col("region")))
            .packed()
            .compile(dialect)
        )
        self._forget = delete(LEASE_COUNTS).where(col("pool_key").eq(param("pool_key"))).compile(dialect)

    def add(self, changes: Mapping[Region, RegionCounts], rng: random.Random) -> Program[None]:
        """Count what a transaction changed."""
        rows = self.rows(changes, rng)
        if rows:
            yield self._add.bind(rows=rows)

    def rows(self, changes: Mapping[Region, RegionCounts], rng: random.Random) -> list[tuple[object, ...]]:
        """What there is to add, all in one share."""
        share = rng.randrange(self._shares)
        return [(*region, share, *changes[region]) for region in sorted(changes) if any(changes[region])]

    def of_pools(self, pool_keys: Sequence[int]) -> Program[dict[Region, RegionCounts]]:
        """The regions of pools, in order of their names."""
        rows = yield self._of_pools.bind(pools=pool_keys)
        return {(row[0], row[1]): RegionCounts(*row[2:]) for row in rows}

    def forget(self, pool_key: int) -> Program[None]:
        """Drop the counts of a pool that is gone."""
        yield self._forget.bind(pool_key=pool_key)


@lru_cache
def lease_counts(dialect: Dialect) -> LeaseCounts:
    """The statements, compiled once."""
    return LeaseCounts(dialect)

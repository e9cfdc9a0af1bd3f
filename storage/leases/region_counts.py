"""Stored counts for each region of a pool: resources, leased ones, acquired and freed leases, and refused requests.

A transaction that changes a resource also changes the counts, so no reader ever counts rows.

Each count is the sum of several rows, its shares, so that concurrent transactions seldom wait for the same row. A
transaction writes its counts last, so that it locks a row only briefly before its commit.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from querybuilder import INTEGER, TEXT, Dialect, Insert, asc, col, delete, excluded, insert, param, plus, select, sum_
from storage.schema.lease_tables import LEASE_COUNTS
from storage.store import Program

from .lease_records import RegionCounts

_SHARES = 8
_FIELDS = RegionCounts._fields

Region = tuple[int, str]  # pool key, region


def build_counts_upsert(parameter: str) -> Insert:
    """Return the part of a statement that adds the rows in the parameter `parameter` to the stored counts."""
    kinds = {"pool_key": INTEGER, "region": TEXT, "share": INTEGER, **dict.fromkeys(_FIELDS, INTEGER)}
    sums = {name: plus(col(name, LEASE_COUNTS), excluded(name)) for name in _FIELDS}
    counted = insert(LEASE_COUNTS).rows(param(parameter), **kinds)
    return counted.on_conflict("pool_key", "region", "share").do_update(where=None, **sums)


class LeaseCounts:
    def __init__(self, dialect: Dialect) -> None:
        self._shares = _SHARES if dialect.row_locks else 1
        self._add = build_counts_upsert("rows").compile(dialect)
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

    def add_counts(self, changes: Mapping[Region, RegionCounts], rng: random.Random) -> Program[None]:
        rows = self.rows(changes, rng)
        if rows:
            yield self._add.bind(rows=rows)

    def rows(self, changes: Mapping[Region, RegionCounts], rng: random.Random) -> list[tuple[object, ...]]:
        """Return the changes as rows that add to one randomly chosen share of each count."""
        share = rng.randrange(self._shares)
        return [(*region, share, *changes[region]) for region in sorted(changes) if any(changes[region])]

    def read_counts(self, pool_keys: Sequence[int]) -> Program[dict[Region, RegionCounts]]:
        rows = yield self._of_pools.bind(pools=pool_keys)
        return {(row[0], row[1]): RegionCounts(*row[2:]) for row in rows}

    def delete_counts(self, pool_key: int) -> Program[None]:
        yield self._forget.bind(pool_key=pool_key)


@lru_cache
def lease_counts(dialect: Dialect) -> LeaseCounts:
    return LeaseCounts(dialect)

"""Keeps, for each region of a pool, counts of resources, leases and refusals, and the load that a job measured.

A transaction that changes a resource also changes the counts, so readers need not count rows.

Each count is the sum of several rows (shares), so that concurrent transactions seldom wait for the same row. A
transaction writes the counts last, so that it locks their rows only briefly before its commit.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from querybuilder import asc, col, delete, excluded, insert, param, plus, select, sum_
from storage.schema.lease_tables import LEASE_COUNTS, LEASE_LOADS
from storage.schema.placement import TABLES, prepare_put_rows
from storage.store import Program

from .lease_records import LeaseEvent, LeaseEventKind, RegionCounts

_SHARES = 8
_FIELDS = RegionCounts._fields

Region = tuple[int, str]  # pool key, region

_ENDED = RegionCounts(held=-1)
_COUNTED = {
    LeaseEventKind.ADDED: RegionCounts(total=1),
    LeaseEventKind.REMOVED: RegionCounts(total=-1),
    LeaseEventKind.ACQUIRED: RegionCounts(held=1, acquired=1),
    LeaseEventKind.RELEASED: _ENDED,
    LeaseEventKind.LIBERATED: _ENDED,
    LeaseEventKind.MOVED: RegionCounts(total=1),
}
_LEFT = RegionCounts(total=-1)
_REFUSED = RegionCounts(refused=1)


def count_events(events: Iterable[LeaseEvent], refused: Iterable[Region]) -> Mapping[Region, RegionCounts]:
    """Return what to add to the counts of each region. `refused` has the region of each refused request."""
    counts: defaultdict[Region, RegionCounts] = defaultdict(RegionCounts)
    for kind, row, _, _, left in events:
        if kind in _COUNTED:
            counts[row.pool_key, row.region] = counts[row.pool_key, row.region].plus(_COUNTED[kind])
        if left is not None:
            counts[row.pool_key, left] = counts[row.pool_key, left].plus(_LEFT)
    for region in refused:
        counts[region] = counts[region].plus(_REFUSED)
    return counts


class LeaseCounts:
    def __init__(self) -> None:
        added = insert(LEASE_COUNTS).rows(param("rows"), **TABLES[LEASE_COUNTS].kinds)
        summed = {name: plus(col(name, LEASE_COUNTS), excluded(name)) for name in _FIELDS}
        self._add = added.on_conflict("pool_key", "region", "share").do_update(where=None, **summed).prepared()
        region = (col("pool_key"), col("region"))
        sums = select(*region, *(sum_(col(name)) for name in _FIELDS)).from_(LEASE_COUNTS).group_by(*region)
        of_pools = sums.where(col("pool_key").in_(param("pools"))).order_by(*map(asc, region))
        self._of_pools = of_pools.packed().prepared()
        loads = select(col("pool_key"), col("region"), col("load")).from_(LEASE_LOADS)
        self._loads = loads.where(col("pool_key").in_(param("pools"))).packed().prepared()
        self._set_loads = prepare_put_rows(LEASE_LOADS)
        self._forget = delete(LEASE_COUNTS).where(col("pool_key").eq(param("pool_key"))).prepared()

    def add_counts(self, changes: Mapping[Region, RegionCounts], rng: random.Random) -> Program[None]:
        share = rng.randrange(_SHARES)
        rows = [(*region, share, *changes[region]) for region in sorted(changes) if any(changes[region])]
        if rows:
            yield self._add.bind(rows=rows)

    def read_counts(self, pool_keys: Sequence[int]) -> Program[dict[Region, RegionCounts]]:
        rows = yield self._of_pools.bind(pools=pool_keys)
        return {(row[0], row[1]): RegionCounts(*row[2:]) for row in rows}

    def read_loads(self, pool_keys: Sequence[int]) -> Program[dict[Region, str]]:
        """Return the measurements that the rebalancing job has stored, by region."""
        rows = yield self._loads.bind(pools=pool_keys)
        return {(row[0], row[1]): row[2] for row in rows}

    def set_loads(self, loads: dict[Region, str]) -> Program[None]:
        if loads:
            yield self._set_loads.bind(rows=[(*region, loads[region]) for region in sorted(loads)])

    def delete_counts(self, pool_key: int) -> Program[None]:
        yield self._forget.bind(pool_key=pool_key)


lease_counts = LeaseCounts()

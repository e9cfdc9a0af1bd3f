"""Records every event of every resource in the lease journal, in the same transaction that causes the event.

Event numbers come from a sequence. A transaction takes its numbers after it has written to resources, and keeps the
sequence locked until it commits. The numbers therefore have no gaps, and a reader who sees an event sees all earlier
ones.

The same transaction counts each region's resources, leases and refusals, so that readers need not count rows. Each
count is the sum of several rows (shares), so that concurrent transactions seldom wait for the same row. A transaction
writes the counts last, so that it locks their rows only briefly before its commit.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from querybuilder import asc, col, delete, excluded, insert, param, plus, select, sum_
from storage.schema.lease_tables import LEASE_COUNTS, LEASE_JOURNAL, LEASE_LOADS, LEASE_POOLS
from storage.schema.placement import TABLES, prepare_put_rows
from storage.schema.sequences import take_number
from storage.store import Program

from .lease_records import LeaseEvent, LeaseEventKind, RegionCounts

LEASE_EVENTS = "lease_events"  # the sequence from which events get their numbers
_BODY = ("kind", "resource", "holder", "region", "version", "at", "expires_at")


class PublishedLeaseEvent(NamedTuple):
    """An event in the lease journal, with its number and the ids that identify its pool."""

    number: int
    client_id: str
    pool_id: str
    kind: str
    resource: str
    key: str | None
    region: str
    version: int
    at_us: int
    expires_at_us: int  # 0: the resource is free


class LeaseJournal:
    def __init__(self) -> None:
        self._append = insert(LEASE_JOURNAL).rows(param("rows"), **TABLES[LEASE_JOURNAL].kinds).prepared()
        number, pool = col("number"), col("pool_key", LEASE_POOLS).eq(col("pool_key", LEASE_JOURNAL))
        rows = select(number, col("client_id"), col("pool_id"), *(col(name, LEASE_JOURNAL) for name in _BODY))
        rows = rows.from_(LEASE_JOURNAL).join(LEASE_POOLS, pool).where(number.gt(param("after")))
        self._page = rows.order_by(asc(number)).limit(param("limit")).packed().prepared()
        oldest = select(number, col("at")).from_(LEASE_JOURNAL).order_by(asc(number))
        self._oldest = oldest.limit(param("limit")).packed().prepared()
        self._delete = delete(LEASE_JOURNAL).where(number.lt(param("boundary"))).prepared()

    def append_events(self, happened: Sequence[LeaseEvent]) -> Program[None]:
        """Append events. Call this after all writes to resources, because it locks the sequence until the commit."""
        if happened:
            last = yield from take_number(LEASE_EVENTS, len(happened))
            rows = [
                (number, row.pool_key, kind, row.resource, key, row.region, row.version, at_us, row.expires_at_us)
                for number, (kind, row, key, at_us, _) in enumerate(happened, last - len(happened) + 1)
            ]
            yield self._append.bind(rows=rows)

    def read_page(self, after: int, *, limit: int) -> Program[list[PublishedLeaseEvent]]:
        """Read up to `limit` events with numbers greater than `after`, in the order of the numbers."""
        rows = yield self._page.bind(after=after, limit=limit)
        return [PublishedLeaseEvent(*row) for row in rows]

    def prune(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Delete up to `rows_max` rows older than `before_us`, the oldest first. Return the number of deleted rows."""
        oldest = yield self._oldest.bind(limit=rows_max)
        if not oldest:
            return 0
        boundary = next((number for number, at_us in oldest if at_us >= before_us), oldest[-1][0] + 1)
        rows = yield self._delete.bind(boundary=boundary)
        return int(rows[0][0])


lease_journal = LeaseJournal()


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
    """Count what to add to each region's counts. `refused` holds the region of each refused request."""
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
        rows = yield self._loads.bind(pools=pool_keys)
        return {(row[0], row[1]): row[2] for row in rows}

    def set_loads(self, loads: dict[Region, str]) -> Program[None]:
        if loads:
            yield self._set_loads.bind(rows=[(*region, loads[region]) for region in sorted(loads)])

    def delete_counts(self, pool_key: int) -> Program[None]:
        yield self._forget.bind(pool_key=pool_key)


lease_counts = LeaseCounts()

"""The journal of leases: the events of all resources. The transaction that causes an event also writes the event here.

The numbers of events come from a sequence. A transaction takes its numbers after it has written to resources, and keeps
the sequence locked until it commits. So the numbers have no gaps, and a reader of an event sees all earlier events.
"""

from collections.abc import Sequence
from typing import NamedTuple

from querybuilder import asc, col, delete, insert, param, select
from storage.schema.lease_tables import LEASE_JOURNAL, LEASE_POOLS
from storage.schema.placement import TABLES
from storage.schema.sequences import take_number
from storage.store import Program

from .lease_records import LeaseEvent

LEASE_EVENTS = "lease_events"  # the sequence from which events get their numbers
_BODY = ("kind", "resource", "holder", "region", "version", "at", "expires_at")


class PublishedLeaseEvent(NamedTuple):
    """An event in the journal of leases, with its number and the ids of its pool."""

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
        """Return up to `limit` events with numbers greater than `after`, in the order of the numbers."""
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

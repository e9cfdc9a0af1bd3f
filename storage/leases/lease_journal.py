"""The journal of leases: the events of all resources. The transaction that causes an event also writes the event here.

Readers see an event only after all earlier transactions have ended. So after a reader has seen an event, no event with
a smaller number appears.

On PostgreSQL, the number of an event combines the transaction's number and the event's place within that transaction.
So there are gaps between the numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Insert,
    all_of,
    any_of,
    asc,
    col,
    delete,
    if_dialect,
    insert,
    oldest_transaction,
    param,
    plus,
    select,
    times,
)
from storage.schema.lease_tables import LEASE_JOURNAL, LEASE_POOLS
from storage.store import Program

from .lease_records import LeaseEvent

PLACES = 1 << 20  # event numbers that one transaction may use
_BODY = ("kind", "resource", "holder", "region", "version", "at", "expires_at")


class PublishedLeaseEvent(NamedTuple):
    """A row of the journal of leases, with its published number."""

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


def build_journal_insert(parameter: str) -> Insert:
    """Return the part of a statement that appends the rows in the parameter `parameter` to the journal."""
    kinds = dict.fromkeys(_BODY, TEXT) | dict.fromkeys(("version", "at", "expires_at"), INTEGER)
    return insert(LEASE_JOURNAL).rows(param(parameter), place=INTEGER, pool_key=INTEGER, **kinds)


def journal_rows(happened: Sequence[LeaseEvent]) -> list[tuple[object, ...]]:
    return [
        (place, row.pool_key, kind.value, row.resource, holder, row.region, row.version, at_us, row.expires_at_us)
        for place, (kind, row, holder, at_us, _) in enumerate(happened)
    ]


class LeaseJournal:
    def __init__(self) -> None:
        self._append = build_journal_insert("rows").prepared()
        seq, position, place = (col(name, LEASE_JOURNAL) for name in ("seq", "position", "place"))
        number = if_dialect("transaction", plus(times(position, PLACES), place), seq)
        beyond = any_of(position.gt(param("position")), place.gt(param("place")))
        published = all_of(position.ge(param("position")), beyond, position.lt(oldest_transaction()))
        pool = col("pool_key", LEASE_POOLS).eq(col("pool_key", LEASE_JOURNAL))
        rows = select(number, col("client_id"), col("pool_id"), *(col(name, LEASE_JOURNAL) for name in _BODY))
        rows = rows.from_(LEASE_JOURNAL).join(LEASE_POOLS, pool)
        rows = rows.where(if_dialect("transaction", published, seq.gt(param("after"))))
        rows = rows.order_by(asc(if_dialect("transaction", position, seq)), asc(seq))
        self._page = rows.limit(param("limit")).packed().prepared()
        plain = if_dialect("transaction", col("position"), col("seq"))
        oldest = select(plain, col("at")).from_(LEASE_JOURNAL).order_by(asc(plain), asc(col("seq")))
        self._oldest = oldest.limit(param("limit")).packed().prepared()
        self._delete = delete(LEASE_JOURNAL).where(plain.lt(param("boundary"))).prepared()

    def append_events(self, happened: Sequence[LeaseEvent]) -> Program[None]:
        """Append all events of this transaction. Call this only once in a transaction: it counts places from 0."""
        if happened:
            yield self._append.bind(rows=journal_rows(happened))

    def read_page(self, after: int, *, limit: int) -> Program[list[PublishedLeaseEvent]]:
        """Return up to `limit` published events with numbers greater than `after`, in their order."""
        position, place = divmod(after, PLACES)
        rows = yield self._page.bind(after=after, position=position, place=place, limit=limit)
        return [PublishedLeaseEvent(*row) for row in rows]

    def prune(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Delete about `rows_max` of the oldest rows, if they are older than `before_us`. Return their number.

        The last row always stays: SQLite derives the next number from it.
        """
        oldest = yield self._oldest.bind(limit=rows_max + 1)
        if not oldest:
            return 0
        first, last = oldest[0][0], oldest[-1][0]
        # A transaction may have written more rows than one call deletes. Then all of its rows are deleted together.
        boundary = last if last > first or len(oldest) <= rows_max else last + 1
        boundary = min([boundary, *(position for position, at_us in oldest if at_us >= before_us)])
        if boundary <= first:
            return 0
        rows = yield self._delete.bind(boundary=boundary)
        return int(rows[0][0])


lease_journal = LeaseJournal()

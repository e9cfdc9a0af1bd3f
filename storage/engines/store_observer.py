"""The events that a store reports to an observer, such as metrics.

The store calls the observer in the middle of its work, so a call may take at most a microsecond. `kind` and `pool` have
few different values.
"""

from collections.abc import Callable
from functools import lru_cache

from querybuilder import Built
from storage.store import Rows

STATEMENT_KINDS = ("select", "insert", "update", "delete", "with", "other")


class StoreObserver:
    """Receives the events of a store. These methods ignore them; a subclass overrides those that it needs."""

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        """Record that a connection was lent, and how long its borrower waited."""

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        """Record how many connections are lent now, how many callers wait, and how many connections may be lent."""

    def statement_ran(self, kind: str, rows: int) -> None:
        """Record that a statement of one of STATEMENT_KINDS returned or changed rows. Any thread may call this."""

    def read_abandoned(self) -> None:
        """Record that a read was too long for the thread of the event loop, and is run again in another thread."""

    def connection_replaced(self) -> None:
        """Record that a connection with a transaction that can't be ended was replaced. Any thread may call this."""

    def tried_again(self) -> None:
        """Record that an attempt is run again after a lost race or a lost connection."""


@lru_cache(maxsize=4096)
def statement_kind(sql: str) -> str:
    """Return which of STATEMENT_KINDS a built SQL text is."""
    word = sql.split(None, 1)[0].lower() if sql.strip() else ""
    return word if word in STATEMENT_KINDS else "other"


def report_statements_to(observer: StoreObserver) -> Callable[[Built, Rows], None]:
    """Return a function that reports a statement and its rows to an observer."""

    def ran(query: Built, rows: Rows) -> None:
        observer.statement_ran(statement_kind(query.sql), count_rows(query, rows))

    return ran


def count_rows(query: Built, rows: Rows) -> int:
    """Return how many rows a statement returned, or, for a write without RETURNING, how many rows it changed."""
    if len(rows) == 1 and len(rows[0]) == 1 and not query.sql.startswith(("SELECT", "WITH")):
        count = rows[0][0]
        if isinstance(count, int) and " RETURNING " not in query.sql:
            return max(0, count)
    return len(rows)

"""Counts the statements that a store runs and their rows, by the kind of the statement."""

from collections.abc import Callable
from functools import lru_cache

from querybuilder import Built
from storage.meter import Meter
from storage.store import Rows

STATEMENT_KINDS = ("select", "insert", "update", "delete", "with", "other")


@lru_cache(maxsize=4096)
def statement_kind(sql: str) -> str:
    """Return which of STATEMENT_KINDS a built SQL text is."""
    word = sql.split(None, 1)[0].lower() if sql.strip() else ""
    return word if word in STATEMENT_KINDS else "other"


def make_statement_counter(meter: Meter) -> Callable[[Built, Rows], None]:
    """Return a function that reports a statement and its rows to a meter. Any thread may call it."""
    add_from_any_thread = meter.add_from_any_thread

    def ran(query: Built, rows: Rows) -> None:
        kind = statement_kind(query.sql)
        add_from_any_thread("rankcurve_store_statements", 1, kind)
        add_from_any_thread("rankcurve_store_rows", count_rows(query, rows), kind)

    return ran


def count_rows(query: Built, rows: Rows) -> int:
    """Return how many rows a statement returned, or, for a write without RETURNING, how many rows it changed."""
    if len(rows) == 1 and len(rows[0]) == 1 and not query.sql.startswith(("SELECT", "WITH")):
        count = rows[0][0]
        if isinstance(count, int) and " RETURNING " not in query.sql:
            return max(0, count)
    return len(rows)

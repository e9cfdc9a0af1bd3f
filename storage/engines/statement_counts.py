"""Counts the statements that a store runs and their rows, by the kind of the statement."""

from collections.abc import Callable

from querybuilder import Built
from storage.meter import Meter
from storage.store import Rows


def make_statement_counter(meter: Meter) -> Callable[[Built, Rows], None]:
    """Return a function that reports a statement and its rows to a meter. Any thread may call it."""
    add_from_any_thread = meter.add_from_any_thread

    def ran(query: Built, rows: Rows) -> None:
        # For a write without RETURNING, the only row holds the number of rows that it changed; -1 for a definition.
        count = len(rows) if query.returns_rows else max(0, rows[0][0])
        add_from_any_thread("rankcurve_store_statements", 1, query.kind)
        add_from_any_thread("rankcurve_store_rows", count, query.kind)

    return ran

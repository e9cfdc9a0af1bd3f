"""Counts the statements that a store runs and their rows, by the kind of the statement."""

from collections import Counter
from collections.abc import Iterable

from storage.meter import Meter

Counted = tuple[str, int]  # the kind of a statement, and how many rows it returned or changed


def report_statements(meter: Meter, counted: Iterable[Counted]) -> None:
    """Report statements to a meter, those of a program together. Any thread may call this."""
    statements, rows = Counter[str](), Counter[str]()
    for kind, count in counted:
        statements[kind] += 1
        rows[kind] += count
    for kind in statements:
        meter.add_from_any_thread("rankcurve_store_statements", statements[kind], kind)
        meter.add_from_any_thread("rankcurve_store_rows", rows[kind], kind)

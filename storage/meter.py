"""The interface through which storage and jobs report metrics to operators.

Storage must not depend on how metrics are exported. So a call names a metric family, such as
"rankcurve_refresh_failures", and passes a value for each of its labels. The service declares and describes the families
and the order of their labels. Every label has only a few values, which come from the code or the settings.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

# The values of labels. They are here and not beside the code that reports them, so that the supervisor, which declares
# all families, starts quickly.
ReadOutcome = Literal["hit", "miss", "stale", "corrupt"]  # miss: the value is absent, or its server did not answer
WriteOutcome = Literal["stored", "too_large", "failed"]
AuditOutcome = Literal["compared", "changed", "empty"]
COMMON_CONNECTION_POOL = "common"  # the label of all connections to the store


class Meter:
    """Receives reports and ignores them, while subclasses keep them. Calls interrupt other work, so they must be fast.

    A call may last at most a microsecond. Only the event loop calls these methods, except `add_from_any_thread`.
    """

    def add(self, name: str, amount: float = 1, *labels: str) -> None:
        """Add to a counter. An amount of 0 makes the counter appear before its first event."""

    def add_from_any_thread(self, name: str, amount: float = 1, *labels: str) -> None:
        """Add to a counter that several threads change. All of them must use this method, because it takes a lock."""

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""

    def clear(self, name: str) -> None:
        """Stop reporting a family's gauges in this process, because another process reports them now."""

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Record a value of a histogram or summary."""


NO_METER = Meter()
Counted = tuple[str, int]  # the kind of a statement, and how many rows it returned or changed


def report_statements(meter: Meter, counted: Iterable[Counted]) -> None:
    """Report how many statements of each kind a program ran, and with how many rows. Any thread may call this."""
    statements, rows = Counter[str](), Counter[str]()
    for kind, count in counted:
        statements[kind] += 1
        rows[kind] += count
    for kind in statements:
        meter.add_from_any_thread("rankcurve_store_statements", statements[kind], kind)
        meter.add_from_any_thread("rankcurve_store_rows", rows[kind], kind)

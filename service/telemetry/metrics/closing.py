"""Metrics of closing boards. At most one process closes boards at a time, and the numbers come from that process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from .cells import CellSet
from .loop import LatestGauge


class CloseMetrics:
    """Counts closed and archived boards; a `CloseObserver` and an `ArchiveObserver`."""

    def __init__(self, registry: CollectorRegistry, cells: CellSet) -> None:
        self._closed = Counter("rankcurve_boards_closed", "Leaderboards closed to posts", registry=registry)
        self._lag = LatestGauge(
            cells.latest_gauges,
            "rankcurve_closing_lag_seconds",
            "Time that the leaderboard to be closed next has been due, at the last check",
        )
        registry.register(self._lag)
        self._archived = Counter(
            "rankcurve_boards_archived", "Leaderboards whose rows were replaced by an archive", registry=registry
        )
        self._owners = Counter("rankcurve_archive_owners", "Owners whose entries were archived", registry=registry)
        self._bytes = Counter("rankcurve_archive_bytes", "Bytes of the archives that were written", registry=registry)
        self._failures = Counter(
            "rankcurve_closing_failures", "Steps of closing or archiving that ended in an error", registry=registry
        )

    def archived(self, *, owners: int, stored_bytes: int) -> None:
        self._archived.inc()
        self._owners.inc(owners)
        self._bytes.inc(stored_bytes)

    def closed(self, boards: int) -> None:
        self._closed.inc(boards)

    def closing_lag(self, seconds: float) -> None:
        """Set for how many seconds the next board to be closed has been due."""
        self._lag.set_value(seconds)

    def closing_left(self) -> None:
        self._lag.clear_values()

    def close_failed(self) -> None:
        self._failures.inc()

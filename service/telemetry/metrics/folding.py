"""Metrics of the change log: the age of its oldest change, folded changes, and curves that lost their live counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from .cells import CellSet
from .loop import LatestGauge

_SECONDS_BUCKETS = (0.005, 0.02, 0.1, 1, 10)


class FoldMetrics:
    """Counts folds, and shows the age of the change log; a `FoldObserver` and a `PruneObserver`."""

    def __init__(self, registry: CollectorRegistry, cells: CellSet) -> None:
        self._changes = Counter(
            "rankcurve_changes_folded", "Changes folded into the live counts of the curves", registry=registry
        )
        self._void = Counter(
            "rankcurve_live_counts_void",
            "Curves whose live counts were discarded until their next refresh",
            registry=registry,
        )
        self._seconds = Histogram(
            "rankcurve_fold_seconds",
            "Time to fold new changes into the live counts",
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )

        self._age = LatestGauge(
            cells.latest_gauges,
            "rankcurve_change_log_age_seconds",
            "Age of the oldest change in the log, when pruning last began",
        )
        registry.register(self._age)

    def log_age(self, seconds: float) -> None:
        self._age.set_value(seconds)

    def pruned_elsewhere(self) -> None:
        self._age.clear_values()

    def folded(self, *, changes: int, void: int, seconds: float) -> None:
        self._changes.inc(changes)
        self._void.inc(void)
        self._seconds.observe(seconds)

"""Figures of folding: whether curves keep up with what is posted, and which were given up.

The rule: they are of the process that folds; how old the live curves of any process are says `rankcurve_live_lag_…`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10)


class FoldMetrics:
    """What folding did."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._changes = Counter(
            "rankcurve_changes_folded", "Changes folded into the live counts of the curves", registry=registry
        )
        self._void = Counter(
            "rankcurve_live_counts_void",
            "Curves whose live counts were given up until their next refresh",
            registry=registry,
        )
        self._seconds = Histogram(
            "rankcurve_fold_seconds",
            "Time to fold what had changed into the live counts",
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )

    def folded(self, *, changes: int, void: int, seconds: float) -> None:
        """See `FoldObserver`."""
        self._changes.inc(changes)
        self._void.inc(void)
        self._seconds.observe(seconds)

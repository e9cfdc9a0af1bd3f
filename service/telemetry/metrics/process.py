"""All metrics of one process, in Prometheus' names and units."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    Summary,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from .audits import AuditMetrics
from .cells import CellSet
from .closing import CloseMetrics
from .folding import FoldMetrics
from .jobs import JobMetrics
from .leases import LeaseMetrics
from .loop import LoopCounter, LoopGauge, RequestMetrics
from .node import NodeMember
from .queue import QueueMetrics
from .sharing import SharingMetrics
from .store import StoreMetrics, StoreSizes
from .streams import StreamMetrics

METRICS_TYPE = CONTENT_TYPE_LATEST
OUTCOMES = ("applied", "unchanged", "duplicate", "rejected")
RATE_KINDS = ("reads", "posts")
REFUSALS = ("queue_full", "overloaded", "stopping", "expired")
# There are few buckets, because a node has at most 500 series, which a test counts.
_WRITE_BUCKETS_S = (0.002, 0.01, 0.05, 0.2, 1, 5)
_REFRESH_BUCKETS_S = (0.05, 0.5, 5, 30, 300)
_AGE_BUCKETS_S = (10, 60, 300, 3600, 86400)


@dataclass(frozen=True, slots=True)
class ServingCurve:
    """The facts about a serving curve that the metrics show."""

    as_of_us: int
    knots: int
    live: bool = False


class Metrics:
    """Counts what one process does, and shows the metrics of this process or of its whole node.

    `registry` has the metrics that the process counts. `views` has the metrics that a callback computes at each scrape.
    Views are not added up over a node, because each process of the node computes the same numbers.
    """

    def __init__(self, node: NodeMember | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they add series that nobody reads
        self.registry, self.views, self._shown = CollectorRegistry(), CollectorRegistry(), CollectorRegistry()
        if node is None:
            cells = CellSet()
            ProcessCollector(registry=self.registry)
            self._shown.register(self.registry)
        else:
            # Join the node before the library makes its first value, which must be in the node's folder, too.
            cells = node.join_node()
            self._shown.register(node)
        self._shown.register(self.views)
        self.node = node
        self._count_loop(cells)
        self.write_seconds = Histogram(
            "rankcurve_write_seconds",
            "Time of a write transaction, from its read to its commit",
            buckets=_WRITE_BUCKETS_S,
            registry=self.registry,
        )
        self.batch_posts = Summary(
            "rankcurve_write_batch_posts", "Posts in a write transaction", registry=self.registry
        )
        self._rows = Counter("rankcurve_write_rows", "Rows that writes inserted or changed", registry=self.registry)
        self._races = Counter(
            "rankcurve_write_conflicts",
            "Conditional writes that failed because the row had changed",
            registry=self.registry,
        )
        self.store = StoreMetrics(self.registry, cells)
        self._count_fits()
        self._curves_corrupt = Counter(
            "rankcurve_curves_corrupt", "Stored curves that could not be read", registry=self.registry
        )
        self.sharing = SharingMetrics(self.registry, self.views)
        self.streaming = StreamMetrics(self.registry, cells)
        self.audits = AuditMetrics(self.registry)
        self.folds = FoldMetrics(self.registry, cells)
        self.jobs = JobMetrics(self.registry)
        self.queue = QueueMetrics(self.registry, cells)
        self.closings = CloseMetrics(self.registry, cells)
        self.leases = LeaseMetrics(self.registry, cells.gauges)
        self._log_lines_dropped = Counter(
            "rankcurve_log_lines_dropped", "Log lines lost because the disk was too slow", registry=self.registry
        )

    def _count_fits(self) -> None:
        self.refresh_seconds = Histogram(
            "rankcurve_refresh_seconds",
            "Time to refresh the curve of a column",
            buckets=_REFRESH_BUCKETS_S,
            registry=self.registry,
        )
        self._refresh_failures = Counter(
            "rankcurve_refresh_failures", "Refreshes that ended in an error", registry=self.registry
        )
        self._refreshes_fenced = Counter(
            "rankcurve_refreshes_fenced",
            "Curves not stored because another process had taken over their refresh",
            registry=self.registry,
        )
        self._scan_entries = Counter(
            "rankcurve_scan_entries", "Entries that scans for certified curves read", registry=self.registry
        )

    def _count_loop(self, cells: CellSet) -> None:
        counters, gauges = cells.counters, cells.gauges
        self._posts = LoopCounter(counters, "rankcurve_posts", "Posts by outcome", ("outcome",))
        self._reads = LoopCounter(
            counters,
            "rankcurve_reads",
            "Ranks and rows in answers, by route and by how the rank was found",
            ("route", "method"),
        )
        self._rates = LoopCounter(
            counters,
            "rankcurve_rate_limit",
            "Reads and posts checked against the rate limit of their API key",
            ("kind", "outcome"),
        )
        self._refused = LoopCounter(
            counters,
            "rankcurve_write_refused_posts",
            "Posts refused because of load or a stop, counted once for each board",
            ("reason",),
        )
        self._queue_posts = LoopGauge(
            gauges, "rankcurve_write_queue_posts", "Posts waiting to be written, counted once for each board"
        )
        self._writes_in_flight = LoopGauge(gauges, "rankcurve_writes_in_flight", "Write transactions in flight")
        self._writes_limit = LoopGauge(
            gauges, "rankcurve_writes_in_flight_limit", "Write transactions that may be in flight"
        )
        self._scan_left = LoopGauge(
            gauges, "rankcurve_scan_entries_left", "Entries that running scans have yet to read, approximately"
        )
        self._requests = RequestMetrics(cells)
        counts = (self._posts, self._reads, self._rates, self._refused)
        for collector in (
            *counts,
            self._queue_posts,
            self._writes_in_flight,
            self._writes_limit,
            self._scan_left,
            self._requests,
        ):
            self.registry.register(collector)
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Show the samples with known labels as 0 before their first event."""
        for outcome in OUTCOMES:
            self._posts.add_count((outcome,), 0)
        for reason in REFUSALS:
            self._refused.add_count((reason,), 0)
        for kind in RATE_KINDS:
            for passed in ("passed", "refused"):
                self._rates.add_count((kind, passed), 0)

    def posts_settled(self, outcome: str, count: int = 1) -> None:
        self._posts.add_count((outcome,), count)

    def group_written(self, *, posts: int, rows: int, seconds: float) -> None:
        self.batch_posts.observe(posts)
        self.write_seconds.observe(seconds)
        self._rows.inc(rows)

    def race_lost(self) -> None:
        """Count a conditional write that failed, because the row had another version than the transaction had read."""
        self._races.inc()

    def queue_depth(self, posts: int) -> None:
        self._queue_posts.set_value(posts)

    def writes_in_flight(self, groups: int, *, limit: int) -> None:
        """Set how many write transactions are in flight, and how many may be in flight."""
        self._writes_in_flight.set_value(groups)
        self._writes_limit.set_value(limit)

    def posts_refused(self, reason: str, posts: int) -> None:
        """Count posts that were not applied; `reason` is one of REFUSALS."""
        self._refused.add_count((reason,), posts)

    def rate_checked(self, kind: str, count: int, *, passed: bool) -> None:
        """Count reads or posts; `kind` is one of RATE_KINDS. `passed` says whether they were within the rate."""
        self._rates.add_count((kind, "passed" if passed else "refused"), count)

    def count_ranks_read(self, route: str, method: str, count: int = 1) -> None:
        """Count ranks or rows in answers, by `route` (its name in the metrics) and by the method that found them."""
        self._reads.add_count((route, method), count)

    def refreshed(self, seconds: float) -> None:
        self.refresh_seconds.observe(seconds)

    def refresh_failed(self) -> None:
        self._refresh_failures.inc()

    def refresh_fenced(self) -> None:
        """Count a curve that was not stored, because another process had taken over its refresh."""
        self._refreshes_fenced.inc()

    def scan_read(self, entries: int, *, left: int) -> None:
        """Count the entries that scans have read since the last call, and set how many entries are left to read."""
        self._scan_entries.inc(entries)
        self._scan_left.set_value(left)

    def curve_corrupt(self) -> None:
        """Count a stored curve that could not be read. Until the next refresh, the ranks of its column are counted."""
        self._curves_corrupt.inc()

    def log_lines_dropped(self, lines: int) -> None:
        """Count log lines that were lost, because the queue of lines or the disk was full."""
        self._log_lines_dropped.inc(lines)

    def make_request_timer(self, route: str) -> Callable[[int, float], None]:
        """Return a function `(status, seconds)` that counts one answered request. Call this once for each route."""
        return self._requests.make_timer(route)

    def watch_store(self, *, version: str, store: str) -> StoreSizes:
        """Show the build. Also show the size of the store, as soon as the returned object has measured it."""
        return StoreSizes(self.views, version=version, store=store)

    def watch_curves(
        self, curves: Callable[[], Iterable[ServingCurve]], *, now_s: Callable[[], float] = time.time
    ) -> None:
        """Show the ages and knots of all serving curves. `curves` is called at every scrape."""
        self.views.register(_CurveCollector(curves, now_s))

    def collect_all(self) -> Iterable[Metric]:
        """Return every metric with its current values. In a process of a node, the counts are those of the node."""
        return self._shown.collect()

    def collect_counted(self) -> Iterable[Metric]:
        """Return the metrics of `collect_all` without the views, because some views read every curve."""
        return self.registry.collect() if self.node is None else self.node.collect()

    def read_view(self, family: str) -> float:
        """Return the number that a view computes for a family without labels; 0 if there is no such view."""
        found = [metric.samples[0].value for metric in self.views.collect() if metric.name == family]
        return found[0] if found else 0.0

    def text(self) -> bytes:
        return generate_latest(self._shown)


class _CurveCollector(Collector):
    """Collects the distributions of the ages and knots of the serving curves, without a label for the board."""

    def __init__(self, curves: Callable[[], Iterable[ServingCurve]], now_s: Callable[[], float]) -> None:
        self._curves = curves
        self._now_s = now_s

    def collect(self) -> Iterator[Metric]:
        now_s = self._now_s()
        figures = list(self._curves())
        ages_s = [max(0.0, now_s - figure.as_of_us / 1e6) for figure in figures]
        yield _histogram("rankcurve_curve_age_seconds", "Age of the serving curves", ages_s, _AGE_BUCKETS_S)
        knots = [float(figure.knots) for figure in figures]
        yield SummaryMetricFamily("rankcurve_curve_knots", "Knots of the serving curves", len(knots), sum(knots))
        yield GaugeMetricFamily(
            "rankcurve_curve_age_seconds_max", "Age of the oldest serving curve", value=max(ages_s, default=0.0)
        )
        live_s = [age_s for age_s, figure in zip(ages_s, figures, strict=True) if figure.live]
        yield GaugeMetricFamily(
            "rankcurve_curves_live", "Serving curves that are live: their counts follow the posts", value=len(live_s)
        )
        yield GaugeMetricFamily(
            "rankcurve_live_lag_seconds_max",
            "Longest time that a live curve is behind the posts",
            value=max(live_s, default=0.0),
        )


def _histogram(name: str, documentation: str, values: list[float], bounds: tuple[int, ...]) -> Metric:
    buckets = [(str(float(bound)), float(sum(value <= bound for value in values))) for bound in bounds]
    buckets.append(("+Inf", float(len(values))))
    return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=sum(values))

"""Collects all metrics of one process, or of its node, in the text format of Prometheus.

A scrape reaches only one process of a node, so each process can show the sums over all of them.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from storage.curves.curve_book import ServedCurve

from .metric_families import FAMILIES
from .node_metrics import NodeFiles, NodeMember, Source, Totals, collect_processes, write_pid
from .numbers import Numbers

METRICS_TYPE = CONTENT_TYPE_LATEST


class Metrics(Collector):
    """Shows the metrics of one process or of its whole node. Storage, jobs and service report their numbers to `meter`.

    Views are callbacks that compute metrics at each scrape. Their metrics are not added up over a node, because each of
    its processes computes the same numbers.
    """

    def __init__(self, node: NodeMember | None = None) -> None:
        self.node = node
        self._views: list[Callable[[], Iterable[Metric]]] = []
        if node is None:
            self.meter = Numbers(FAMILIES)
            sources = [Source(self.meter.content)]
            self.totals = Totals(FAMILIES, lambda: sources)
        else:
            self.meter = Numbers(FAMILIES, node.numbers_path)
            # The node now includes this file's gauges. `Numbers` has cleared those that an ended process left in it.
            write_pid(*node)
            self.totals = Totals(FAMILIES, NodeFiles(node.folder).list_sources)

    def watch(self, view: Callable[[], Iterable[Metric]]) -> None:
        self._views.append(view)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current values. In a process of a node, counts are sums over the node."""
        yield from self._collect_processes()
        yield from self.totals.collect()
        yield from self.collect_views()

    def collect_views(self) -> Iterator[Metric]:
        for view in self._views:
            yield from view()

    def _collect_processes(self) -> Iterable[Metric]:
        return collect_processes(None if self.node is None else self.node.folder)

    def read_processes(self) -> dict[str, float]:
        """Read the operating system's figures for the process or node, by names like `process_cpu_seconds_total`."""
        return {sample.name: sample.value for metric in self._collect_processes() for sample in metric.samples}

    def text(self) -> bytes:
        return generate_latest(self)


def curve_metrics(curves: Iterable[ServedCurve], now_s: float) -> Iterator[Metric]:
    """Yield metrics about the curves that serve this process's ranks, such as their ages. No label names a board."""
    served = list(curves)
    ages_s = [max(0.0, now_s - each.curve.as_of_us / 1e6) for each in served]
    knots = [float(len(each.fit.knots)) for each in served]
    yield SummaryMetricFamily("rankcurve_curve_knots", "Knots of the serving curves", len(knots), sum(knots))
    yield GaugeMetricFamily(
        "rankcurve_curve_age_seconds_max", "Age of the oldest serving curve", value=max(ages_s, default=0.0)
    )
    live_s = [age_s for age_s, each in zip(ages_s, served, strict=True) if each.live_version > 0]
    yield GaugeMetricFamily(
        "rankcurve_curves_live", "Serving curves that are live: their counts follow the posts", value=len(live_s)
    )
    yield GaugeMetricFamily(
        "rankcurve_live_lag_seconds_max",
        "Longest time that a live curve is behind the posts",
        value=max(live_s, default=0.0),
    )


def memcached_metrics(left_alone: int) -> Iterator[Metric]:
    """Yield how many servers this process currently skips because they failed (open circuit breaker)."""
    text = "memcached servers that are not asked for a while, after failures"
    yield GaugeMetricFamily("rankcurve_memcached_servers_left_alone", text, value=left_alone)

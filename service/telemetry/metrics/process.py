"""Collects all metrics of one process, or of its node, in the text format of Prometheus."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from .families import FAMILIES
from .node import NodeMember, collect_processes, write_pid
from .numbers import Numbers
from .totals import NodeFiles, Source, Totals

METRICS_TYPE = CONTENT_TYPE_LATEST


class Metrics(Collector):
    """Shows the metrics of one process or of its whole node. Storage, jobs and service report their numbers to `meter`.

    Views are callbacks that compute metrics at each scrape. Their metrics are not added up over a node, because each
    process of the node computes the same numbers.
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
        """Add a view, which is called at every scrape and returns metrics."""
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
        """Return the operating system's figures for the process or node, by names like `process_cpu_seconds_total`."""
        return {sample.name: sample.value for metric in self._collect_processes() for sample in metric.samples}

    def text(self) -> bytes:
        return generate_latest(self)

"""All metrics of one process, in Prometheus' names and units."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from jobs.observer import JobObserver
from service.telemetry.tracing import Tracer
from storage.curves.auditing import Audit
from storage.curves.shared_curves import ReadOutcome, WriteOutcome
from storage.engines.store_observer import StoreObserver
from storage.leases.peers.exchange import AppliedPage
from storage.queue.ingest_queue import ShardBacklog
from storage.queue.queue_application import DrainedRound

from .families import FAMILIES
from .node import NodeMember, add_up_processes, write_pid
from .numbers import Numbers
from .partitions import PartitionMetrics
from .totals import NodeFiles, Source, Totals
from .views import ServingCurve, StoreSizes, curve_metrics

METRICS_TYPE = CONTENT_TYPE_LATEST
_STATUS_CLASSES = ("", "1xx", "2xx", "3xx", "4xx", "5xx")


class Metrics(StoreObserver, JobObserver, Collector):
    """Counts what one process does, and shows the metrics of this process or of its whole node.

    It is the observer of storage and jobs: `StoreObserver`, `WriterObserver`, `EnqueueObserver`, `LeaseObserver`,
    `SharingObserver` and `JobObserver`. An observer says when each of its methods is called.

    Views are metrics that a callback computes at each scrape. They are not added up over a node, because each process
    of the node computes the same numbers.
    """

    def __init__(self, node: NodeMember | None = None) -> None:
        self.node = node
        self.tracer: Tracer | None = None  # records refreshes, if tracing is on
        self._views: list[Callable[[], Iterable[Metric]]] = []
        self._shards = {0}  # every queue has shard 0
        self.partitions = PartitionMetrics(lambda number: self._count_applied({number: 0}))
        self._log_ages: dict[int, float] = {}  # in seconds, by partition
        if node is None:
            self._numbers = Numbers(FAMILIES)
            sources = [Source(prefix, cells.content) for prefix, cells in self._numbers.cells.items()]
            self._totals = Totals(lambda: sources, declared=FAMILIES)
        else:
            write_pid(*node)
            self._numbers = Numbers(FAMILIES, *node)
            self._totals = Totals(NodeFiles(node.folder).list_sources)

    # Requests

    def make_request_timer(self, route: str) -> Callable[[int, float], None]:
        """Return a function `(status, seconds)` that counts one answered request."""
        add, observe = self._numbers.add, self._numbers.observe

        def count_answer(status: int, seconds: float) -> None:
            observe("rankcurve_request_seconds", seconds, route)
            add("rankcurve_requests", 1, route, _STATUS_CLASSES[status // 100])

        return count_answer

    def count_ranks_read(self, route: str, method: str, count: int = 1) -> None:
        """Count ranks or rows in answers, by `route` (its name in the metrics) and by the method that found them."""
        self._numbers.add("rankcurve_reads", count, route, method)

    def rate_checked(self, kind: str, count: int, *, passed: bool) -> None:
        """Count reads or posts, as `kind` says. `passed` says whether the key's rate allowed them."""
        self._numbers.add("rankcurve_rate_limit", count, kind, "passed" if passed else "refused")

    def streams(self, clients: int) -> None:
        """Set the number of clients of the feed."""
        self._numbers.set("rankcurve_streams_open", clients)

    def streamed(self, *, rows: int, events: int, seconds: float) -> None:
        """Count a finished poll of the feed: the rows that it read, the events that it sent, and how long it took."""
        self._numbers.add("rankcurve_stream_events", events)
        if rows or events:
            self._numbers.observe("rankcurve_stream_look_seconds", seconds)

    def log_lines_dropped(self, lines: int) -> None:
        """Count log lines that were lost, because the queue of lines or the disk was full."""
        with self._numbers.lock:
            self._numbers.add("rankcurve_log_lines_dropped", lines)

    # The store

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        self._numbers.observe("rankcurve_store_connection_wait_seconds", seconds, pool)

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        self._numbers.set("rankcurve_store_connections_lent", lent, pool, kind)
        self._numbers.set("rankcurve_store_connections_awaited", waiting, pool, kind)
        self._numbers.set("rankcurve_store_connections_limit", limit, pool, kind)

    def statement_ran(self, kind: str, rows: int) -> None:
        with self._numbers.lock:
            self._numbers.add("rankcurve_store_statements", 1, kind)
            self._numbers.add("rankcurve_store_rows", rows, kind)

    def read_abandoned(self) -> None:
        self._numbers.add("rankcurve_store_reads_abandoned")

    def connection_replaced(self) -> None:
        with self._numbers.lock:
            self._numbers.add("rankcurve_store_connections_replaced")

    def tried_again(self) -> None:
        self._numbers.add("rankcurve_store_retries")

    # Posts

    def posts_settled(self, outcome: str, count: int = 1) -> None:
        self._numbers.add("rankcurve_posts", count, outcome)

    def group_written(self, *, posts: int, rows: int, applied: Mapping[int, int], seconds: float) -> None:
        self._numbers.observe("rankcurve_write_batch_posts", posts)
        self._numbers.observe("rankcurve_write_seconds", seconds)
        self._numbers.add("rankcurve_write_rows", rows)
        self._count_applied(applied)

    def _count_applied(self, applied: Mapping[int, int]) -> None:
        for partition, posts in applied.items():
            self._numbers.add("rankcurve_partition_posts_applied", posts, str(partition))

    def race_lost(self) -> None:
        self._numbers.add("rankcurve_write_conflicts")

    def queue_depth(self, posts: int) -> None:
        self._numbers.set("rankcurve_write_queue_posts", posts)

    def writes_in_flight(self, groups: int, *, limit: int) -> None:
        self._numbers.set("rankcurve_writes_in_flight", groups)
        self._numbers.set("rankcurve_writes_in_flight_limit", limit)

    def posts_refused(self, reason: str, posts: int) -> None:
        self._numbers.add("rankcurve_write_refused_posts", posts, reason)

    # Queued posts

    def posts_queued(self, posts: int) -> None:
        self._numbers.add("rankcurve_ingest_queued_posts", posts)

    def queueing_refused(self, reason: str, posts: int) -> None:
        self._numbers.add("rankcurve_ingest_refused_posts", posts, reason)

    def posts_drained(self, drained: DrainedRound, *, seconds: float, age_s: float) -> None:
        for shard, posts in drained.posts.items():
            self._numbers.add("rankcurve_ingest_drained_posts", posts, str(shard))
        self._count_applied(drained.applied)
        for outcome, count in drained.statuses.items():
            self._numbers.add("rankcurve_ingest_outcomes", count, outcome)
        self._numbers.observe("rankcurve_ingest_round_posts", sum(drained.posts.values()))
        self._numbers.observe("rankcurve_ingest_round_seconds", seconds)
        self._numbers.observe("rankcurve_ingest_applied_age_seconds", age_s)
        self._numbers.add("rankcurve_ingest_conflicts", drained.races)

    def backlog_seen(self, backlog: Mapping[int, ShardBacklog], now_us: int) -> None:
        self._shards |= backlog.keys()
        for shard in self._shards:
            found = backlog.get(shard)
            self._numbers.set("rankcurve_ingest_posts", 0 if found is None else found.posts, str(shard))
        oldest_us = min((found.oldest_us for found in backlog.values()), default=now_us)
        self._numbers.set("rankcurve_ingest_age_seconds", max(0.0, (now_us - oldest_us) / 1e6))

    def backlog_left(self) -> None:
        self._numbers.clear("rankcurve_ingest_posts")
        self._numbers.clear("rankcurve_ingest_age_seconds")

    def drain_fenced(self) -> None:
        self._numbers.add("rankcurve_ingest_fenced")

    # Curves

    def refreshed(self, seconds: float) -> None:
        self._numbers.observe("rankcurve_refresh_seconds", seconds)
        if self.tracer is not None:
            self.tracer.record_span("refresh", seconds)

    def refresh_failed(self) -> None:
        self._numbers.add("rankcurve_refresh_failures")

    def refresh_fenced(self) -> None:
        self._numbers.add("rankcurve_refreshes_fenced")

    def scan_read(self, entries: int, *, left: int) -> None:
        self._numbers.add("rankcurve_scan_entries", entries)
        self._numbers.set("rankcurve_scan_entries_left", left)

    def curve_corrupt(self) -> None:
        """Count a stored curve that could not be read. Until the next refresh, the ranks of its column are counted."""
        self._numbers.add("rankcurve_curves_corrupt")

    def folded(self, partition: int, *, changes: int, void: int, seconds: float) -> None:
        self._numbers.add("rankcurve_changes_folded", changes)
        self._numbers.add("rankcurve_live_counts_void", void)
        self._numbers.observe("rankcurve_fold_seconds", seconds)

    def audited(self, found: Audit) -> None:
        self._numbers.add("rankcurve_audits", 1, found.outcome)
        for each in found.compared:
            self._numbers.observe("rankcurve_audit_error_ratio", each.error)
            if found.curve.certificate is not None:
                self._numbers.observe("rankcurve_audit_certificate_ratio", found.curve.certificate)
        self._numbers.add("rankcurve_audit_brackets_broken", len(found.broken))
        self._numbers.add("rankcurve_audit_certificates_broken", len(found.beyond_certificate))

    def audit_failed(self) -> None:
        self._numbers.add("rankcurve_audits", 1, "failed")

    def shared_read(self, outcome: ReadOutcome) -> None:
        self._numbers.add("rankcurve_shared_curve_reads", 1, outcome)

    def shared_write(self, outcome: WriteOutcome) -> None:
        self._numbers.add("rankcurve_shared_curve_writes", 1, outcome)

    def memcached_failed(self, servers: int) -> None:
        self._numbers.add("rankcurve_memcached_errors", servers)

    # Other jobs

    def job_round_ended(self, job: str, seconds: float) -> None:
        self._numbers.add("rankcurve_job_rounds", 1, job)
        self._numbers.add("rankcurve_job_busy_seconds", seconds, job)
        self._numbers.set("rankcurve_job_last_round_timestamp_seconds", time.time(), job)

    def job_failed(self, job: str) -> None:
        self._numbers.add("rankcurve_job_failures", 1, job)

    def job_paused(self, job: str, *, paused: bool) -> None:
        for name in ("rankcurve_job_rounds", "rankcurve_job_busy_seconds", "rankcurve_job_failures"):
            self._numbers.add(name, 0, job)  # this shows the counter as 0 before its first event
        self._numbers.set("rankcurve_job_paused", int(paused), job)

    def log_age(self, partition: int, seconds: float) -> None:
        self._log_ages[partition] = seconds
        self._set_log_age()

    def pruned_elsewhere(self, partition: int) -> None:
        self._log_ages.pop(partition, None)
        self._set_log_age()

    def _set_log_age(self) -> None:
        if self._log_ages:
            self._numbers.set("rankcurve_change_log_age_seconds", max(self._log_ages.values()))
        else:
            self._numbers.clear("rankcurve_change_log_age_seconds")

    def closed(self, boards: int) -> None:
        self._numbers.add("rankcurve_boards_closed", boards)

    def closing_lag(self, seconds: float) -> None:
        self._numbers.set("rankcurve_closing_lag_seconds", seconds)

    def closing_left(self) -> None:
        self._numbers.clear("rankcurve_closing_lag_seconds")

    def close_failed(self) -> None:
        self._numbers.add("rankcurve_closing_failures")

    def archived(self, *, owners: int, stored_bytes: int) -> None:
        self._numbers.add("rankcurve_boards_archived")
        self._numbers.add("rankcurve_archive_owners", owners)
        self._numbers.add("rankcurve_archive_bytes", stored_bytes)

    # Leases

    def lease_answered(self, outcome: str) -> None:
        self._numbers.add("rankcurve_lease_requests", 1, outcome)

    def lease_requests_waiting(self, requests: int) -> None:
        self._numbers.set("rankcurve_lease_requests_waiting", requests)

    def lease_group_written(self, requests: int, seconds: float) -> None:
        self._numbers.observe("rankcurve_lease_write_requests", requests)
        self._numbers.observe("rankcurve_lease_write_seconds", seconds)

    def resources_moved(self, resources: int) -> None:
        self._numbers.add("rankcurve_lease_resources_moved", resources)

    def page_taken_in(self, taken: AppliedPage) -> None:
        self._numbers.add("rankcurve_lease_events_exchanged", taken.events)
        self._numbers.add("rankcurve_lease_duplicates", taken.duplicates, "found")
        self._numbers.add("rankcurve_lease_duplicates", taken.released, "released")

    def peer_away(self) -> None:
        self._numbers.add("rankcurve_lease_peer_failures")

    # Views, and what a scrape shows

    def watch_store(self, *, version: str, store: str) -> StoreSizes:
        """Show the build. Also show the store and its partitions, as soon as the returned object has measured them."""
        sizes = StoreSizes(self.partitions, version=version, store=store)
        self._views += [sizes.collect, self.partitions.collect]
        return sizes

    def watch_curves(
        self, curves: Callable[[], Iterable[ServingCurve]], *, now_s: Callable[[], float] = time.time
    ) -> None:
        """Show the ages and knots of all serving curves. `curves` is called at every scrape."""
        self._views.append(lambda: curve_metrics(curves(), now_s()))

    def watch_servers(self, count_skipped: Callable[[], int]) -> None:
        """Show at every scrape how many servers this process currently skips after failures (open circuit breaker)."""
        name = "rankcurve_memcached_servers_left_alone"
        text = "memcached servers that are not asked for a while, after failures"
        self._views.append(lambda: [GaugeMetricFamily(name, text, value=count_skipped())])

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current values. In a process of a node, the counts are those of the node."""
        yield from self.collect_counted()
        for view in self._views:
            yield from view()

    def collect_counted(self) -> Iterator[Metric]:
        """Yield the metrics of `collect` without the views, because some views read every curve."""
        yield from (
            ProcessCollector(registry=None).collect() if self.node is None else add_up_processes(self.node.folder)
        )
        yield from self._totals.collect()

    def read_view(self, family: str, absent: float = 0.0) -> float:
        """Return the number that a view computes for a family without labels; `absent` if no view has the family."""
        found = (metric for view in self._views for metric in view() if metric.name == family)
        return next((metric.samples[0].value for metric in found), absent)

    def text(self) -> bytes:
        return generate_latest(self)

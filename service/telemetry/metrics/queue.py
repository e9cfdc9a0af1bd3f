"""Metrics of the ingest queue: how many posts wait, for how long, and how fast workers apply them.

The number of waiting posts comes from the last measurement of the worker that measures the queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from storage.queue.ingest_queue import ShardBacklog
from storage.queue.queue_application import DrainedRound

from .cells import CellSet
from .loop import LatestGauge

REFUSALS = ("queue_full", "overloaded", "stopping", "expired")
OUTCOMES = ("applied", "unchanged", "duplicate", "rejected")
_ROUND_BUCKETS_S = (0.005, 0.02, 0.1, 0.5, 5)
_AGE_BUCKETS_S = (0.1, 1, 5, 60, 300)


class QueueMetrics:
    """Counts queued and applied posts; an `EnqueueObserver` and a `DrainObserver`."""

    def __init__(self, registry: CollectorRegistry, cells: CellSet) -> None:
        self._queued = Counter("rankcurve_ingest_queued_posts", "Posts accepted into the queue", registry=registry)
        self._refused = Counter(
            "rankcurve_ingest_refused_posts", "Posts that the queue refused", ["reason"], registry=registry
        )
        self._drained = Counter(
            "rankcurve_ingest_drained_posts",
            "Queued posts that workers took from the queue, by shard",
            ["shard"],
            registry=registry,
        )
        self._outcomes = Counter(
            "rankcurve_ingest_outcomes",
            "Outcomes of queued posts, counted once for each board",
            ["outcome"],
            registry=registry,
        )
        self._batch = Summary(
            "rankcurve_ingest_round_posts", "Queued posts applied in one transaction", registry=registry
        )
        self._seconds = Histogram(
            "rankcurve_ingest_round_seconds",
            "Time of a round of a queue worker, from reading the queue to the commit",
            buckets=_ROUND_BUCKETS_S,
            registry=registry,
        )
        self._age = Histogram(
            "rankcurve_ingest_applied_age_seconds",
            "Time that the oldest post of a round had waited",
            buckets=_AGE_BUCKETS_S,
            registry=registry,
        )
        self._races = Counter(
            "rankcurve_ingest_conflicts",
            "Rounds of queue workers that were run again after a lost race",
            registry=registry,
        )
        self._fenced = Counter(
            "rankcurve_ingest_fenced",
            "Rounds of queue workers that found their shard taken over by another worker",
            registry=registry,
        )
        self._depth = LatestGauge(
            cells.latest_gauges, "rankcurve_ingest_posts", "Posts in the queue, by shard", ("shard",)
        )
        self._oldest = LatestGauge(
            cells.latest_gauges, "rankcurve_ingest_age_seconds", "Time that the oldest post in the queue has waited"
        )
        registry.register(self._depth)
        registry.register(self._oldest)
        self._shards: set[int] = {0}  # every queue has shard 0
        self._drained.labels("0")
        for reason in REFUSALS:
            self._refused.labels(reason)
        for outcome in OUTCOMES:
            self._outcomes.labels(outcome)

    def posts_queued(self, posts: int) -> None:
        self._queued.inc(posts)

    def queueing_refused(self, reason: str, posts: int) -> None:
        self._refused.labels(reason).inc(posts)

    def posts_drained(self, drained: DrainedRound, *, seconds: float, age_s: float) -> None:
        for shard, posts in drained.posts.items():
            self._drained.labels(str(shard)).inc(posts)
        for outcome, count in drained.statuses.items():
            self._outcomes.labels(outcome).inc(count)
        self._batch.observe(sum(drained.posts.values()))
        self._seconds.observe(seconds)
        self._age.observe(age_s)
        self._races.inc(drained.races)

    def backlog_seen(self, backlog: Mapping[int, ShardBacklog], now_us: int) -> None:
        self._shards |= backlog.keys()
        for shard in self._shards:
            found = backlog.get(shard)
            self._depth.set_value(0 if found is None else found.posts, (str(shard),))
        oldest_us = min((found.oldest_us for found in backlog.values()), default=now_us)
        self._oldest.set_value(max(0.0, (now_us - oldest_us) / 1e6))

    def backlog_left(self) -> None:
        self._depth.clear_values()
        self._oldest.clear_values()

    def drain_fenced(self) -> None:
        self._fenced.inc()

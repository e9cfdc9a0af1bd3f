"""Metrics of background jobs: how often each job worked, for how long, and how often it failed.

All workers of a job have the same name. The label is called `job_name`, because Prometheus itself uses the label `job`
for the group of processes that it scrapes.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class JobMetrics:
    """Counts what the jobs of one process did; a `JobObserver`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rounds = Counter(
            "rankcurve_job_rounds", "Times that a job had work done and rested", ["job_name"], registry=registry
        )
        self._seconds = Counter("rankcurve_job_busy_seconds", "Time that a job worked", ["job_name"], registry=registry)
        self._failures = Counter(
            "rankcurve_job_failures", "Times that a job failed and was started again", ["job_name"], registry=registry
        )
        self._ended = Gauge(
            "rankcurve_job_last_round_timestamp_seconds",
            "When a job last ended a round, in seconds since 1970",
            ["job_name"],
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._paused = Gauge(
            "rankcurve_job_paused",
            "Processes in which a job is paused",
            ["job_name"],
            registry=registry,
            multiprocess_mode="livesum",
        )

    def job_round_ended(self, job: str, seconds: float) -> None:
        self._rounds.labels(job).inc()
        self._seconds.labels(job).inc(seconds)
        self._ended.labels(job).set_to_current_time()

    def job_failed(self, job: str) -> None:
        self._failures.labels(job).inc()

    def job_paused(self, job: str, *, paused: bool) -> None:
        for counter in (self._rounds, self._seconds, self._failures):
            counter.labels(job)  # this shows the counter as 0 before its first event
        self._paused.labels(job).set(int(paused))

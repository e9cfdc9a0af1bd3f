"""Judges the node: finds the alerts in `docs/alerts.yml` whose conditions hold now, as far as one node can see.

Prometheus raises an alert only after its condition has held for some minutes. The verdict shows the condition itself,
so an alert appears earlier here, and may disappear before anybody is paged. A node keeps its figures for fifteen
minutes, so a condition over an hour is judged over fifteen minutes here. The forecast of a full disk is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any, Literal, NamedTuple

from .history import MetricsMoment, quantile

Severity = Literal["page", "ticket"]
SLOW_ROUTES = frozenset(("positions", "post", "page", "around", "entry"))
_5_MIN, _15_MIN = 300.0, 900.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Computes the figures for `RULES` from the metrics at one moment, which have the names that Prometheus shows."""

    moment: MetricsMoment

    def _values(self, gauge: str) -> list[float]:
        return [each.value for metric in self.moment.metrics if metric.name == gauge for each in metric.samples]

    def highest(self, gauge: str) -> float:
        """Find the highest current number among a gauge's series, or 0."""
        return max(self._values(gauge), default=0.0)

    def lowest(self, gauge: str, absent: float) -> float:
        """Find the lowest current number among a gauge's series, or `absent` if there is none."""
        return min(self._values(gauge), default=absent)

    def total(self, gauge: str) -> float:
        return sum(self._values(gauge))

    def _growths(self, sample: str, window_s: float, **wanted: str) -> list[float]:
        family = sample.removesuffix("_total")
        series = self.moment.list_series(family, **wanted)
        return [self.moment.growth(family, labels, window_s)[0] for labels in series]

    def growth(self, sample: str, window_s: float, **wanted: str) -> float:
        """Compute how much a counter grew in the window, summed over the series whose labels begin with `wanted`."""
        return sum(self._growths(sample, window_s, **wanted))

    def highest_growth(self, sample: str, window_s: float) -> float:
        """Find the highest growth of a counter's series in the window, or 0."""
        return max(self._growths(sample, window_s), default=0.0)

    def slowest(self, sample: str, share: float, window_s: float) -> float:
        """Estimate a quantile of the request times of SLOW_ROUTES in the window, or 0.

        `share` is 0.99 for 99 %.
        """
        growths = [self.moment.growth(sample, (route,), window_s)[1:] for route in SLOW_ROUTES]
        counts = [sum(bucket) for bucket in zip(*growths, strict=True)]
        return quantile(self.moment.totals.families[sample].bounds, counts, share) or 0.0

    def is_partition_away(self) -> bool:
        return not self.lowest("rankcurve_partition_reachable", absent=1)

    def longest_rest_s(self) -> float:
        """Find the job whose last finished round is the oldest, and return how many seconds ago it ended, or 0."""
        times = self._values("rankcurve_job_last_round_timestamp_seconds")
        return max((time.time() - at for at in times if at > 0), default=0.0)


class Rule(NamedTuple):
    """An alert, its threshold in `docs/alerts.yml`, and the figure to compare with it."""

    alert: str
    severity: Severity
    threshold: float
    measure: Callable[[Figures], float]
    means: str  # one line for people; docs/operating.md says what to do
    below: bool = False  # whether the alert holds below the threshold instead of above it


def _share(part: str, label: str, value: str) -> Callable[[Figures], float]:
    """Make a function that divides a counter's growth where `label` begins with `value` by its whole growth."""

    def measure(now: Figures) -> float:
        whole = now.growth(part, _5_MIN)
        return now.growth(part, _5_MIN, **{label: value}) / whole if whole else 0.0

    return measure


RULES: tuple[Rule, ...] = (
    Rule("RankcurveRankWrong", "page", 0,
         lambda now: now.growth("rankcurve_audit_brackets_broken_total", _15_MIN)
         + now.growth("rankcurve_audit_certificates_broken_total", _15_MIN),
         "An audited rank lay outside its bracket."),
    Rule("RankcurveErrors", "page", 0.01, _share("rankcurve_requests_total", "status", "5"),
         "More than 1 % of requests fail."),
    Rule("RankcurveSlow", "ticket", 0.5, lambda now: now.slowest("rankcurve_request_seconds", 0.99, _5_MIN),
         "The slowest 1 % of requests take more than half a second."),
    Rule("RankcurvePostsRefused", "page", 0, lambda now: now.growth("rankcurve_write_refused_posts_total", _5_MIN),
         "Posts come faster than the store takes them."),
    Rule("RankcurveQueueLong", "ticket", 10000, lambda now: now.total("rankcurve_write_queue_posts"),
         "Many posts wait to be written."),
    Rule("RankcurvePartitionAway", "page", 0, lambda now: float(now.is_partition_away()),
         "A partition of the store does not answer."),
    Rule("RankcurveConnectionsAwaited", "ticket", 10, lambda now: now.highest("rankcurve_store_connections_awaited"),
         "Programs wait for connections to the store."),
    Rule("RankcurveStoreRetries", "ticket", 1,
         lambda now: now.growth("rankcurve_store_retries_total", _5_MIN) / _5_MIN,
         "Connections to the store are lost again and again."),
    Rule("RankcurveCurvesOld", "ticket", 3600,
         lambda now: now.highest("rankcurve_curve_age_seconds_max")
         * (now.highest("rankcurve_live_lag_seconds_max") > 60),
         "A curve is an hour old."),
    Rule("RankcurveLiveLag", "ticket", 30, lambda now: now.highest("rankcurve_live_lag_seconds_max"),
         "Live curves are far behind what is posted."),
    Rule("RankcurveRefreshFails", "ticket", 0, lambda now: now.growth("rankcurve_refresh_failures_total", _15_MIN),
         "Refreshes of curves end in errors."),
    Rule("RankcurveJobFails", "ticket", 3, lambda now: now.highest_growth("rankcurve_job_failures_total", _15_MIN),
         "A background job fails again and again."),
    Rule("RankcurveJobStands", "ticket", 900, lambda now: now.longest_rest_s(),
         "A background job has not ended a round for a quarter of an hour."),
    Rule("RankcurveJobPaused", "ticket", 0, lambda now: now.highest("rankcurve_job_paused"),
         "A background job is paused."),
    Rule("RankcurveProcessesCrash", "page", 3, lambda now: now.growth("rankcurve_process_ends_total", _15_MIN),
         "Processes of the node end and are replaced."),
    Rule("RankcurveCurvesCorrupt", "ticket", 0, lambda now: now.growth("rankcurve_curves_corrupt_total", _15_MIN),
         "A stored curve could not be read."),
    Rule("RankcurveMemcachedAway", "ticket", 0, lambda now: now.highest("rankcurve_memcached_servers_left_alone"),
         "A memcached server fails."),
    Rule("RankcurveLogLinesDropped", "ticket", 0,
         lambda now: now.growth("rankcurve_log_lines_dropped_total", _15_MIN),
         "Log lines are lost because the disk can't keep up."),
    Rule("RankcurveIngestLate", "ticket", 60, lambda now: now.highest("rankcurve_ingest_age_seconds"),
         "A queued post has waited for more than a minute."),
    Rule("RankcurveClosingLate", "ticket", 300, lambda now: now.highest("rankcurve_closing_lag_seconds"),
         "A leaderboard waits to be closed."),
    Rule("RankcurvePostsHeld", "ticket", 500, lambda now: now.highest("rankcurve_partition_held_posts"),
         "Many posts wait for a verdict."),
    Rule("RankcurveGrantsLate", "ticket", 60, lambda now: now.highest("rankcurve_grants_lag_seconds"),
         "The rewards of a closed leaderboard are late."),
    Rule("RankcurveWebhookFails", "ticket", 3600, lambda now: now.highest("rankcurve_webhook_failing_seconds"),
         "A receiver of events has failed for an hour."),
    Rule("RankcurveLeasesDry", "ticket", 0.05, _share("rankcurve_lease_requests_total", "outcome", "no_resource"),
         "Requests for leases find no resource."),
    Rule("RankcurveDiskFull", "page", 1e9, lambda now: now.lowest("rankcurve_store_disk_free_bytes", absent=inf),
         "The disk of the store has less than 1 GB left.", below=True),
)  # fmt: skip


def find_alerts(now: Figures) -> list[dict[str, Any]]:
    """Find the alerts that hold, most severe first, each as a dictionary for JSON."""
    found = []
    for rule in RULES:
        measured = rule.measure(now)
        if not isnan(measured) and (measured < rule.threshold if rule.below else measured > rule.threshold):
            found.append({"Alert": rule.alert, "Severity": rule.severity, "Means": rule.means})
    return sorted(found, key=lambda alert: alert["Severity"] != "page")

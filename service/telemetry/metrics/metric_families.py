"""The table of all metrics that a process counts: their names, types, help texts, labels and buckets.

Every name begins with `rankcurve_`. The names of times and ratios end with the unit. Prometheus adds `_total` to
counters. There are few buckets and label values, because a node has at most 500 series, which a test checks.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from querybuilder import STATEMENT_KINDS
from storage.meter import AuditOutcome, ReadOutcome, WriteOutcome

# A node shows the sum over its processes. For a gauge, only processes that still run are included. "latest" is a gauge
# that only one process of a node knows at a time, such as a queue's length, so the node shows the most recent value.
FamilyKind = Literal["counter", "gauge", "latest", "histogram", "summary"]


class Family(NamedTuple):
    name: str
    kind: FamilyKind
    documentation: str
    # The labels, each with the values that are shown as 0 before their first event.
    labels: Mapping[str, Sequence[str]] = {}
    bounds: Sequence[float] = ()  # the upper bounds of a histogram's buckets

    @property
    def is_gauge(self) -> bool:
        return self.kind in ("gauge", "latest")

    @property
    def numbers_count(self) -> int:
        """Return how many numbers the module `numbers` stores for one of this family's series."""
        return 1 if self.kind == "counter" else len(self.bounds) + 2


_OUTCOMES = ("applied", "unchanged", "duplicate", "held", "rejected")
_REFUSALS = ("queue_full", "overloaded", "stopping", "expired")
_LEASE_OUTCOMES = ("kept", "extended", "acquired", "released", "no_resource", "refused")
_CONNECTION: Mapping[str, Sequence[str]] = {"pool": (), "kind": ()}
# The label holds the job's name, which is the same for all of its workers. It is not called `job`, because Prometheus
# itself uses the label `job` for the group of processes that it scrapes.
_JOB: Mapping[str, Sequence[str]] = {"job_name": ()}

FAMILIES: Sequence[Family] = (
    Family("rankcurve_posts", "counter", "Posts by outcome", {"outcome": _OUTCOMES}),
    Family("rankcurve_partition_posts_applied", "counter",
           "Posts applied in the partition, counted once for each board", {"partition": ("0",)}),
    Family("rankcurve_reads", "counter", "Ranks and rows in answers, by route and by how the rank was found",
           {"route": (), "method": ()}),
    Family("rankcurve_rate_limit", "counter",
           "Reads and posts checked against the rate of their API key, or of callers without one",
           {"kind": ("reads", "posts", "anonymous reads"), "outcome": ("passed", "refused")}),
    Family("rankcurve_write_refused_posts", "counter",
           "Posts refused because of load or a stop, counted once for each board", {"reason": _REFUSALS}),
    Family("rankcurve_write_queue_posts", "gauge", "Posts waiting to be written, counted once for each board"),
    Family("rankcurve_writes_in_flight", "gauge", "Write transactions in flight"),
    Family("rankcurve_requests", "counter", "Requests answered", {"route": (), "status": ()}),
    Family("rankcurve_request_seconds", "histogram", "Time to answer a request", {"route": ()},
           (0.001, 0.005, 0.02, 0.1, 0.5, 2.5)),
    Family("rankcurve_write_seconds", "histogram", "Time of a write transaction, from its read to its commit",
           bounds=(0.002, 0.01, 0.05, 0.2, 1, 5)),
    Family("rankcurve_write_batch_posts", "summary", "Posts in a write transaction"),
    Family("rankcurve_write_conflicts", "counter", "Conditional writes that failed because the row had changed"),
    Family("rankcurve_store_statements", "counter", "Statements that the store ran", {"kind": STATEMENT_KINDS}),
    Family("rankcurve_store_rows", "counter", "Rows that statements returned or changed", {"kind": STATEMENT_KINDS}),
    Family("rankcurve_store_retries", "counter", "Programs run again after a lost race or a lost connection"),
    Family("rankcurve_store_reads_abandoned", "counter",
           "Reads of a SQLite store that were too long for the event loop, and ran again in another thread"),
    Family("rankcurve_store_connections_replaced", "counter",
           "Connections to a SQLite store that were replaced, because a transaction could not be ended; must stay 0"),
    Family("rankcurve_store_connection_wait_seconds", "histogram",
           "Time that programs waited for a connection to the store", {"pool": ()}, (0, 0.01, 1)),
    Family("rankcurve_store_connections_limit", "gauge", "Connections that the connection pool may open", _CONNECTION),
    Family("rankcurve_store_connections_lent", "gauge", "Connections in use", _CONNECTION),
    Family("rankcurve_store_nodes_away", "gauge", "Database servers that do not answer"),
    Family("rankcurve_store_connections_awaited", "gauge", "Programs that wait for a connection", _CONNECTION),
    Family("rankcurve_refresh_seconds", "histogram", "Time to refresh the curve of a column",
           bounds=(0.05, 0.5, 5, 30, 300)),
    Family("rankcurve_refresh_failures", "counter", "Refreshes that ended in an error"),
    Family("rankcurve_refreshes_fenced", "counter",
           "Curves not stored because another process had taken over their refresh"),
    Family("rankcurve_curves_corrupt", "counter", "Stored curves that could not be read"),
    Family("rankcurve_shared_curve_reads", "counter", "Lookups of curves in memcached",
           {"outcome": get_args(ReadOutcome)}),
    Family("rankcurve_shared_curve_writes", "counter", "Writes of curves to memcached",
           {"outcome": get_args(WriteOutcome)}),
    Family("rankcurve_memcached_errors", "counter", "Failures of memcached servers in calls"),
    Family("rankcurve_streams_open", "gauge", "Streams that are open"),
    Family("rankcurve_stream_events", "counter", "Events handed to streams"),
    Family("rankcurve_audits", "counter", "Audits of curves", {"outcome": (*get_args(AuditOutcome), "failed")}),
    Family("rankcurve_audit_error_ratio", "histogram",
           "Error of audited ranks, relative to the true rank at the curve's time",
           bounds=(0, 0.001, 0.005, 0.01, 0.05)),
    Family("rankcurve_audit_certificate_ratio", "summary",
           "Largest error that the curve of each audited rank certifies, where it has a certificate"),
    Family("rankcurve_audit_brackets_broken", "counter", "Audited ranks outside their bracket; must stay 0"),
    Family("rankcurve_audit_certificates_broken", "counter",
           "Audited ranks with a larger error than their certificate allows; must stay 0"),
    Family("rankcurve_changes_folded", "counter", "Changes folded into the live counts of the curves"),
    Family("rankcurve_live_counts_void", "counter",
           "Curves whose live counts were discarded until their next refresh"),
    Family("rankcurve_job_rounds", "counter", "Times that a job had work done and rested", _JOB),
    Family("rankcurve_job_busy_seconds", "counter", "Time that a job worked", _JOB),
    Family("rankcurve_job_failures", "counter", "Times that a job failed and was started again", _JOB),
    Family("rankcurve_job_last_round_timestamp_seconds", "latest",
           "When a job last ended a round, in seconds since 1970", _JOB),
    Family("rankcurve_job_paused", "gauge", "Processes in which a job is paused", _JOB),
    Family("rankcurve_ingest_queued_posts", "counter", "Posts accepted into the queue"),
    Family("rankcurve_ingest_refused_posts", "counter", "Posts that the queue refused", {"reason": _REFUSALS}),
    Family("rankcurve_ingest_outcomes", "counter", "Outcomes of queued posts, counted once for each board",
           {"outcome": _OUTCOMES}),
    Family("rankcurve_ingest_round_posts", "summary", "Queued posts applied in one transaction"),
    Family("rankcurve_ingest_applied_age_seconds", "histogram", "Time that the oldest post of a round had waited",
           bounds=(0.1, 1, 5, 60, 300)),
    Family("rankcurve_ingest_fenced", "counter",
           "Rounds of queue workers that found their shard taken over by another worker"),
    Family("rankcurve_ingest_posts", "latest", "Posts in the queue"),
    Family("rankcurve_ingest_age_seconds", "latest", "Time that the oldest post in the queue has waited"),
    Family("rankcurve_boards_closed", "counter", "Leaderboards closed to posts"),
    Family("rankcurve_closing_lag_seconds", "latest",
           "Time that the leaderboard to be closed next has been due, at the last check"),
    Family("rankcurve_entry_refused_posts", "counter",
           "Posts that entry rules refused, counted once for each leaderboard",
           {"reason": ("not_joined", "no_posts_left", "board_full")}),
    Family("rankcurve_verdicts", "counter", "Verdicts on held posts", {"verdict": ("accept", "refuse")}),
    Family("rankcurve_grants_made", "counter", "Grants made, which are rewards of owners of closed leaderboards"),
    Family("rankcurve_grants_claimed", "counter", "Grants claimed"),
    Family("rankcurve_grants_lag_seconds", "latest",
           "Time that a closed leaderboard has waited for its grants, at the last check"),
    Family("rankcurve_boards_archived", "counter", "Leaderboards whose rows were replaced by an archive"),
    Family("rankcurve_archive_owners", "counter", "Owners whose entries were archived"),
    Family("rankcurve_closing_failures", "counter", "Steps of closing or archiving that ended in an error"),
    Family("rankcurve_lease_requests", "counter", "Requests for leases", {"outcome": _LEASE_OUTCOMES}),
    Family("rankcurve_lease_write_seconds", "histogram", "Time of a transaction that changes leases",
           bounds=(0.002, 0.005, 0.02, 0.1, 1)),
    Family("rankcurve_lease_write_requests", "summary", "Requests in a transaction that changes leases"),
    Family("rankcurve_lease_requests_waiting", "gauge", "Requests for leases that wait for a transaction"),
    Family("rankcurve_lease_resources_moved", "counter", "Free resources that the balancer moved to another region"),
    Family("rankcurve_lease_events_exchanged", "counter", "Events read from the journals of other stores"),
    Family("rankcurve_lease_duplicates", "counter", "Leases released because their key had an earlier one elsewhere"),
    Family("rankcurve_lease_peer_failures", "counter", "Failed reads of the journals of other stores"),
    Family("rankcurve_webhook_deliveries", "counter", "Deliveries of events to webhooks",
           {"outcome": ("delivered", "failed")}),
    Family("rankcurve_webhook_failing_seconds", "latest", "Time for which the deliveries to some webhook have failed"),
    Family("rankcurve_log_lines_dropped", "counter", "Log lines lost because the disk was too slow"),
    # Only a node's supervisor counts the processes that have ended.
    Family("rankcurve_process_ends", "counter", "Processes of the node that ended, on request or not", {"work": ()}),
)  # fmt: skip

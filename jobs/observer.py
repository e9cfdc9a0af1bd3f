"""The reports of jobs to operators, such as metrics."""

from collections.abc import Mapping

from storage.curves.auditing import Audit
from storage.leases.peers.exchange import AppliedPage
from storage.queue.ingest_queue import ShardBacklog
from storage.queue.queue_application import DrainedRound


class JobObserver:
    """Receives the reports of all jobs. These methods ignore them; a subclass overrides those that it needs."""

    # Every job; `job` is the name that operators know

    def job_round_ended(self, job: str, seconds: float) -> None:
        """Record that a job worked for `seconds` and begins to sleep."""

    def job_failed(self, job: str) -> None:
        """Record that a job raised an error; it will start again."""

    def job_paused(self, job: str, *, paused: bool) -> None:
        """Record that a job was started, paused or resumed, and whether it is paused now."""

    # Refreshes

    def refreshed(self, seconds: float) -> None:
        """Record that a curve was refreshed in `seconds`."""

    def refresh_failed(self) -> None:
        """Count a refresh that ended in an error."""

    def refresh_fenced(self) -> None:
        """Count a curve that was not stored, because another process had taken over its column."""

    # Fits

    def scan_read(self, entries: int, *, left: int) -> None:
        """Record that a scan has read `entries` more entries, and that all scans have about `left` entries to read."""

    # Folding

    def folded(self, partition: int, *, changes: int, void: int, seconds: float) -> None:
        """Record one fold: how many changes it counted, and how many curves lost their live counts (`void`)."""

    # Audits

    def audited(self, found: Audit) -> None:
        """Record the outcome of an audit."""

    def audit_failed(self) -> None:
        """Count an audit that ended in an error."""

    # Pruning

    def log_age(self, partition: int, seconds: float) -> None:
        """Record the age of the oldest change in a partition's log before pruning; 0 if the log is empty."""

    def pruned_elsewhere(self, partition: int) -> None:
        """Stop reporting this age in this process, because another process prunes the partition and reports the age."""

    # Closing boards

    def closed(self, boards: int) -> None:
        """Record that `boards` boards were closed; they accept no more posts."""

    def closing_lag(self, seconds: float) -> None:
        """Record how long the next board to close has been waiting; 0 if none is waiting."""

    def closing_left(self) -> None:
        """Stop reporting the lag in this process. From now on another process may close boards and report the lag."""

    def close_failed(self) -> None:
        """Count a step that ended in an error; it will be tried again."""

    # Archiving

    def archived(self, *, owners: int, stored_bytes: int) -> None:
        """Record that an archive of `stored_bytes` bytes replaced the rows of a board with `owners` owners."""

    # Draining the queue

    def posts_drained(self, drained: DrainedRound, *, seconds: float, age_s: float) -> None:
        """Record a committed round. `age_s` says how long the oldest post of the round had waited."""

    def backlog_seen(self, backlog: Mapping[int, ShardBacklog], now_us: int) -> None:
        """Record the posts that wait in each shard."""

    def backlog_left(self) -> None:
        """Stop reporting the backlog in this process. Other workers empty the queue and report the backlog."""

    def drain_fenced(self) -> None:
        """Count a round that failed because another worker had taken over a shard."""

    # Balancing

    def resources_moved(self, resources: int) -> None:
        """Record that `resources` resources were moved to another region."""

    # The exchange with other stores

    def page_taken_in(self, taken: AppliedPage) -> None:
        """Record a page of another store's journal that was applied here."""

    def peer_away(self) -> None:
        """Count a page that was not applied, because the other store's service or this store failed."""

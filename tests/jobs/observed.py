"""An observer that records what jobs report."""

import asyncio
from dataclasses import dataclass, field

from jobs.observer import JobObserver
from storage.curves.auditing import Audit


@dataclass
class Observed(JobObserver):
    scanned: list[tuple[int, int]] = field(default_factory=list)  # entries read, and entries left to read
    refreshes: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    failures: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    fenced: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    log_ages: asyncio.Queue[float] = field(default_factory=asyncio.Queue)  # seconds
    pruned_elsewhere_times: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    folds: asyncio.Queue[int] = field(default_factory=asyncio.Queue)  # for each fold, the number of folded changes
    audits: asyncio.Queue[Audit] = field(default_factory=asyncio.Queue)
    void: int = 0  # number of curves that lost their live counts
    boards_closed: int = 0
    owners_archived: int = 0
    lag_s: float | None = None  # None while another process has the closing job
    close_failures: int = 0

    def refreshed(self, seconds: float) -> None:
        assert seconds >= 0
        self.refreshes.put_nowait(seconds)

    def scan_read(self, entries: int, *, left: int) -> None:
        self.scanned.append((entries, left))

    def refresh_failed(self) -> None:
        self.failures.put_nowait(None)

    def refresh_fenced(self) -> None:
        self.fenced.put_nowait(None)

    def audited(self, found: Audit) -> None:
        self.audits.put_nowait(found)

    def audit_failed(self) -> None:
        self.failures.put_nowait(None)

    def closed(self, boards: int) -> None:
        self.boards_closed += boards

    def archived(self, *, owners: int, stored_bytes: int) -> None:
        assert stored_bytes > 0
        self.owners_archived += owners

    def closing_lag(self, seconds: float) -> None:
        self.lag_s = seconds

    def closing_left(self) -> None:
        self.lag_s = None

    def close_failed(self) -> None:
        self.close_failures += 1

    def log_age(self, partition: int, seconds: float) -> None:
        self.log_ages.put_nowait(seconds)

    def pruned_elsewhere(self, partition: int) -> None:
        self.pruned_elsewhere_times.put_nowait(None)

    def folded(self, partition: int, *, changes: int, void: int, seconds: float) -> None:
        assert seconds >= 0
        self.void += void
        self.folds.put_nowait(changes)

"""Forgets post ids, changes and rejections past their retention, and deletes rows that boards left in shared tables.

The one rule: posts come first. A step is one bounded transaction, and after each the job pauses for as long as the step
took, so that pruning never has the writer for more than half of the time. Of several job processes one prunes, once an
interval: the lease rests until the next run is nearly due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from storage.change_log import change_log
from storage.erasing import erasing
from storage.errors import LeaseTaken
from storage.journal_blocks import blocks
from storage.post_ids import PostIds
from storage.rejected_posts import rejected_posts
from storage.shared_tables import sweep_rows
from storage.store import Program, Store

from .ownership import Held, Ownership
from .runner import Sleep

log = structlog.get_logger(__name__)

POOL = "job"  # the leases on what the store needs done once
RESOURCE = "prune"
REST_RATIO = 0.9  # of the interval: whoever pruned last finds the lease free at its own next turn, clocks differing


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """The job's bounds; each is a setting of the same name."""

    post_id_retention_s: float
    change_log_retention_s: float
    erased_cells_s: float
    prune_interval_s: float
    prune_rows_max: int  # a step
    prune_steps_max: int  # a run, of each kind
    rejected_post_retention_s: float
    rejected_posts_max: int


class PruneObserver(Protocol):
    """What pruning tells its operators."""

    def log_age(self, seconds: float) -> None:
        """The oldest change is so old, before anything is pruned; 0: there is none."""

    def pruned_elsewhere(self) -> None:
        """Another process prunes, and knows how old it is."""


class PruneJob:
    """Prunes remembered post ids and the change log."""

    def __init__(
        self,
        store: Store,
        post_ids: PostIds,
        ownership: Ownership,
        limits: PruneLimits,
        observer: PruneObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
        unread_from: Callable[[], Program[int | None]] | None = None,  # the position that is yet to be counted
    ) -> None:
        self._store, self._post_ids, self._limits = store, post_ids, limits
        self._changes = change_log(store.dialect)
        self._ownership, self._observer = ownership, observer
        self._now_us, self._monotonic, self._sleep = now_us, monotonic, sleep
        self._unread_from = unread_from

    async def run(self) -> None:
        """Prune at every interval, for ever."""
        while True:
            await self._sleep(self._limits.prune_interval_s)
            rests_s = self._limits.prune_interval_s * REST_RATIO
            try:
                await self._ownership.run(POOL, RESOURCE, self._prune, rests_s=rests_s)
            except LeaseTaken:
                self._observer.pruned_elsewhere()

    async def _prune(self, _held: Held) -> None:
        oldest_us = await self._store.read(self._changes.oldest_us)
        self._observer.log_age(0.0 if oldest_us is None else max(0, self._now_us() - oldest_us) / 1e6)
        if forgotten := await self.prune():
            log.info("post_ids_forgotten", rows=forgotten)
        if removed := await self.prune_changes():
            log.info("changes_removed", rows=removed)
        if forgotten := await self.prune_rejected():
            log.info("rejected_posts_forgotten", rows=forgotten)
        await self.blank_erased()
        await self.make_blocks()
        if swept := await self.sweep():
            log.info("rows_left_behind_deleted", rows=swept)

    async def prune(self) -> int:
        """Forget post ids past their retention now, in up to `prune_steps_max` steps; answers how many rows."""
        before_us = self._now_us() - round(self._limits.post_id_retention_s * 1e6)
        rows_max = self._limits.prune_rows_max
        # A step that leaves something behind takes more than `rows_max`.
        return await self._in_steps(lambda: self._post_ids.prune(before_us=before_us, rows_max=rows_max), rows_max + 1)

    async def prune_changes(self) -> int:
        """Remove changes past their retention now, in up to `prune_steps_max` steps; answers how many bundles.

        What nobody has counted stays for twice as long: where counting fails for good the log has an end all the same,
        and whoever counts again finds that changes are missing.
        """
        now_us, kept_us = self._now_us(), round(self._limits.change_log_retention_s * 1e6)
        rows_max = self._limits.prune_rows_max

        def step() -> Program[int]:
            unread_from = None if self._unread_from is None else (yield from self._unread_from())
            gone = yield from self._changes.prune(before_us=now_us - kept_us, keep_from=unread_from, rows_max=rows_max)
            if gone or unread_from is None:
                return gone
            return (yield from self._changes.prune(before_us=now_us - 2 * kept_us, keep_from=None, rows_max=rows_max))

        return await self._in_steps(step, 1)

    async def prune_rejected(self) -> int:
        """Forget why queued posts were rejected, past their retention or their number; answers how many."""
        before_us = self._now_us() - round(self._limits.rejected_post_retention_s * 1e6)
        rejected, rows_max = rejected_posts(self._store.dialect), self._limits.prune_rows_max
        keep = self._limits.rejected_posts_max
        return await self._in_steps(lambda: rejected.prune(before_us=before_us, keep=keep, rows_max=rows_max), rows_max)

    async def blank_erased(self) -> int:
        """Take cells out of the log whose owners were erased and that nobody counts from any more; how many rows."""
        before_us = self._now_us() - round(self._limits.erased_cells_s * 1e6)
        rows_max = self._limits.prune_rows_max
        erased = erasing(self._store.dialect)
        return await self._in_steps(lambda: erased.blank(before_us=before_us, rows_max=rows_max), rows_max)

    async def make_blocks(self) -> int:
        """Make the journal findable by owner, as far as it is long enough; how many blocks."""
        index, made = blocks(self._store.dialect), 0
        await self._store.write(index.prune)
        while (block := await self._store.read(index.next, heavy=True)) is not None:
            started = self._monotonic()
            await self._store.write(lambda block=block: index.add(block))  # type: ignore[misc]
            made += 1
            await self._sleep(self._monotonic() - started)
        return made

    async def sweep(self) -> int:
        """Delete rows that boards left behind, in up to `prune_steps_max` steps; answers how many."""
        rows_max = self._limits.prune_rows_max
        return await self._in_steps(lambda: sweep_rows(self._store.dialect, rows_max=rows_max), 1)

    async def _in_steps(self, step: Callable[[], Program[int]], rows_more: int) -> int:
        """Runs steps until one takes fewer rows than one does that leaves something behind."""
        gone = 0
        for _ in range(self._limits.prune_steps_max):
            started = self._monotonic()
            rows = await self._store.write(step)
            gone += rows
            if rows < rows_more:
                break
            await self._sleep(self._monotonic() - started)
        return gone

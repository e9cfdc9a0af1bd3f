"""Forgets post ids that are older than their retention, and deletes rows that boards left in shared tables.

The one rule: posts come first. A step is one bounded transaction, and after each the job pauses for as long as the step
took, so that pruning never has the writer for more than half of the time. Of several job processes one prunes, once an
interval: the lease rests until the next run is nearly due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from storage.errors import LeaseTaken
from storage.post_ids import PostIds
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
    prune_interval_s: float
    prune_rows_max: int  # a step
    prune_steps_max: int  # a run


class PruneJob:
    """Prunes remembered post ids."""

    def __init__(
        self,
        store: Store,
        post_ids: PostIds,
        ownership: Ownership,
        limits: PruneLimits,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self._store, self._post_ids, self._limits = store, post_ids, limits
        self._ownership = ownership
        self._now_us, self._monotonic, self._sleep = now_us, monotonic, sleep

    async def run(self) -> None:
        """Prune at every interval, for ever."""
        while True:
            await self._sleep(self._limits.prune_interval_s)
            rests_s = self._limits.prune_interval_s * REST_RATIO
            try:
                forgotten = await self._ownership.run(POOL, RESOURCE, self._prune, rests_s=rests_s)
            except LeaseTaken:
                continue
            if any(forgotten):
                log.info("pruned", post_ids=forgotten[0], rows_left_behind=forgotten[1])

    async def _prune(self, _held: Held) -> tuple[int, int]:
        return await self.prune(), await self.sweep()

    async def prune(self) -> int:
        """Forget what is past its retention now, in up to `prune_steps_max` steps; answers how many rows."""
        before_us = self._now_us() - round(self._limits.post_id_retention_s * 1e6)
        rows_max = self._limits.prune_rows_max
        return await self._steps(
            lambda: self._post_ids.prune(before_us=before_us, rows_max=rows_max),
            lambda rows: rows > rows_max,  # a step that leaves something behind takes more
        )

    async def sweep(self) -> int:
        """Delete rows that boards left behind, in up to `prune_steps_max` steps; answers how many."""
        rows_max = self._limits.prune_rows_max
        return await self._steps(lambda: sweep_rows(self._store.dialect, rows_max=rows_max), bool)

    async def _steps(self, step: Callable[[], Program[int]], is_more: Callable[[int], bool]) -> int:
        done = 0
        for _ in range(self._limits.prune_steps_max):
            started = self._monotonic()
            rows = await self._store.write(step)
            done += rows
            if not is_more(rows):
                break
            await self._sleep(self._monotonic() - started)
        return done

"""Folds the change log into the live counts of the curves, so that front ends see a change within 2 s.

    claim ──> read what is new in one snapshot ──> count ──> documents and mark in one transaction ──> pause ──> read …

The one rule: one process at a time folds, and what it stores is stored on the condition that its lease is still held.
One that was killed leaves documents and mark of one moment behind; the next one reads them and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from storage.curves import CurveBook
from storage.errors import LeaseLost, LeaseTaken, StorageError
from storage.folding import Backlog, FoldLimits, backlog
from storage.live_counts import Folded, StoredCounts, store_folded
from storage.store import Program, Store

from .counting import Counting
from .ownership import Held, Ownership
from .runner import Sleep

log = structlog.get_logger(__name__)

POOL = "job"
RESOURCE = "fold"
IDLE_US = 10_000_000  # a mark that nothing has happened since is renewed when it is so old


class FoldObserver(Protocol):
    """What folding tells its operators."""

    def folded(self, *, changes: int, void: int, seconds: float) -> None:
        """So many changes were counted, and so many curves go without live counts from now on."""


class FoldJob:
    """Folds while it has the lease; `run` it in every job process."""

    def __init__(
        self,
        store: Store,
        book: CurveBook,
        ownership: Ownership,
        limits: FoldLimits,
        observer: FoldObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self._store, self._book, self._ownership = store, book, ownership
        self._limits, self._observer = limits, observer
        self._now_us, self._monotonic, self._sleep = now_us, monotonic, sleep

    async def run(self) -> None:
        """Fold, or wait until the process that does has gone, for ever."""
        while True:
            try:
                await self._ownership.run(POOL, RESOURCE, self._fold_on)
            except LeaseTaken:
                pass
            except LeaseLost as error:
                log.warning("fold_fenced", detail=error.detail)
            await self._sleep(self._limits.fold_interval_s)

    async def _fold_on(self, held: Held) -> None:
        counting = self.counting()
        while True:
            started = self._monotonic()
            try:
                await self.fold(held, counting)
            except LeaseLost:
                raise
            except StorageError as error:
                log.error("fold_failed", detail=error.detail)
                counting = self.counting()  # whether it was stored is not known
            took_s = self._monotonic() - started
            rest_s = took_s * (1 / self._limits.fold_load_ratio - 1)
            await self._sleep(max(rest_s, self._limits.fold_interval_s - took_s))

    def counting(self) -> Counting:
        """Counts that know nothing yet: they are read from the store."""
        return Counting(curves_max=self._limits.fold_curves_max)

    async def fold(self, held: Held, counting: Counting) -> int:
        """Count what is new and store it; answers how many changes that were. After an error the counts are of no use.

        Raises:
            LeaseLost: another process folds.
            StoreBusy: the store failed.
        """
        started = self._monotonic()
        now_us = self._now_us()  # before the snapshot: no change acknowledged before is missing
        found = await self._read(counting)
        if found.lost and counting.known.version:
            # Some curves may still go on from the marks of their fits: all are listed.
            log.warning("live_counts_lost", changes=found.rows)
            counting.known.version = 0
            found = await self._read(counting)
        was_busy = counting.busy
        counts = await asyncio.to_thread(counting.count, found)
        if was_busy or self._is_news(found, counts, now_us):
            version = counts[-1].version if counts else found.before.version if found.before else 0
            folded = Folded(found.mark, now_us, version)
            await self._store.write(lambda: self._stored(held, folded, counts))
            await self._book.poll_live()
        self._observer.folded(changes=found.rows, void=counting.void, seconds=self._monotonic() - started)
        return found.rows

    async def _read(self, counting: Counting) -> Backlog:
        return await self._store.read(lambda: backlog(self._store.dialect, counting.known, self._limits))

    @staticmethod
    def _is_news(found: Backlog, counts: list[StoredCounts], now_us: int) -> bool:
        """Whether the mark has to move: not for every pause of an idle store, which has moved it once already."""
        if found.before is None or counts or found.rows or found.others:
            return True
        return now_us - found.before.as_of_us >= IDLE_US

    def _stored(self, held: Held, folded: Folded, counts: list[StoredCounts]) -> Program[None]:
        yield from held.keep()
        yield from store_folded(self._store.dialect, folded, counts)

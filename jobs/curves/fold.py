"""Folds the change log into the live counts of the curves, so that front ends see a change within 2 s.

    claim ──> read new changes in one snapshot ──> count ──> store counts and mark in one transaction ──> pause ──> …

One process at a time folds, and it stores counts only if its lease is still held. Counts and mark always belong to the
same moment, so the next process reads both and continues from the mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from config.settings import JobSettings
from jobs.controls import Sleep
from jobs.ownership import JOB_POOL, HeldLease, Ownership
from storage.curves.folding import FoldBacklog, read_fold_backlog
from storage.curves.live_counts import FoldState, StoredCounts, store_folded
from storage.curves.stored_curves import CurveBook
from storage.errors import LeaseLostError, LeaseTakenError, StorageError
from storage.store import Program, Store

from .live_counts import Counting

log = structlog.get_logger(__name__)

RESOURCE = "fold"
IDLE_US = 10_000_000  # without changes, the mark is stored again only when it is this old


class FoldObserver(Protocol):
    """Reports of folding to operators."""

    def folded(self, *, changes: int, void: int, seconds: float) -> None:
        """Record one fold: how many changes it counted, and how many curves lost their live counts (`void`)."""


class FoldJob:
    """Folds changes while it has the lease. Every job process runs `run_forever`."""

    def __init__(
        self,
        store: Store,
        book: CurveBook,
        ownership: Ownership,
        limits: JobSettings,
        observer: FoldObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self._store, self._book, self._ownership = store, book, ownership
        self._limits, self._observer = limits, observer
        self._now_us, self._monotonic, self._sleep = now_us, monotonic, sleep

    async def run_forever(self) -> None:
        while True:
            try:
                await self._ownership.run_owned(JOB_POOL, RESOURCE, self._fold_on)
            except LeaseTakenError:
                pass
            except LeaseLostError as error:
                log.warning("fold_fenced", detail=error.detail)
            await self._sleep(self._limits.fold_interval_s)

    async def _fold_on(self, held: HeldLease) -> None:
        counting = self.counting()
        while True:
            started = self._monotonic()
            try:
                await self.fold_changes(held, counting)
            except LeaseLostError:
                raise
            except StorageError as error:
                log.error("fold_failed", detail=error.detail)
                counting = self.counting()  # start anew: it is unknown whether the counts were stored
            took_s = self._monotonic() - started
            rest_s = took_s * (1 / self._limits.fold_load_ratio - 1)
            await self._sleep(max(rest_s, self._limits.fold_interval_s - took_s))

    def counting(self) -> Counting:
        """Return empty counts, which the first fold fills from the store."""
        return Counting(curves_max=self._limits.fold_curves_max)

    async def fold_changes(self, held: HeldLease, counting: Counting) -> int:
        """Count new changes and store the counts; return the number of changes. After an error, drop `counting`.

        Raises:
            LeaseLostError: another process folds now.
            StoreBusyError: the store failed.
        """
        started = self._monotonic()
        now_us = self._now_us()  # read before the snapshot, so that all changes acknowledged before it are counted
        found = await self._read(counting)
        if found.lost and counting.known.version:
            # With version 0, the next read lists all curves. Some of them can still be counted, from their fits on.
            log.warning("live_counts_lost", changes=found.rows)
            counting.known.version = 0
            found = await self._read(counting)
        was_busy = counting.busy
        counts = await asyncio.to_thread(counting.count_backlog, found)
        if was_busy or self._must_store(found, counts, now_us):
            version = counts[-1].version if counts else found.before.version if found.before else 0
            folded = FoldState(found.mark, now_us, version)
            await self._store.write(lambda: self._stored(held, folded, counts))
            await self._book.poll_live()
        self._observer.folded(changes=found.rows, void=counting.void, seconds=self._monotonic() - started)
        return found.rows

    async def _read(self, counting: Counting) -> FoldBacklog:
        return await self._store.read(lambda: read_fold_backlog(counting.known, self._limits))

    @staticmethod
    def _must_store(found: FoldBacklog, counts: list[StoredCounts], now_us: int) -> bool:
        """Return whether the mark has to be stored. In an idle store, store it only every `IDLE_US`."""
        if found.before is None or counts or found.rows or found.others:
            return True
        return now_us - found.before.as_of_us >= IDLE_US

    def _stored(self, held: HeldLease, folded: FoldState, counts: list[StoredCounts]) -> Program[None]:
        yield from held.renew()
        yield from store_folded(folded, counts)

"""Folds the change log: adds logged changes to the live counts of curves, so that clients see a change within 2 s.

    claim ──> read new changes in one snapshot ──> count ──> store counts and log position together ──> pause ──> …

Live counts say how the number of entries at each knot and in each gap has changed since a curve was fitted. Each
partition has its own log, counts and mark, which is the first log position that is not counted yet. One process at a
time folds a partition, and stores counts only if it holds the lease. Counts and mark are stored together, so that the
next process neither skips a change nor counts one twice.

The counts in the memory of the folding process (`Counting`) are only a copy of the stored counts. After any error the
whole copy is dropped, and the stored counts are read again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from predictor import AsOf, Curve, CurveCorruptError, KnotsInvalidError, LiveCounts, LiveCurve, Move, decode_curve
from storage.curves.folding import FoldBacklog, KnownCurves, read_fold_backlog
from storage.curves.live_counts import FoldState, Slot, StoredCounts, store_folded
from storage.curves.stored_curves import ListedCurve
from storage.leaves.totals import CHANGES
from storage.log.cells import CellSpan, RankedCells
from storage.log.change_log import date_snapshot

log = structlog.get_logger(__name__)

RESOURCE = "fold"
IDLE_US = 10_000_000  # if nothing changes, the mark is stored again only when it is this old


def list_moves(rows: Iterable[tuple[str, str]], place: CellSpan) -> Iterator[Move]:
    """Yield (key before, key after) for each logged (row before, row after) whose values in one column differ.

    A key is a value in the column, negated if high values are better, so that a smaller key is better, as in the curve.
    The key is None if the entry had no value before, or has none afterwards.
    """
    start, end, absent = place.start, place.start + place.width, ("", place.absent)
    sign = -1 if place.high else 1
    for before, after in rows:
        left, came = before[start:end], after[start:end]
        if left != came:
            yield None if left in absent else sign * int(left), None if came in absent else sign * int(came)


@dataclass(slots=True)
class TrackedCurve:
    fit: ListedCurve
    curve: Curve
    counts: LiveCounts


class Counting:
    """Keeps the live counts of a partition's curves in memory. `count_backlog` adds newly logged changes."""

    def __init__(self, partition: int, *, curves_max: int) -> None:
        self._partition, self._curves_max = partition, curves_max
        self._held: OrderedDict[Slot, TrackedCurve] = OrderedDict()
        self.known = KnownCurves(held=self._held.keys())
        self.void = 0  # number of curves that lost their live counts with the last backlog
        self.busy = False  # whether the last backlog had changes

    def count_backlog(self, found: FoldBacklog) -> list[StoredCounts]:
        """Count a backlog and return the counts to store, which are empty for a curve that can't be kept live."""
        written: list[StoredCounts] = []
        begun = self._learn(found)
        gone = [fit for fit in found.fits if fit.slot in found.void]
        changed = {(key, index) for key in found.changes for index in self.known.fits.get(key, {})}
        for slot in sorted(changed | begun):
            tracked = self._track(slot, found, is_new=slot in begun)
            if tracked is None:
                self._forget(slot)
                continue
            try:
                if self._counted(tracked, found) or slot in begun:
                    LiveCurve(tracked.curve, tracked.counts, as_of=AsOf(0))  # raises if counts and curve don't match
                    fit, number = tracked.fit, found.version + len(written) + 1
                    document, changes = tracked.counts.encode(), found.totals[slot[0]].get(CHANGES, 0)
                    written.append(StoredCounts(*slot, fit.epoch, fit.version, number, document, changes))
            except KnotsInvalidError as error:
                log.error("live_counts_void", leaf_key=slot[0], column_index=slot[1], detail=str(error))
                gone.append(tracked.fit)
        for number, fit in enumerate(gone, found.version + len(written) + 1):
            self._forget(fit.slot)
            written.append(StoredCounts(*fit.slot, fit.epoch, fit.version, number, b"", 0))
        self.void, self.busy = len(gone), found.changed
        return written

    def _learn(self, found: FoldBacklog) -> set[Slot]:
        """Remember a backlog's new curves, and return (leaf key, column index) for those whose counting begins now."""
        if found.lost:
            self._held.clear()
            self.known.fits.clear()  # this backlog lists all curves again
        begun = set()
        for fit in found.fits:
            slot = fit.slot
            self.known.version = max(self.known.version, fit.version)
            self._held.pop(slot, None)
            fits = self.known.fits.setdefault(fit.leaf_key, {})
            fits.pop(fit.column_index, None)
            if slot not in found.void:
                fits[fit.column_index] = fit
            if slot in found.replays:
                begun.add(slot)
        return begun

    def _track(self, slot: Slot, found: FoldBacklog, *, is_new: bool) -> TrackedCurve | None:
        """Look up a curve and its live counts, in memory or the backlog, or return None if it can't be counted."""
        fit, leaf = self.known.fits[slot[0]][slot[1]], found.leaves.get(slot[0])
        if leaf is None or leaf.epoch != fit.epoch or leaf.partition != self._partition:
            return None  # the leaf was deleted, emptied or moved, so its earlier changes do not count
        tracked = self._held.pop(slot, None) or _read_curve(fit, found, is_new=is_new)
        if tracked is not None:
            self._held[slot] = tracked
            while len(self._held) > self._curves_max:
                self._held.popitem(last=False)
        return tracked

    def _forget(self, slot: Slot) -> None:
        self._held.pop(slot, None)
        self.known.fits[slot[0]].pop(slot[1], None)

    @staticmethod
    def _counted(tracked: TrackedCurve, found: FoldBacklog) -> bool:
        slot = tracked.fit.slot
        leaf = found.leaves[slot[0]]
        rows = found.replays.get(slot)
        if rows is None:
            rows = found.changes.get(slot[0], [])
        return tracked.counts.count_moves(list_moves(rows, RankedCells(leaf.spec).find_span(slot[1]))) > 0


def _read_curve(fit: ListedCurve, found: FoldBacklog, *, is_new: bool) -> TrackedCurve | None:
    document, stored = found.curves.get(fit.version), None if is_new else found.counts.get(fit.slot)
    if document is None or not (is_new or (stored is not None and stored.curve_version == fit.version)):
        return None  # the curve has been replaced; the next backlog has the new curve
    try:
        curve = decode_curve(document)
        counts = LiveCounts(curve) if stored is None else LiveCounts.decode(stored.document, curve)
    except CurveCorruptError as error:
        log.warning("live_counts_unreadable", leaf_key=fit.leaf_key, column_index=fit.column_index, detail=str(error))
        return None
    return TrackedCurve(fit, curve, counts)


class FoldJob:
    """Counts a partition's logged changes while this process has the lease. Every job process runs `run_forever`."""

    def __init__(self, context: JobContext, partition: int) -> None:
        self._partition, self._store = partition, context.store.at(partition)
        self._book, self._ownership = context.book, Ownership(context)
        self._limits, self._meter = context.limits, context.meter
        self._now_us, self._sleep = context.now_us, context.make_sleep(RESOURCE)
        self._counting: Counting | None = None

    async def run_forever(self) -> None:
        await self._ownership.run_steps(
            RESOURCE,
            self._fold,
            interval_s=self._limits.fold_interval_s,
            load_ratio=self._limits.fold_load_ratio,
            sleep=self._sleep,
            partition=self._partition,
            ended=self._forget_counts,
        )

    async def _fold(self, held: HeldLease) -> bool:
        counting, self._counting = self._counting or self.counting(), None
        await self.fold_changes(held, counting)
        self._counting = counting  # not after an error: then it is unknown whether the counts were stored
        return False

    def _forget_counts(self) -> None:
        self._counting = None

    def counting(self) -> Counting:
        """Create a `Counting` that knows no curves yet. The first fold fills it from the store."""
        return Counting(self._partition, curves_max=self._limits.fold_curves_max)

    async def fold_changes(self, held: HeldLease, counting: Counting) -> int:
        """Count new changes, store the counts, and return the number of changes. An error leaves `counting` unusable.

        Raises:
            LeaseLostError: another process folds now.
            StoreBusyError: the store failed.
        """
        asked_us = self._now_us()
        found = await self._read(counting)
        if found.lost and counting.known.version:
            # With version 0, all curves are read. A curve stays live if the log still has all changes since its fit.
            log.warning("live_counts_lost", partition=self._partition, changes=found.rows)
            counting.known.version = 0
            found = await self._read(counting)
        was_busy, before = counting.busy, found.before
        counts = await asyncio.to_thread(counting.count_backlog, found)
        as_of_us = date_snapshot(found.changed_us, asked_us, self._now_us)
        has_news = was_busy or counts or found.changed
        if has_news or before is None or as_of_us - before.as_of_us >= IDLE_US:
            version = counts[-1].version if counts else found.version
            folded = FoldState(found.mark, as_of_us, version)
            await self._store.write(lambda: held.renew_and(store_folded(folded, counts)))
            await self._book.poll(self._partition)
        self._meter.add("rankcurve_changes_folded", found.rows)
        self._meter.add("rankcurve_live_counts_void", counting.void)
        return found.rows

    async def _read(self, counting: Counting) -> FoldBacklog:
        return await self._store.read(lambda: read_fold_backlog(counting.known, self._limits))

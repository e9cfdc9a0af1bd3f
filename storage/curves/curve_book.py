"""Keeps the curves that a process serves up to date: a job stores a curve, and every process loads it.

    poll ─┬─> the table's list of newer versions ──> contents from memcached, else from the table ──> served
          └─> newer live counts and their mark, from the same snapshot ──> the same curves, kept live

Each partition of the store has its own tables, versions and marks, so a process polls each partition separately.
Corrupt curves and corrupt live counts are ignored, and each is reported to the meter.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from predictor import AsOf, Curve, CurveCorruptError, KnotsInvalidError, LiveCounts, LiveCurve, decode_curve
from storage.meter import NO_METER, Meter
from storage.store import Store

from .live_counts import FoldState, Slot, StoredCounts
from .served_curves import ServedCurve, ServedCurves
from .shared_curves import SharedCurves
from .stored_curves import ListedCurve, read_documents, read_news

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Polled:
    """The versions up to which this process has read the curves and the live counts of one partition."""

    partition: int
    store: Store
    version: int = 0  # the version of the newest curve that was read
    live_version: int = 0  # the version of the newest live counts that were read
    as_of: AsOf = field(default_factory=lambda: AsOf(0))  # of the last fold; all live curves of the partition share it
    polling: asyncio.Lock = field(default_factory=asyncio.Lock)


class CurveBook(ServedCurves):
    def __init__(
        self, store: Store, shared: SharedCurves | None, *, poll_rows_max: int, meter: Meter = NO_METER
    ) -> None:
        super().__init__()
        self._store, self._shared, self._poll_rows_max, self._meter = store, shared, poll_rows_max, meter
        self._polled: dict[int, _Polled] = {}  # by partition

    async def share_curve(self, served: ServedCurve) -> None:
        """Put a copy of a stored curve into memcached for other processes."""
        if self._shared is not None:
            listed = ListedCurve(*served.slot, served.epoch, served.version, served.fit.as_of_us)
            await self._shared.store_curve(listed, served.fit)

    async def poll(self, partition: int | None = None) -> int:
        """Load curves and live counts stored since the last poll, in one partition or all. Return how many curves."""
        taken = 0
        for each in range(self._store.partitions) if partition is None else [partition]:
            if each not in self._polled:
                self._polled[each] = _Polled(each, self._store.at(each))
            polled = self._polled[each]
            async with polled.polling:
                taken += await self._poll(polled)
        return taken

    async def _poll(self, polled: _Polled) -> int:
        taken, rows_max = 0, self._poll_rows_max
        while True:
            with self.remember_forgotten():
                found = await polled.store.read(partial(read_news, polled.version, polled.live_version, rows_max))
                taken += await self._take_curves(polled, found.curves)
            if len(found.curves) < rows_max:
                break
        if found.folded is not None:
            await self._take_counts(polled, found.folded, found.counts)
        return taken

    async def _take_curves(self, polled: _Polled, listed: Sequence[ListedCurve]) -> int:
        """Load and serve the listed curves that are newer than the served ones. Return how many were loaded."""
        wanted = [one for one in listed if self.is_newer(one.slot, polled.partition, one.version)]
        before = {one.slot: self.find_fitted(one.slot) for one in wanted}
        curves = await self._read_contents(wanted, polled.store) if wanted else {}
        for one, curve in curves.items():
            current = self.find_fitted(one.slot)
            # If the board moved while this curve was read, a curve from the new partition is already served: keep it.
            if current is None or current is before[one.slot] or current.partition == polled.partition:
                marks = one.mark, one.changes
                read = ServedCurve(*one.slot, one.epoch, one.version, curve, *marks, partition=polled.partition)
                self.serve_curve(read)
        if listed:
            polled.version = max(polled.version, listed[-1].version)
        return len(curves)

    async def _read_contents(self, wanted: Sequence[ListedCurve], store: Store) -> Mapping[ListedCurve, Curve]:
        found = {} if self._shared is None else await self._shared.find_curves(wanted)
        missing = [one for one in wanted if one not in found]
        if not missing:
            return found
        documents = await store.read(lambda: read_documents([one.version for one in missing]))
        decoded = await asyncio.to_thread(_decode_all, missing, documents)  # decoding takes long
        for one, curve in decoded.items():
            if curve is None:
                self._report_corrupt("curve_corrupt", one.slot)
            else:
                found[one] = curve
        return found

    def _report_corrupt(self, event: str, slot: Slot) -> None:
        self._meter.add("rankcurve_curves_corrupt")
        log.warning(event, leaf_key=slot[0], column_index=slot[1])

    async def _take_counts(self, polled: _Polled, now: FoldState, counts: Sequence[StoredCounts]) -> None:
        """Serve live curves with these counts. Give all live curves the time and the mark of the last fold."""
        if now.version < polled.live_version:  # the store was restored from a backup
            self._stop_live_curves(polled.partition)
        fits = {one.slot: found for one in counts if (found := self._find_fit(polled, one)) is not None}
        built = await asyncio.to_thread(_build_all, counts, fits, polled.as_of) if counts else {}
        # A reader on another thread must not see a curve with the time or the mark of the new state.
        for one in counts:
            if self._find_fit(polled, one) is not None:
                self.freeze_curve(one.slot)
        polled.as_of.us, polled.as_of.mark, polled.live_version = now.as_of_us, now.mark, now.version
        for one in counts:
            fit = fits.get(one.slot)
            if fit is not None and fit is self._find_fit(polled, one):  # else, it was replaced meanwhile
                self._take_over(fit, one, built.get(one.slot))
        self._sums.clear()

    def _stop_live_curves(self, partition: int) -> None:
        for each in self.list_served():
            if each.partition == partition and each.fitted is not None:
                self.replace_curve(each.fitted)

    def _take_over(self, fit: ServedCurve, counts: StoredCounts, live: LiveCurve | None) -> None:
        if (fit.version, fit.epoch) != (counts.curve_version, counts.epoch):
            return  # the counts belong to another curve
        if live is not None:
            news = {"live_version": counts.version, "changes": counts.changes}
            self.replace_curve(replace(fit, curve=live, fitted=fit, **news))
            return
        if counts.document:
            self._report_corrupt("live_counts_corrupt", counts.slot)
        self.replace_curve(fit)

    def _find_fit(self, polled: _Polled, counts: StoredCounts) -> ServedCurve | None:
        found = self.find_fitted(counts.slot)
        return found if found is not None and found.partition == polled.partition else None


def _decode_all(missing: Sequence[ListedCurve], documents: Mapping[int, bytes]) -> dict[ListedCurve, Curve | None]:
    """Decode curves. A corrupt curve becomes None. Leave out curves without a document: newer ones replaced them."""
    decoded: dict[ListedCurve, Curve | None] = {}
    for one in missing:
        if one.version in documents:
            try:
                decoded[one] = decode_curve(documents[one.version])
            except CurveCorruptError:
                decoded[one] = None
    return decoded


def _build_all(counts: Sequence[StoredCounts], fits: Mapping[Slot, ServedCurve], as_of: AsOf) -> dict[Slot, LiveCurve]:
    """Build live curves from `counts` and their `fits`. Leave out counts that are empty, corrupt or of another fit."""
    built: dict[Slot, LiveCurve] = {}
    for one in counts:
        if one.document and one.slot in fits:
            fit = fits[one.slot].fit
            with suppress(CurveCorruptError, KnotsInvalidError):
                built[one.slot] = LiveCurve(fit, LiveCounts.decode(one.document, fit), as_of=as_of, version=one.version)
    return built

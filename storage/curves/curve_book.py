"""Keeps the curves from which a process reads ranks: `ServedCurves` holds them, and `CurveBook` keeps them up to date.

    poll ─┬─> the table's list of newer versions ──> contents from memcached, else from the table ──> served
          └─> newer live counts and their mark, from the same snapshot ──> the same curves, kept live

Each partition of the store has its own tables, versions and marks, so a process polls each partition separately.
Corrupt curves and corrupt live counts are ignored, and each is reported to the meter.

A live curve and its mark change with each fold, because all live curves of a partition share the time and the mark of
the last fold. A live curve is frozen before it is replaced, so that a reader that still holds it sees a time and a mark
that fit it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from predictor import (
    AnyCurve,
    AsOf,
    Curve,
    CurveCorruptError,
    KnotsInvalidError,
    LiveCounts,
    LiveCurve,
    RankCurve,
    SummedCurve,
    decode_curve,
)
from storage.leaves.exact_ranks import CountStart
from storage.leaves.totals import CHANGES
from storage.meter import NO_METER, Meter
from storage.records import Board, Leaf
from storage.store import Store

from .live_counts import FoldState, Slot, StoredCounts
from .shared_curves import SharedCurves
from .stored_curves import ListedCurve, read_documents, read_news

log = structlog.get_logger(__name__)
STATES_MAX = 16  # how many pairs (time, count of changes) are kept for a curve, see `_states` and `_count_later`


@dataclass(frozen=True, slots=True)
class ServedCurve:
    leaf_key: int
    column_index: int
    epoch: int
    version: int  # greater than the version of every curve that was stored earlier in the partition
    curve: RankCurve
    fit_mark: int | None = None  # the fit counts the changes up to this mark of the log; None: unknown
    changes: int | None = None  # the board's count of changes at the moment of the curve; None: unknown
    live_version: int = 0  # the version of the live counts; 0: the curve is as it was fitted
    fitted: "ServedCurve | None" = None  # the curve without live counts; None: `curve` is not live
    partition: int = field(kw_only=True)  # the board's partition, in which `version` and `mark` are valid

    @property
    def slot(self) -> Slot:
        return self.leaf_key, self.column_index

    @property
    def fit(self) -> Curve:
        return self.curve.fit if isinstance(self.curve, LiveCurve) else self.curve

    @property
    def mark(self) -> int | None:
        """The mark up to which the curve counts changes, which grows with each fold. None means that it is unknown."""
        return self.curve.as_of.mark if isinstance(self.curve, LiveCurve) else self.fit_mark


class ServedCurves:
    def __init__(self) -> None:
        self._served: dict[Slot, ServedCurve] = {}
        # The latest pairs of each curve, the newest last: a time of the curve, and the board's count of changes then.
        self._states: dict[Slot, tuple[tuple[int, int], ...]] = {}
        self._sums: dict[Slot, tuple[Board, SummedCurve]] = {}  # of boards with segments; emptied at each change
        self._expecting = 0
        # Keys of boards that were forgotten while a `remember_forgotten` context is open.
        self._forgotten_meanwhile: set[int] = set()

    def find_served(self, leaf: Leaf, column_index: int) -> ServedCurve | None:
        """Find the column's newest curve of the leaf's current epoch, or return None if this process has none."""
        served = self._served.get((leaf.key, column_index))
        if served is None or served.epoch != leaf.epoch or served.partition != leaf.partition:
            return None
        return served

    def find_curve(self, board: Board, column_index: int) -> AnyCurve | None:
        """Find the column's newest curve of the board's current epoch, or return None if this process has none.

        For a board with segments, return the sum of the segments' curves, or None if a segment has no curve.
        """
        if not board.is_spread:
            served = self.find_served(board.leaf, column_index)
            return None if served is None else served.curve
        known = self._sums.get((board.key, column_index))
        if known is not None and known[0] is board:
            return known[1]
        found = [self.find_served(leaf, column_index) for leaf in board.leaves]
        parts = [served.curve for served in found if served is not None]
        if len(parts) < len(found):
            return None
        summed = SummedCurve(parts, self._count_later(board, column_index, parts))
        self._sums[board.key, column_index] = board, summed
        return summed

    def _count_later(self, board: Board, column_index: int, parts: Sequence[RankCurve]) -> int:
        """Count the changes later than the segments' oldest curve that the other segments' curves may include."""
        times_us = [part.as_of_us for part in parts]
        first_us = min(times_us)
        if max(times_us) == first_us:
            return 0
        later = 0
        for leaf in board.leaves:
            states = self._states[leaf.key, column_index]
            until = next((changes for as_of_us, changes in reversed(states) if as_of_us <= first_us), 0)
            changes = states[-1][1]
            later += changes - until if changes >= until else changes  # if the count fell, the board was emptied
        return later

    def is_current(self, board: Board, column_index: int, curve: AnyCurve, totals: Mapping[int, int]) -> bool:
        """Return whether nothing changed between the curve's moment and the snapshot in which `totals` were read.

        If so, the curve counts the same entries. For a sum, return False, because segments are read at different
        moments.
        """
        served = None if board.is_spread else self.find_served(board.leaf, column_index)
        return served is not None and served.curve is curve and served.changes == totals.get(CHANGES, 0)

    def find_count_start(
        self, board: Board, column_index: int, changes_max: int, asked_us: int, *, as_asked: bool = False
    ) -> CountStart | None:
        """Find the curve of `find_curve` and its mark, from which a count can start at a knot. None: one is unknown.

        `as_asked`: if the board has segments, count them as of `asked_us`.
        """
        starts = list[CountStart]()
        for leaf in board.leaves:
            served = self.find_served(leaf, column_index)
            if served is None or (mark := served.mark) is None:
                return None
            as_asked = as_asked and board.is_spread
            starts.append(CountStart(served.curve, mark, changes_max, asked_us, as_asked=as_asked))
        if not board.is_spread:
            return starts[0]
        curve = SummedCurve([start.curve for start in starts])  # type: ignore[misc]
        return CountStart(curve, 0, changes_max, asked_us, tuple(starts))

    def count_changes(self, board: Board, column_index: int) -> int:
        """Return the board's count of changes at the moment of its curve, or 0 if the curve or the count is unknown."""
        known = [self._states.get((leaf.key, column_index)) for leaf in board.leaves]
        return sum(states[-1][1] for states in known if states)

    def list_served(self) -> list[ServedCurve]:
        return list(self._served.values())

    @contextmanager
    def remember_forgotten(self) -> Iterator[None]:
        """While this context is open, keep track of boards that `forget_board` forgets, and do not serve their curves.

        Open this context before a curve is read or stored, and close it after the curve is served.
        """
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            if not self._expecting:
                self._forgotten_meanwhile.clear()

    def forget_board(self, leaf_key: int) -> None:
        self._sums.clear()
        if self._expecting:
            self._forgotten_meanwhile.add(leaf_key)
        for slot in [slot for slot in self._served if slot[0] == leaf_key]:
            del self._served[slot]
            self._states.pop(slot, None)

    def serve_curve(self, served: ServedCurve) -> None:
        """Serve this curve from now on, unless a newer one is already being served."""
        is_newer = self.is_newer(served.slot, served.partition, served.version)
        if is_newer and served.leaf_key not in self._forgotten_meanwhile:
            self.replace_curve(served)

    def is_newer(self, slot: Slot, partition: int, version: int) -> bool:
        """Return whether a curve that was just read is newer than the served one.

        Versions of two partitions cannot be compared. But if the served curve is from another partition, the board has
        moved, so the curve that was just read is newer.
        """
        current = self._served.get(slot)
        return current is None or current.partition != partition or current.version < version

    def replace_curve(self, served: ServedCurve) -> None:
        self.freeze_curve(served.slot)
        self._served[served.slot] = served
        earlier, changes = self._states.get(served.slot, ()), served.changes or 0
        if not earlier or earlier[-1][1] != changes:
            self._states[served.slot] = *earlier[1 - STATES_MAX :], (served.curve.as_of_us, changes)
        self._sums.clear()

    def freeze_curve(self, slot: Slot) -> None:
        """Freeze a live curve's time and mark, because later folds must not change them."""
        served = self._served.get(slot)
        if served is not None and isinstance(served.curve, LiveCurve):
            served.curve.freeze()

    def find_fitted(self, slot: Slot) -> ServedCurve | None:
        served = self._served.get(slot)
        return None if served is None else served.fitted or served


@dataclass(slots=True)
class _Polled:
    """The versions up to which this process has read one partition's curves and live counts."""

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
        """Serve live curves with these counts, and give all live curves the time and the mark of the last fold."""
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
            if fit is not None and fit is self._find_fit(polled, one):  # else it has been replaced
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
    """Decode curves. A corrupt curve becomes None. Curves without a document are left out: newer ones replaced them."""
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

"""Holds the live counts in the memory of the folding process, and adds each backlog of changes to them.

The counts in memory are only a copy of a table. After any error the whole copy is dropped, and the table is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from predictor import AsOf, Curve, CurveCorruptError, KnotsInvalidError, LiveCounts, LiveCurve, Move, decode_curve
from storage.curves.folding import FoldBacklog, KnownCurves, Slot
from storage.curves.live_counts import StoredCounts, StoredFit
from storage.log.cells import CellSpan, RankedCells

log = structlog.get_logger(__name__)


def list_moves(rows: Iterable[tuple[str, str]], place: CellSpan) -> Iterator[Move]:
    """Yield the moves of one ranked column from logged pairs of (row before, row after), as (key before, key after).

    A key is the value with the sign that makes better values smaller, as in the curve. None means that the entry had no
    value (before an insertion) or has none (after a deletion). Pairs with an unchanged value are skipped.
    """
    start, end, absent = place.start, place.start + place.width, ("", place.absent)
    sign = -1 if place.high else 1
    for before, after in rows:
        left, came = before[start:end], after[start:end]
        if left != came:
            yield None if left in absent else sign * int(left), None if came in absent else sign * int(came)


@dataclass(slots=True)
class TrackedCurve:
    fit: StoredFit
    curve: Curve
    counts: LiveCounts

    def encode_counts(self, version: int) -> StoredCounts:
        """Return the counts in their stored form; raise `KnotsInvalidError` if they cannot belong to the curve."""
        LiveCurve(self.curve, self.counts, as_of=AsOf(0))
        fit = self.fit
        return StoredCounts(fit.board_key, fit.column_index, fit.epoch, fit.version, version, self.counts.encode())


class Counting:
    """The curves whose live counts this process keeps. Call `count_backlog` for each backlog that was read."""

    def __init__(self, *, curves_max: int) -> None:
        self._curves_max = curves_max
        self._held: OrderedDict[Slot, TrackedCurve] = OrderedDict()
        self.known = KnownCurves(held=self._held.keys())
        self.void = 0  # number of curves that lost their live counts in the last backlog
        self.busy = False  # whether the last backlog had changes

    def count_backlog(self, found: FoldBacklog) -> list[StoredCounts]:
        """Add a backlog to the live counts; return the counts to store, with empty documents for lost counts."""
        version = 0 if found.before is None else found.before.version
        written: list[StoredCounts] = []
        gone: list[StoredFit] = []
        if found.lost:
            self._held.clear()
            self.known.fits.clear()  # this backlog lists all fits again
        begun = self._learn(found)
        gone += [fit for fit in found.fits if (fit.board_key, fit.column_index) in found.void]
        for slot in self._concerned(found, begun):
            tracked = self._tracked(slot, found, begun)
            if tracked is None:
                continue
            try:
                if self._counted(tracked, found) or slot in begun:
                    written.append(tracked.encode_counts(version + len(written) + 1))
            except KnotsInvalidError as error:
                log.error("live_counts_void", board_key=slot[0], column_index=slot[1], detail=str(error))
                gone.append(tracked.fit)
        for fit in gone:
            slot = fit.board_key, fit.column_index
            self._held.pop(slot, None)
            self.known.fits[slot[0]].pop(slot[1], None)
            number = version + len(written) + 1
            written.append(StoredCounts(*slot, fit.epoch, fit.version, number, b""))
        self.void, self.busy = len(gone), found.rows > 0 or found.others
        while len(self._held) > self._curves_max:
            self._held.popitem(last=False)
        return written

    def _learn(self, found: FoldBacklog) -> set[Slot]:
        """Remember the new curves of a backlog; return those for which counting begins now."""
        begun = set()
        for fit in found.fits:
            slot = fit.board_key, fit.column_index
            self.known.version = max(self.known.version, fit.version)
            self._held.pop(slot, None)
            fits = self.known.fits.setdefault(fit.board_key, {})
            fits.pop(fit.column_index, None)
            if slot not in found.void:
                fits[fit.column_index] = fit
            if slot in found.replays:
                begun.add(slot)
        return begun

    def _concerned(self, found: FoldBacklog, begun: set[Slot]) -> list[Slot]:
        changed = {(key, index) for key in found.changes for index in self.known.fits.get(key, {})}
        return sorted(changed | begun)

    def _tracked(self, slot: Slot, found: FoldBacklog, begun: set[Slot]) -> TrackedCurve | None:
        """Return the curve whose moves are counted, from memory or from the backlog, or None."""
        fit = self.known.fits[slot[0]][slot[1]]
        board = found.boards.get(slot[0])
        if board is None or board.epoch != fit.epoch:
            self._forget(slot)  # the board was deleted or emptied, so its earlier changes do not count
            return None
        held = self._held.get(slot)
        if held is not None:
            self._held.move_to_end(slot)
            return held
        document, stored = found.curves.get(fit.version), found.counts.get(slot)
        if document is None or (slot not in begun and (stored is None or stored.curve_version != fit.version)):
            self._forget(slot)  # the curve was replaced meanwhile; the next backlog has the new curve
            return None
        try:
            curve = decode_curve(document)
            counts = LiveCounts(curve) if stored is None or slot in begun else LiveCounts.decode(stored.document, curve)
        except CurveCorruptError as error:
            log.warning("live_counts_unreadable", board_key=slot[0], column_index=slot[1], detail=str(error))
            self._forget(slot)
            return None
        tracked = self._held[slot] = TrackedCurve(fit, curve, counts)
        return tracked

    def _forget(self, slot: Slot) -> None:
        self._held.pop(slot, None)
        del self.known.fits[slot[0]][slot[1]]

    @staticmethod
    def _counted(tracked: TrackedCurve, found: FoldBacklog) -> bool:
        slot = tracked.fit.board_key, tracked.fit.column_index
        board = found.boards[slot[0]]
        rows = found.replays.get(slot)
        if rows is None:
            rows = found.changes.get(slot[0], [])
        return tracked.counts.count_moves(list_moves(rows, RankedCells(board).find_span(slot[1]))) > 0

"""The live counts that the folding process holds, and one backlog counted into them.

The rule: it is a copy of what the table says, no more: whatever goes wrong, all of it is dropped and read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from predictor import AsOf, Curve, CurveCorrupt, KnotsInvalid, LiveCounts, LiveCurve, Move, decode
from storage.folding import Backlog, Known, Slot
from storage.live_counts import Fit, StoredCounts
from storage.ranked_cells import Place, RankedCells

log = structlog.get_logger(__name__)


def moves_of(rows: Iterable[tuple[str, str]], place: Place) -> Iterator[Move]:
    """What changed in one column from the first of each pair of logged rows to the second, as keys of its curve."""
    start, end, absent = place.start, place.start + place.width, ("", place.absent)
    sign = -1 if place.high else 1
    for before, after in rows:
        left, came = before[start:end], after[start:end]
        if left != came:
            yield None if left in absent else sign * int(left), None if came in absent else sign * int(came)


@dataclass(slots=True)
class Tracked:
    """One curve under counting."""

    fit: Fit
    curve: Curve
    counts: LiveCounts

    def stored(self, version: int) -> StoredCounts:
        """Its document. Raises KnotsInvalid where the counts can't be of the curve."""
        LiveCurve(self.curve, self.counts, as_of=AsOf(0))
        fit = self.fit
        return StoredCounts(fit.board_key, fit.column_index, fit.epoch, fit.version, version, self.counts.encode())


class Counting:
    """The curves under counting; `count` them on."""

    def __init__(self, *, curves_max: int) -> None:
        self._curves_max = curves_max
        self._held: OrderedDict[Slot, Tracked] = OrderedDict()
        self.known = Known(held=self._held.keys())
        self.void = 0  # curves that went without, in the last backlog
        self.busy = False  # there were changes in it

    def count(self, found: Backlog) -> list[StoredCounts]:
        """The documents that a backlog changes; those of curves that go without from now on are empty."""
        version = 0 if found.before is None else found.before.version
        written: list[StoredCounts] = []
        gone: list[Fit] = []
        if found.lost:
            self._held.clear()
            self.known.fits.clear()  # they are listed anew, in the same backlog
        begun = self._learn(found)
        gone += [fit for fit in found.fits if (fit.board_key, fit.column_index) in found.void]
        for slot in self._concerned(found, begun):
            tracked = self._tracked(slot, found, begun)
            if tracked is None:
                continue
            try:
                if self._counted(tracked, found) or slot in begun:
                    written.append(tracked.stored(version + len(written) + 1))
            except KnotsInvalid as error:
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

    def _learn(self, found: Backlog) -> set[Slot]:
        """Take note of new curves; answers those that begin to be counted now."""
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

    def _concerned(self, found: Backlog, begun: set[Slot]) -> list[Slot]:
        changed = {(key, index) for key in found.changes for index in self.known.fits.get(key, {})}
        return sorted(changed | begun)

    def _tracked(self, slot: Slot, found: Backlog, begun: set[Slot]) -> Tracked | None:
        """The curve to count, read or held; None where it is not there any more."""
        fit = self.known.fits[slot[0]][slot[1]]
        board = found.boards.get(slot[0])
        if board is None or board.epoch != fit.epoch:
            self._forget(slot)  # deleted or emptied: its rows of before the end are of no use
            return None
        held = self._held.get(slot)
        if held is not None:
            self._held.move_to_end(slot)
            return held
        document, stored = found.curves.get(fit.version), found.counts.get(slot)
        if document is None or (slot not in begun and (stored is None or stored.curve_version != fit.version)):
            self._forget(slot)  # replaced meanwhile: the next backlog has the new one
            return None
        try:
            curve = decode(document)
            counts = LiveCounts(curve) if stored is None or slot in begun else LiveCounts.decode(stored.document, curve)
        except CurveCorrupt as error:
            log.warning("live_counts_unreadable", board_key=slot[0], column_index=slot[1], detail=str(error))
            self._forget(slot)
            return None
        tracked = self._held[slot] = Tracked(fit, curve, counts)
        return tracked

    def _forget(self, slot: Slot) -> None:
        self._held.pop(slot, None)
        del self.known.fits[slot[0]][slot[1]]

    @staticmethod
    def _counted(tracked: Tracked, found: Backlog) -> bool:
        slot = tracked.fit.board_key, tracked.fit.column_index
        board = found.boards[slot[0]]
        rows = found.replays.get(slot)
        if rows is None:
            rows = found.changes.get(slot[0], [])
        return tracked.counts.move_all(moves_of(rows, RankedCells(board).place(slot[1]))) > 0

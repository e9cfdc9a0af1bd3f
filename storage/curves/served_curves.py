"""The curves from which this process reads ranks, in memory. `CurveBook` keeps them up to date.

A live curve and its mark change with each fold: all live curves of a partition share the time and the mark of its last
fold. Before a live curve is replaced, it is frozen, so that who still reads it sees a time and a mark that fit it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from predictor import AnyCurve, Curve, LiveCurve, RankCurve, SummedCurve
from storage.leaves.exact_ranks import CountStart
from storage.leaves.totals import CHANGES
from storage.records import Board, Leaf

from .live_counts import Slot

STATES_MAX = 16  # how many pairs (time, count of changes) are kept for a curve, see `_states` and `_count_later`


@dataclass(frozen=True, slots=True)
class ServedCurve:
    """A decoded curve that ranks are read from."""

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
        """Return the mark up to which the curve counts changes, which grows with each fold; None: unknown."""
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
        """Return the column's newest curve of the leaf's current epoch, or None if this process has none."""
        served = self._served.get((leaf.key, column_index))
        if served is None or served.epoch != leaf.epoch or served.partition != leaf.partition:
            return None
        return served

    def find_curve(self, board: Board, column_index: int) -> AnyCurve | None:
        """Return the column's newest curve of the board's current epoch, or None if this process has none.

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
        """Find the time of the segments' oldest curve. Return how many later changes the other curves may count."""
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

        If so, the curve counts the same entries. For a sum, return False: segments are read at different moments.
        """
        served = None if board.is_spread else self.find_served(board.leaf, column_index)
        return served is not None and served.curve is curve and served.changes == totals.get(CHANGES, 0)

    def find_count_start(
        self, board: Board, column_index: int, changes_max: int, asked_us: int, *, as_asked: bool = False
    ) -> CountStart | None:
        """Return the curve of `find_curve` with its mark, so that a count can start at a knot. None: one is unknown.

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
        """While this context is open, remember the boards that `forget_board` forgets, and do not serve their curves.

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
        """Serve this curve from now on, unless a newer one is served already."""
        is_newer = self.is_newer(served.slot, served.partition, served.version)
        if is_newer and served.leaf_key not in self._forgotten_meanwhile:
            self.replace_curve(served)

    def is_newer(self, slot: Slot, partition: int, version: int) -> bool:
        """Return whether a curve that was just read is newer than the served one.

        Versions of two partitions can't be compared. But if the served curve is of another partition, the board has
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
        """Let a live curve keep its time and mark, because later folds must not change them."""
        served = self._served.get(slot)
        if served is not None and isinstance(served.curve, LiveCurve):
            served.curve.freeze()

    def find_fitted(self, slot: Slot) -> ServedCurve | None:
        served = self._served.get(slot)
        return None if served is None else served.fitted or served

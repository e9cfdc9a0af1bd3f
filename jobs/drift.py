"""Whether a live curve has drifted so far from its fit that it wants another one.

The rule: what clients count on decides, not the clock: the bound of the error, the width of the brackets, and how many
rows an exact rank counts. Ranks that are always counted are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from predictor import LiveCurve
from storage.curves import CurveBook
from storage.records import Board

GROWTH_MAX = 2  # a bracket or a gap may be so many times as wide as the widest at the fit
GAP_ROWS_MIN = 1_000  # gaps of fewer rows are short, however much they have grown


@dataclass(frozen=True, slots=True)
class DriftLimits:
    """The bounds; each is a setting of the same name."""

    drift_ratio: float  # bound of the relative rank error


class Drifts:
    """Knows the curves that serve in this process."""

    def __init__(self, book: CurveBook, limits: DriftLimits, *, now_us: Callable[[], int]) -> None:
        self._book, self._limits, self._now_us = book, limits, now_us

    def of(self, board: Board, column_index: int, version: int) -> bool | None:
        """Whether the curve of this version has drifted too far; None where it is not live: the clock decides.

        A curve that nobody folds any more is not live either, however near to its fit it was last seen.
        """
        served = self._book.served(board, column_index)
        if served is None or served.version != version or not isinstance(served.curve, LiveCurve):
            return None
        if self._now_us() - served.curve.as_of_us > board.spec.predictor.refresh_seconds * 1e6:
            return None
        if served.curve.moved > max(served.fit.total, GAP_ROWS_MIN):
            return True  # all the ranks that are not counted may be few
        from_rank = board.spec.predictor.exact_top + 1
        fit, now = served.fit.drift(from_rank), served.curve.drift(from_rank)
        target = self._limits.drift_ratio
        if served.fit.errors is not None and now.bound > max(target, fit.bound * GROWTH_MAX):
            return True
        if now.bracket > GROWTH_MAX * max(fit.bracket, target):
            return True
        return now.gap_rows > GROWTH_MAX * max(fit.gap_rows, GAP_ROWS_MIN)

"""Decides whether a live curve has drifted so far from its fit that it needs a new one.

The rule: what clients rely on decides, not the clock. That is the bound of the error, the width of the brackets, and
the number of rows that an exact rank counts. Ranks that are always counted (`exact_top`) are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from predictor import LiveCurve
from storage.curves.stored_curves import CurveBook
from storage.records import Board

GROWTH_MAX = 2  # a bracket or a gap may be this many times as wide as the widest one at the fit
GAP_ROWS_MIN = 1_000  # gaps of fewer rows are short enough, however much they have grown


@dataclass(frozen=True, slots=True)
class DriftLimits:
    """The bound of drift; a setting of the same name."""

    drift_ratio: float  # bound of the relative rank error


class DriftRule:
    """Judges the live curves that serve in this process."""

    def __init__(self, book: CurveBook, limits: DriftLimits, *, now_us: Callable[[], int]) -> None:
        self._book, self._limits, self._now_us = book, limits, now_us

    def has_drifted(self, board: Board, column_index: int, version: int) -> bool | None:
        """Return whether the curve of this version has drifted too far; None if it is not live, so the clock decides.

        A curve whose live counts are older than its refresh interval is not live either, however little it drifted.
        """
        served = self._book.find_served(board, column_index)
        if served is None or served.version != version or not isinstance(served.curve, LiveCurve):
            return None
        if self._now_us() - served.curve.as_of_us > board.spec.predictor.refresh_seconds * 1e6:
            return None
        if served.curve.moved > max(served.fit.total, GAP_ROWS_MIN):
            return True  # more changes than entries: the ranks that are not always counted may be few now
        from_rank = board.spec.predictor.exact_top + 1
        fit, now = served.fit.estimate_drift(from_rank), served.curve.estimate_drift(from_rank)
        target = self._limits.drift_ratio
        if served.fit.errors is not None and now.bound > max(target, fit.bound * GROWTH_MAX):
            return True
        if now.bracket > GROWTH_MAX * max(fit.bracket, target):
            return True
        return now.gap_rows > GROWTH_MAX * max(fit.gap_rows, GAP_ROWS_MIN)

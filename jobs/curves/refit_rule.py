"""Decides whether a live curve has drifted so far from its fit that a new curve is needed.

Clients rely on the error bound, on the width of the brackets, and on how many rows the service counts to find an exact
rank. So these figures decide, and not the age of the curve. The ranks up to `exact_top` are always counted, so they do
not matter.
"""

from __future__ import annotations

from collections.abc import Callable

from config.settings import JobSettings
from predictor import LiveCurve
from storage.curves.stored_curves import CurveBook
from storage.records import Board

GROWTH_MAX = 2  # the largest bracket, gap and error bound may become this many times as large as at the fit
GAP_ROWS_MIN = 1_000  # the largest gap at the fit counts as having at least this many rows, so short gaps may grow


class DriftRule:
    """Decides which live curves of this process have drifted too far."""

    def __init__(self, book: CurveBook, limits: JobSettings, *, now_us: Callable[[], int]) -> None:
        self._book, self._limits, self._now_us = book, limits, now_us

    def has_drifted(self, board: Board, column_index: int, version: int) -> bool | None:
        """Return whether the curve of this version has drifted too far, or None if its age decides.

        The age decides if the curve is not live, or if its live counts are older than its refresh interval.
        """
        served = self._book.find_served(board, column_index)
        if served is None or served.version != version or not isinstance(served.curve, LiveCurve):
            return None
        if self._now_us() - served.curve.as_of_us > board.spec.predictor.refresh_seconds * 1e6:
            return None
        if served.curve.moved > max(served.fit.total, GAP_ROWS_MIN):
            return True  # more moves than entries: perhaps few ranks beyond `exact_top` are left for the checks below
        from_rank = board.spec.predictor.exact_top + 1
        fit, now = served.fit.estimate_drift(from_rank), served.curve.estimate_drift(from_rank)
        target = self._limits.drift_ratio
        if served.fit.errors is not None and now.bound > max(target, fit.bound * GROWTH_MAX):
            return True
        if now.bracket > GROWTH_MAX * max(fit.bracket, target):
            return True
        return now.gap_rows > GROWTH_MAX * max(fit.gap_rows, GAP_ROWS_MIN)

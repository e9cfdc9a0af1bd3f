"""Measure the worst error of certified curves of eight boards, with 1,000 and 300 knots.

    python -m benchmarks.curve_accuracy [DATA]

The curve is asked for the rank of every value and of the next lattice point after each value. Each rank is compared
with the true rank, which this program counts. The certificate of the curve is checked, too, not trusted. Each fit
is made three times and its lowest time is used, so that other work of the machine matters less.

Bars: `_BARS` limits the worst relative error of each board. With 1,000 knots a bracket is at most 5 % wide, or one tie
step. Every rank is a whole number, lies within its bracket and its certificate, and is not less than the previous rank.
The certificate of the sum of four segments of a real board, with 1,000 knots each, is at most 0.16 %.
A fit takes at most 0.5 s for 343,000 rows and 1 s for 1,000,000.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.boards import owner_at
from benchmarks.curve_boards import (
    GAP_ROWS_MAX,
    REAL_BOARDS,
    CurveBoard,
    count_entries_by_key,
    fit_certified,
    make_boards,
    read_boards,
    tally_keys,
)
from benchmarks.options import Options
from predictor import Curve, SummedCurve
from predictor.fit import fit_curve
from storage.records import segment_of

_SAMPLES = (1_000, 300)
# The largest relative error allowed, in percent, by board: with 1,000 knots and with 300 knots.
_BARS = {
    "uniform 10,000": (0.08, 0.30),
    "lognormal 343,000": (0.18, 0.75),
    "normal 1,000,000": (0.02, 0.12),
    "pareto 1,000,000": (0.15, 0.70),
    "runs 100,000": (0.20, 0.90),
    "boston2014_centimin": (0.12, 0.65),
    "bgg_rated_2020-11-13": (0.14, 0.65),
    "atp_20241230": (0.0, 0.30),
}
_BUILD_BARS_S = {343_000: 0.5, 1_000_000: 1.0}
_SEGMENTS = 4
_SUM_BAR = 0.16  # percent: the largest certificate of a sum, for real boards with 1,000 knots per segment
_WIDEST = 0.05  # the bar of `Checked.widest`, for curves with 1,000 knots
_FITS = 3
_ANY_ROWS = 1 << 62


@dataclass(frozen=True, slots=True)
class Checked:
    knots: int
    worst: float
    mean: float  # the mean relative error over all entries
    widest: float  # the largest (high - low) / low of a gap that has at least two values inside
    # How often a rank broke a rule: its bracket, the order, whole numbers, the range of ranks, or the certificate.
    violations: int
    queries: int
    build_s: float


def check_curve(board: CurveBoard, samples: int, gap_rows_max: int) -> Checked:
    """Fit a curve, and compare its rank for every value of the board with the true rank."""
    build_s = inf
    counts = count_entries_by_key(board.keys)
    tally = tally_keys(board.keys)
    for _ in range(_FITS):
        begun = time.perf_counter()
        curve = fit_curve(tally, knots_max=samples, gap_rows_max=gap_rows_max, as_of_us=0)
        build_s = min(build_s, time.perf_counter() - begun)
    worst = error_sum = 0.0
    violations, before, rank = 0, 1, 1
    for key, entries in counts:
        for at_key, true_rank in ((key, rank), (key + curve.step, rank + entries)):
            bracket = curve.locate(at_key)
            error = abs(bracket.rank - true_rank) / true_rank
            worst = max(worst, error)
            if at_key == key:
                error_sum += error * entries
            violations += not bracket.low <= true_rank <= bracket.high
            violations += type(bracket.rank) is not int or not before <= bracket.rank <= tally.total + 1
            violations += error > (curve.certificate or 0.0)
            before = bracket.rank
        rank += entries
    widths = [(high - low) / low for low, high, inside in _gaps(curve, [key for key, _ in counts]) if inside > 1]
    mean = error_sum / tally.total
    return Checked(len(curve.knots), worst, mean, max(widths, default=0.0), violations, 2 * len(counts), build_s)


def _gaps(curve: Curve, keys: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the (first rank, last rank, number of distinct values inside) of each gap between two knots."""
    at = [bisect_left(keys, knot.key) for knot in curve.knots]
    for index in range(len(curve.knots) - 1):
        before, after = curve.knots[index], curve.knots[index + 1]
        yield 1 + before.better_count + before.ties, 1 + after.better_count, at[index + 1] - at[index] - 1


def check_sum(board: CurveBoard) -> tuple[float, float, int]:
    """Fit a curve to each of `_SEGMENTS` segments, and ask the sum of these curves for the rank of every value.

    Return the worst relative error, the certificate, and the number of ranks outside their bracket or certificate.
    """
    numbers = np.array([segment_of(owner_at(index), _SEGMENTS) for index in range(len(board.keys))])
    parts = [board.keys[numbers == number] for number in range(_SEGMENTS)]
    curve = SummedCurve([fit_certified(keys, _SAMPLES[0]) for keys in parts])
    certificate = curve.certificate or 0.0
    worst, violations, rank = 0.0, 0, 1
    for key, entries in count_entries_by_key(board.keys):
        bracket = curve.locate(key)
        error = abs(bracket.rank - rank) / rank
        worst = max(worst, error)
        violations += not bracket.low <= rank <= bracket.high
        violations += error > certificate * (1 + 1e-9)
        rank += entries
    return worst, certificate, violations


def measure(options: Options, folder: Path) -> list[report.Bar]:
    boards = make_boards() + ([] if options.data is None else read_boards(options.data))
    fit_certified(boards[0].keys, 10)  # this call imports numpy, so that no timed fit includes the import
    bars: list[report.Bar] = []
    rows: list[tuple[str | float, ...]] = []
    queries = violations = 0
    for board in boards:
        for samples, bar in zip(_SAMPLES, _BARS[board.name], strict=True):
            for gap_rows_max in (_ANY_ROWS, GAP_ROWS_MAX):
                found = check_curve(board, samples, gap_rows_max)
                name = f"{board.name}, K = {samples:,}" + (", gaps capped" if gap_rows_max == GAP_ROWS_MAX else "")
                figures = 100 * found.worst, bar, 100 * found.mean, found.knots, 100 * found.widest
                rows.append((name, *figures, found.build_s))
                bars += _bars(name, found, bar, samples, len(board.keys), gap_rows_max)
                queries += found.queries
                violations += found.violations
    report.print_table(("board", "worst %", "bar %", "mean %", "knots", "widest bracket %", "fit s"), rows)
    sums = {board.name: check_sum(board) for board in boards if board.name in REAL_BOARDS}
    for name, (worst, certificate, broken) in sums.items():
        summed = f"{name}, sum of {_SEGMENTS} segments"
        bars.append(report.Bar(f"{summed}: certificate", 100 * certificate, _SUM_BAR, " %", at_most=True))
        bars.append(report.Bar(f"{summed}: worst relative error", 100 * worst, _SUM_BAR, " %", at_most=True))
        violations += broken
    return [*bars, report.Bar(f"violations in {queries:,} queries", violations, 0, at_most=True)]


def _bars(name: str, found: Checked, bar: float, samples: int, entries: int, gap_rows_max: int) -> Iterator[report.Bar]:
    yield report.Bar(f"{name}: worst relative error", 100 * found.worst, bar, " %", at_most=True)
    yield report.Bar(f"{name}: knots", found.knots, samples + entries // gap_rows_max, at_most=True)
    if samples == _SAMPLES[0]:
        yield report.Bar(f"{name}: widest bracket", 100 * found.widest, 100 * _WIDEST, " %", at_most=True)
        if entries in _BUILD_BARS_S:
            yield report.Bar(f"{name}: fit", found.build_s, _BUILD_BARS_S[entries], " s", at_most=True)


if __name__ == "__main__":
    report.run_program(measure, __doc__, "accuracy of certified curves, with K knots")

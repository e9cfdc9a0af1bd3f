"""How far off certified curves are at worst: eight boards, 1,000 and 300 knots, every value and the point past it.

Rule kept: nothing is taken from the curve's own certificate: every value and the first lattice point past it is asked
for and compared with the rank counted here, and the certificate is one of the things that are checked. A fit's time is
the lowest of three: what others did on the machine meanwhile is no part of it.
"""

from __future__ import annotations

import sys
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.boards import REAL_BOARDS, real_board
from benchmarks.options import Options, parse
from predictor import Curve, Tally
from predictor.fit import fit

_SAMPLES = (1_000, 300)
# Percent, by board: with 1,000 knots and with 300.
_BARS = {
    "uniform": (0.08, 0.30),
    "lognormal": (0.18, 0.75),
    "normal": (0.02, 0.12),
    "pareto": (0.15, 0.70),
    "runs": (0.20, 0.90),
    "boston2014_centimin": (0.12, 0.65),
    "bgg_rated_2020-11-13": (0.14, 0.65),
    "atp_20241230": (0.0, 0.30),
}
_BUILD_BARS_S = {343_000: 0.5, 1_000_000: 1.0}
_WIDEST = 0.05  # a bracket's width at 1,000 knots, as a share of the rank, unless it is one tie step
_FITS = 3
_GAP_ROWS_MAX = 10_000  # the service's default
_ANY_ROWS = 1 << 62


@dataclass(frozen=True, slots=True)
class Board:
    """Distinct keys, ascending, smaller is better, and how many entries hold each."""

    name: str
    keys: Any
    counts: Any

    @property
    def better_counts(self) -> Any:
        return np.cumsum(self.counts) - self.counts

    def tally(self) -> Tally:
        """What a scan would have read."""
        low = array("q", (self.keys - self.keys[0]).astype(np.int64).tobytes())
        better_counts = array("q", self.better_counts.astype(np.int64).tobytes())
        return Tally(
            int(self.keys[0]), memoryview(low), None, memoryview(better_counts), int(self.counts.sum()), lambda: None
        )


def board_of(name: str, values: Any, *, best: str) -> Board:
    keys, counts = np.unique(values if best == "low" else -values, return_counts=True)
    return Board(name, keys, counts)


def made_up() -> Iterator[Board]:
    """The boards that need no files, each from a generator of its own."""
    drawn = {
        "uniform": lambda rng: rng.integers(0, 10_000, 10_000),
        "lognormal": lambda rng: rng.lognormal(10, 1.5, 343_000).round(),
        "normal": lambda rng: rng.normal(1500, 300, 1_000_000).round(),
        "pareto": lambda rng: (rng.pareto(1.2, 1_000_000) * 10).round(),
        "runs": _runs,
    }
    for name, draw in drawn.items():
        yield board_of(name, draw(np.random.default_rng(11)).astype(np.int64), best="high")


def _runs(rng: Any) -> Any:
    """100,000 distinct values; gaps are 1, then lognormal(3, 3) + 1, in turn over runs of random length 1 to 400."""
    gaps: list[int] = []
    ones = True
    while len(gaps) < 100_000:
        length = int(rng.integers(1, 401))
        gaps += [1] * length if ones else [int(gap) + 1 for gap in rng.lognormal(3, 3, length).round()]
        ones = not ones
    return np.cumsum(np.array(gaps[:100_000]))


@dataclass(frozen=True, slots=True)
class Checked:
    """One curve against the truth."""

    knots: int
    worst: float
    mean: float  # over entries
    widest: float  # of brackets wider than one tie step
    violations: int  # of brackets, monotonicity, integrality and range, and of the certificate
    queries: int
    build_s: float
    shape: str


def check(board: Board, samples: int, gap_rows_max: int) -> Checked:
    """Fit, and ask for everything."""
    tally = board.tally()
    build_s = float("inf")
    for _ in range(_FITS):
        begun = time.perf_counter()
        curve = fit(tally, knots_max=samples, gap_rows_max=gap_rows_max, as_of_us=0)
        build_s = min(build_s, time.perf_counter() - begun)
    worst = error_sum = widest = 0.0
    violations = queries = 0
    before = 1
    ranks = [*(board.better_counts + 1).tolist(), tally.total + 1]
    certificate = curve.certificate or 0.0
    for index, key in enumerate(board.keys.tolist()):
        for at_key, rank in ((key, ranks[index]), (key + curve.step, ranks[index + 1])):
            bracket = curve.locate(at_key)
            error = abs(bracket.rank - rank) / rank
            worst = max(worst, error)
            if at_key == key:
                error_sum += error * (ranks[index + 1] - rank)
            violations += not bracket.low <= rank <= bracket.high
            violations += type(bracket.rank) is not int or not before <= bracket.rank <= tally.total + 1
            violations += error > certificate
            before = bracket.rank
            queries += 1
    for low, high, inside in _gaps(curve, board.keys):
        if inside > 1:
            widest = max(widest, (high - low) / low)
    shape = "lines" if curve.shapes is None else "cubics"
    return Checked(len(curve.knots), worst, error_sum / tally.total, widest, violations, queries, build_s, shape)


def _gaps(curve: Curve, keys: Any) -> Iterator[tuple[int, int, int]]:
    """(first rank, last rank, distinct values) of each gap between two knots."""
    found: Sequence[int] = keys.tolist()
    at = [bisect_left(found, knot.key) for knot in curve.knots]
    for index in range(len(curve.knots) - 1):
        before, after = curve.knots[index], curve.knots[index + 1]
        yield 1 + before.better_count + before.ties, 1 + after.better_count, at[index + 1] - at[index] - 1


def measure(options: Options, folder: Path) -> list[report.Bar]:
    boards = list(made_up())
    if options.data is not None:
        for name, best in REAL_BOARDS.items():
            boards.append(board_of(name, np.array(real_board(options.data, name).values, dtype=np.int64), best=best))
    fit(boards[0].tally(), knots_max=10, gap_rows_max=_GAP_ROWS_MAX, as_of_us=0)  # loads scipy, which is no part of it
    bars: list[report.Bar] = []
    rows: list[tuple[str | float, ...]] = []
    queries = violations = 0
    for board in boards:
        for samples, bar in zip(_SAMPLES, _BARS[board.name], strict=True):
            for gap_rows_max in (_ANY_ROWS, _GAP_ROWS_MAX):
                found = check(board, samples, gap_rows_max)
                name = f"{board.name}, K = {samples:,}" + (", gaps capped" if gap_rows_max == _GAP_ROWS_MAX else "")
                figures = 100 * found.worst, bar, 100 * found.mean, found.knots, 100 * found.widest
                rows.append((name, *figures, found.shape, found.build_s))
                bars += _bars(name, found, bar, samples, int(board.counts.sum()), gap_rows_max)
                queries += found.queries
                violations += found.violations
    report.table(("board", "worst %", "bar %", "mean %", "knots", "widest bracket %", "shape", "fit s"), rows)
    return [*bars, report.Bar(f"violations in {queries:,} queries", violations, 0, at_most=True)]


def _bars(name: str, found: Checked, bar: float, samples: int, entries: int, gap_rows_max: int) -> Iterator[report.Bar]:
    yield report.Bar(f"{name}: worst relative error", 100 * found.worst, bar, " %", at_most=True)
    yield report.Bar(f"{name}: knots", found.knots, samples + entries // gap_rows_max, at_most=True)
    if samples == _SAMPLES[0]:
        yield report.Bar(f"{name}: widest bracket", 100 * found.widest, 100 * _WIDEST, " %", at_most=True)
        if entries in _BUILD_BARS_S:
            yield report.Bar(f"{name}: fit", found.build_s, _BUILD_BARS_S[entries], " s", at_most=True)


def main() -> int:
    options = parse(__doc__)
    title = "accuracy of certified curves, with K knots"
    if options.data is None:
        title += "; no folder of real boards is given"
    return report.run(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

"""Measure the worst error of live and frozen curves after a part of the board has changed.

python -m benchmarks.live_accuracy [DATA]

A frozen curve was fitted before the changes and does not count these changes. Certified curves with 1,000 knots are
measured after 10 % and after 50 % of the entries got new random values. Errors are measured at every value and at the
next lattice point after it. Only ranks beyond 1,000 are measured, because a service counts better ranks exactly.
Brackets and bounds are checked at all ranks. `plots` shows a month of changes of a real board.

Bars: the worst error is at most 0.40 % after 10 % of the entries changed, and 0.60 % after 50 %. No bracket or bound is
broken.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.curve_boards import (
    SEED,
    CurveBoard,
    Keys,
    count_entries_by_key,
    fit_certified,
    make_boards,
    read_boards,
)
from benchmarks.options import Options
from predictor import AsOf, Bracket, Curve, LiveCounts, LiveCurve
from storage.leaves.count_policy import SHORT_GAP_ROWS
from tests.predictor.quality import Quality, measure_quality

FROM_RANK = 1_001
REDRAWN = {0.1: 0.40, 0.5: 0.60}  # the bar in percent, by the ratio of entries that get new values
KNOTS = 1_000


class ShortGapsCounted:
    """A live curve that counts in short gaps, as `rank=auto` does in a busy process.

    Ranks in short gaps are therefore exact.
    """

    def __init__(self, live: LiveCurve, sorted_keys: Keys) -> None:
        self._live, self._keys = live, sorted_keys
        self.step, self._rows_max = live.step, SHORT_GAP_ROWS

    def locate(self, key: int) -> Bracket:
        if self._live.find_gap(key).rows > self._rows_max:
            return self._live.locate(key)
        rank = 1 + int(np.searchsorted(self._keys, key))
        return Bracket(rank, rank, rank, "knot")


@dataclass(frozen=True, slots=True)
class Changed:
    live: Quality
    auto: Quality
    frozen: Quality
    bound: float  # the current certificate for ranks from FROM_RANK on
    move_us: float


def change_board(board: CurveBoard, fit: Curve, part: float) -> Changed:
    """Give a random part of the entries new values, and measure the curves of the new board.

    Each change is counted as a move.
    """
    rng = np.random.default_rng(SEED + 1)
    keys: Keys = board.keys.copy()
    chosen = rng.choice(len(keys), round(part * len(keys)), replace=False)
    drawn = board.draw(rng, len(chosen))
    moves = list(zip(keys[chosen].tolist(), drawn.tolist(), strict=True))
    keys[chosen] = drawn
    counts = LiveCounts(fit)
    begun = time.perf_counter()
    counts.count_moves(moves)
    move_us = (time.perf_counter() - begun) / len(moves) * 1e6
    live, now = LiveCurve(fit, counts, as_of=AsOf(0)), count_entries_by_key(keys)
    return Changed(
        measure_quality(live, now, from_rank=FROM_RANK),
        measure_quality(ShortGapsCounted(live, np.sort(keys)), now, from_rank=FROM_RANK),
        measure_quality(fit, now, from_rank=FROM_RANK),
        live.estimate_drift(FROM_RANK).bound,
        move_us,
    )


def measure_redrawn(boards: list[CurveBoard]) -> list[report.Bar]:
    bars, rows = [], []
    for board in boards:
        fit = fit_certified(board.keys, KNOTS)
        for part, bar in REDRAWN.items():
            found = change_board(board, fit, part)
            worst, broken = 100 * found.live.worst_error, found.live.broken_brackets
            broken += found.live.worst_error > found.bound
            auto, frozen = 100 * found.auto.worst_error, 100 * found.frozen.worst_error
            rows.append((board.name, f"{part:.0%}", worst, auto, 100 * found.bound, frozen, broken, found.move_us))
            name = f"{board.name}, {part:.0%} redrawn"
            bars.append(report.Bar(f"{name}: worst relative error", worst, bar, " %", at_most=True))
            bars.append(report.Bar(f"{name}: broken brackets and bounds", broken, 0, at_most=True))
    report.print_table(
        ("board", "redrawn", "live worst %", "auto %", "bound %", "frozen worst %", "broken", "us a move"), rows
    )
    return bars


def measure(options: Options, _folder: Path) -> list[report.Bar]:
    return measure_redrawn(make_boards() + ([] if options.data is None else read_boards(options.data)))


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"live curves, {KNOTS:,} knots, after random changes")

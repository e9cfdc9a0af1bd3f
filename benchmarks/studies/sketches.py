"""Measure the errors of ranks from two streaming sketches, frugal streaming and lossy counting, beside a live curve.

python -m benchmarks.studies.sketches [--rows N]

Every contestant gets the same entries and then the same changes, one after the other. A sketch stores about as many
numbers as the curve. Errors are measured on the final board, at every value whose rank is beyond 1,000.

Frugal streaming: Ma, Muthukrishnan, Sandler, "Frugal Streaming for Estimating Quantiles" (2013), algorithm Frugal-2U,
with one estimator for each rank, at the ranks of a curve's knots. Lossy counting: Manku, Motwani, "Approximate
Frequency Counts over Data Streams" (2002), with an error of 1/K. When an entry changes, its old value should be
removed, but neither sketch can remove a value.

All figures are only reported; there is no bar.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import numpy.typing as npt

from benchmarks import report
from benchmarks.curve_boards import fit_certified
from benchmarks.options import Options
from predictor import AsOf, LiveCounts, LiveCurve

Values = npt.NDArray[numpy.int64]
KNOTS = 1000
FROM_RANK = 1000
SHARES = (0.1, 0.5)


@dataclass(frozen=True, slots=True)
class Changed:
    """A board before and after its changes, on which a higher value is better."""

    before: Values
    changes: list[tuple[int, int]]  # (old value, new value) of each changed entry, in order
    after: Values


def changed_board(rows: int, *, share: float, grown: bool) -> Changed:
    """Return a board of lognormal values, before and after a random part of its entries changed.

    `share` is the ratio of entries that change. If `grown` is true, these entries get 1.5 times their old values;
    otherwise they get new random values.
    """
    rng = numpy.random.default_rng(11)
    before = numpy.rint(rng.lognormal(10, 1.5, rows)).astype(numpy.int64)
    who = rng.choice(rows, round(rows * share), replace=False)
    drawn = numpy.rint(rng.lognormal(10, 1.5, len(who))).astype(numpy.int64)
    after = before.copy()
    after[who] = before[who] * 3 // 2 if grown else drawn
    return Changed(before, list(zip(before[who].tolist(), after[who].tolist(), strict=True)), after)


class Frugal:
    """The Frugal-2U sketch, for many quantiles of one stream. `estimates[i]` is for the quantile at `shares[i]`."""

    def __init__(self, shares: npt.NDArray[numpy.float64], start: Values) -> None:
        self.shares = shares
        self.estimates = start.astype(float)
        self._step = numpy.ones(len(shares))
        self._sign = numpy.ones(len(shares))

    def add(self, value: int, chance: npt.NDArray[numpy.float64]) -> None:
        """Adjust all estimates for the stream's next value.

        `chance` holds a random number below 1 for each quantile.
        """
        for sign, moved in (
            (1.0, (value > self.estimates) & (chance > 1 - self.shares)),
            (-1.0, (value < self.estimates) & (chance > self.shares)),
        ):
            if not moved.any():
                continue
            step, goes_on = self._step[moved], self._sign[moved] == sign
            step = step + numpy.where(goes_on, 1.0, -1.0)
            at = self.estimates[moved] + sign * numpy.where(step > 0, numpy.ceil(step), 1.0)
            past = sign * (at - value) > 0
            step = numpy.where(past, step + sign * (value - at), step)
            step = numpy.where(~goes_on & (step > 1), 1.0, step)
            self.estimates[moved] = numpy.where(past, value, at)
            self._step[moved], self._sign[moved] = step, sign


class LossyCounts:
    """The lossy-counting sketch.

    A count may be too low, by at most `error` times the number of values in the stream.
    """

    def __init__(self, error: float) -> None:
        self._width = round(1 / error)
        self._seen = 0
        self.counts: dict[int, int] = {}
        self._missed: dict[int, int] = {}

    def add(self, value: int) -> None:
        self._seen += 1
        bucket = -(-self._seen // self._width)
        if value in self.counts:
            self.counts[value] += 1
        else:
            self.counts[value], self._missed[value] = 1, bucket - 1
        if self._seen % self._width == 0:
            for old in [old for old, count in self.counts.items() if count + self._missed[old] <= bucket]:
                del self.counts[old], self._missed[old]


def true_ranks(values: Values, asked: Values) -> Values:
    """Return the rank of each value of `asked`: 1 + the number of strictly better values. Higher values are better."""
    ranks: Values = 1 + len(values) - numpy.searchsorted(numpy.sort(values), asked, side="right").astype(numpy.int64)
    return ranks


def frugal_ranks(board: Changed, asked: Values) -> Values:
    """Return ranks from the Frugal-2U sketch, whose quantiles are at geometric ranks.

    The estimates begin with the true values, which favours the sketch.
    """
    ranks = numpy.unique(numpy.geomspace(1, len(board.before), KNOTS).astype(numpy.int64))
    sketch = Frugal(1 - ranks / len(board.before), numpy.sort(board.before)[::-1][ranks - 1])
    rng = numpy.random.default_rng(12)
    for _, value in board.changes:
        sketch.add(value, rng.random(len(ranks)))
    found: Values = numpy.rint(numpy.interp(asked, numpy.sort(sketch.estimates), ranks[::-1])).astype(numpy.int64)
    return found


def lossy_ranks(board: Changed, asked: Values) -> Values:
    """Return ranks from the lossy-counting sketch, which keeps the counts of frequent values only."""
    sketch = LossyCounts(1 / KNOTS)
    for value in board.before.tolist():
        sketch.add(value)
    for _, value in board.changes:
        sketch.add(value)
    kept = numpy.array(sorted(sketch.counts), dtype=numpy.int64)
    counts = numpy.array([sketch.counts[value] for value in kept.tolist()], dtype=numpy.int64)
    better = numpy.concatenate((numpy.cumsum(counts[::-1])[::-1], [0]))
    found: Values = 1 + better[numpy.searchsorted(kept, asked, side="right")]
    return found


def live_ranks(board: Changed, asked: Values) -> Values:
    """Return ranks from a curve that was fitted before the changes, with live counts of the changes."""
    fit = fit_certified(-board.before, KNOTS)
    counts = LiveCounts(fit)
    counts.count_moves((-before, -after) for before, after in board.changes)
    curve = LiveCurve(fit, counts, as_of=AsOf(0))
    return numpy.array([curve.locate(-value).rank for value in asked.tolist()], dtype=numpy.int64)


CONTESTANTS: dict[str, Callable[[Changed, Values], Values]] = {
    "live curve": live_ranks,
    "frugal streaming": frugal_ranks,
    "lossy counting": lossy_ranks,
}


def measure(options: Options, folder: Path) -> list[report.Bar]:
    rows: list[tuple[str, float, float]] = []
    worst: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for grown in (False, True):
        for share in SHARES:
            board = changed_board(options.rows, share=share, grown=grown)
            asked = numpy.unique(board.after)
            truth = true_ranks(board.after, asked)
            deep = truth > FROM_RANK
            for name, ranks in CONTESTANTS.items():
                errors = 100 * abs(ranks(board, asked[deep]) - truth[deep]) / truth[deep]
                rows.append((f"{share:.0%} {'grown' if grown else 'drawn anew'}: {name}", errors.max(), errors.mean()))
                worst[name].append(float(errors.max()))
    report.print_table(("changed entries, contestant", "worst %", "mean %"), rows)
    live = max(worst.pop("live curve"))
    return [
        report.Bar("worst of the live curve", live, None, " %"),
        *(report.Bar(f"best of {name}", min(errors), None, " %") for name, errors in worst.items()),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "sketches beside live curves: {rows:,} lognormal whole numbers", rows=343_000)

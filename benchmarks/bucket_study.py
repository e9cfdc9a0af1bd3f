"""Compare the errors of two kinds of ranks: interpolated from a few buckets, and estimated by this project's curves.

python -m benchmarks.bucket_study

Studies of buckets are often quoted as "1 % off", which is a mean error. Here the 99th percentile and the worst error
are printed, too. The rank of every entry is estimated, and errors are relative to the true rank. A curve has one knot
for each end of a bucket, so both methods know exact counts at the same number of values.

Bar: the worst error of a curve with 50 knots is at most 2 %. All other figures are only reported.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from benchmarks import report
from benchmarks.options import Options
from benchmarks.plain_curves import PlainBoard

STUDIES = ((10_000, 5), (100, 10))
SEED = 11
MANY_KNOTS = 50  # a curve with this few knots takes less than a kilobyte
WORST_PERCENT = 2
BOARDS = 20  # one board of 100 players is a random draw, so errors are taken over this many boards


@dataclass(frozen=True, slots=True)
class Errors:
    """The relative errors of one method, over all entries of all boards."""

    mean: float
    p99: float
    worst: float


class Buckets:
    """A way to estimate ranks: divide the range of scores into equal buckets, and count the entries in each."""

    def __init__(self, scores: list[int], top: int, buckets: int) -> None:
        self._width = top / buckets
        self._counts = [0] * buckets
        for score in scores:
            self._counts[int(score / self._width)] += 1

    def rank(self, score: int) -> int:
        """Return the rank of a score.

        The rank is 1 + the number of entries in all better buckets + an estimate of how many entries in the score's own
        bucket are better. The estimate assumes that a bucket's entries are spread evenly over it.
        """
        bucket = int(score / self._width)
        above = (bucket + 1) * self._width - 1 - score  # how many possible scores of this bucket are better
        return 1 + round(sum(self._counts[bucket + 1 :]) + self._counts[bucket] * above / self._width)


def measure_errors(boards: list[list[int]], rank_of: Callable[[list[int]], Callable[[int], int]]) -> Errors:
    found: list[float] = []
    for scores in boards:
        estimate = rank_of(scores)
        ranks: dict[int, int] = {}
        for position, score in enumerate(sorted(scores, reverse=True), start=1):
            ranks.setdefault(score, position)
        found += [abs(estimate(score) - ranks[score]) / ranks[score] for score in scores]
    found.sort()
    return Errors(statistics.fmean(found), found[ceil(0.99 * len(found)) - 1], found[-1])


def curve_estimator(kind: str, knots: int) -> Callable[[list[int]], Callable[[int], int]]:
    """Return a function that fits a curve of `knots` knots to scores, and returns a function from score to rank."""

    def fitted(scores: list[int]) -> Callable[[int], int]:
        board = PlainBoard(sorted(-score for score in scores))
        curve = board.geometric(knots) if kind == "geometric" else board.certified(knots)
        return lambda score: curve.locate(-score).rank

    return fitted


def take_study(players: int, buckets: int) -> dict[str, Errors]:
    """Draw random boards, and return the errors of each method on these boards."""
    import numpy

    rng = numpy.random.default_rng(SEED)
    draws = 1 if players > 1_000 else BOARDS
    boards = [[int(score) for score in rng.integers(0, players, players)] for _ in range(draws)]
    counted = buckets + 1  # the number of knots: one at each end of a bucket
    return {
        f"{buckets} buckets": measure_errors(boards, lambda scores: Buckets(scores, players, buckets).rank),
        f"geometric, {counted} knots": measure_errors(boards, curve_estimator("geometric", counted)),
        f"certified, {counted} knots": measure_errors(boards, curve_estimator("certified", counted)),
        f"certified, {MANY_KNOTS} knots": measure_errors(boards, curve_estimator("certified", MANY_KNOTS)),
    }


def measure(_options: Options, _folder: Path) -> list[report.Bar]:
    rows: list[tuple[str, float, float, float]] = []
    bars: list[report.Bar] = []
    for players, buckets in STUDIES:
        found = take_study(players, buckets)
        scores = f"{players:,} uniform scores"
        rows += [
            (f"{scores}, {name}", 100 * each.mean, 100 * each.p99, 100 * each.worst) for name, each in found.items()
        ]
        of_buckets, *_, certified = found.values()
        bars += [
            report.Bar(f"{scores}, {buckets} buckets: mean", 100 * of_buckets.mean, None, " %"),
            report.Bar(f"{scores}, {buckets} buckets: worst", 100 * of_buckets.worst, None, " %"),
            report.Bar(
                f"{scores}, {MANY_KNOTS} knots: worst", 100 * certified.worst, WORST_PERCENT, " %", at_most=True
            ),
        ]
    report.print_table(("ranks from", "mean %", "p99 %", "worst %"), rows)
    return bars


if __name__ == "__main__":
    report.run_program(measure, __doc__, "errors of ranks from buckets, and from as few counted places")

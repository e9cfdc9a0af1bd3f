"""Draw the pictures of docs/curve.md from real boards: the error by rank.

    python -m benchmarks.plots DATA [--folder docs]

One picture compares three ways to choose knots. The other picture compares a frozen curve with a live one. Each curve
is asked for the rank of every value of the board and of the next key after each value. A point of a picture shows the
worst error in a small range of ranks, never a mean.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

from benchmarks.curve_boards import read_scores
from benchmarks.options import parse_options
from benchmarks.plain_curves import PlainBoard
from predictor import AsOf, KnotRanks, LiveCounts, LiveCurve

BEFORE, AFTER = "bgg_rated_2020-10-13", "bgg_rated_2020-11-13"
ABOUT = "number of ratings of board games"
KNOTS = 300
LIVE_KNOTS = 500
COUNTED_TOP = 1_000  # the best ranks, which a service may count exactly instead
LIVE_PICTURE = "frozen_and_live.svg"
BINS_PER_DECADE = 12
FLOOR_PERCENT = 0.01  # smaller errors are drawn here, because a logarithmic axis has no 0
SIZE_INCHES = (7.2, 4.2)


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    ranks: list[float]
    percents: list[float]
    worst_percent: float
    broken: int


def error_line(label: str, board: PlainBoard, curve: KnotRanks, *, past_rank: int = 0) -> Line:
    """Return a curve's line in a picture: the worst error in each bin of ranks.

    `worst_percent` of the line is the worst error at all ranks beyond `past_rank`.
    """
    bins: dict[int, float] = {}
    worst, broken = 0.0, 0
    for rank, error, missed in board.errors(curve):
        number = int(BINS_PER_DECADE * log10(rank))
        bins[number] = max(bins.get(number, 0.0), 100 * error)
        worst = max(worst, 100 * error) if rank > past_rank else worst
        broken += missed
    numbers = sorted(bins)
    ranks = [10 ** ((number + 0.5) / BINS_PER_DECADE) for number in numbers]
    return Line(label, ranks, [max(bins[number], FLOOR_PERCENT) for number in numbers], worst, broken)


def spacing_lines(board: PlainBoard) -> list[Line]:
    """Return the lines of three curves with equally many knots, which are placed in three different ways."""
    curves = {
        "uniform spacing": board.uniform(KNOTS),
        "geometric spacing (skip)": board.geometric(KNOTS),
        "certified (scan)": board.certified(KNOTS),
    }
    return [error_line(label, board, curve) for label, curve in curves.items()]


def month_later_lines(before: dict[str, int], after: dict[str, int]) -> list[Line]:
    """Return the lines of a frozen and a live curve on the later board, both fitted to the earlier one."""
    fit = PlainBoard(sorted(-score for score in before.values())).certified(LIVE_KNOTS)
    counts = LiveCounts(fit)
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        counts.count_moves([(None if was is None else -was, None if now is None else -now)])
    live = LiveCurve(fit, counts, as_of=AsOf(0))
    board = PlainBoard(sorted(-score for score in after.values()))
    curves: dict[str, KnotRanks] = {"frozen a month ago": fit, "kept live, no refit": live}
    return [error_line(label, board, curve, past_rank=COUNTED_TOP) for label, curve in curves.items()]


def new_figure(width_inches: float, height_inches: float) -> Any:
    """Return an empty picture, whose SVG file is the same each time it is written."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"svg.hashsalt": "rankcurve", "svg.fonttype": "none", "font.family": "sans-serif"}
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def draw_picture(lines: Sequence[Line], title: str, path: Path, *, counted_top: int = 0) -> None:
    """Draw one picture: error by rank, on logarithmic axes. The ranks up to `counted_top` are shaded."""
    figure = new_figure(*SIZE_INCHES)
    axes = figure.subplots()
    for line in lines:
        past = f" past rank {counted_top:,}" if counted_top else ""
        wrong = f", {line.broken:,} wrong brackets" if line.broken else ""
        label = f"{line.label}: worst {line.worst_percent:.3g} %{past}{wrong}"
        axes.plot(line.ranks, line.percents, label=label, drawstyle="steps-mid")
    if counted_top:
        axes.axvspan(1, counted_top, color="0.92", label=f"ranks up to {counted_top:,} are counted, not estimated")
    axes.set(xscale="log", yscale="log", xlabel="true rank", ylabel="worst error, % of the rank", title=title)
    axes.set_ylim(bottom=FLOOR_PERCENT * 0.8)
    axes.yaxis.set_major_formatter(lambda percent, _: f"{percent:g}")
    axes.xaxis.set_major_formatter(lambda rank, _: f"{rank:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> int:
    options = parse_options(__doc__)
    if options.data is None:
        print(f"usage: python -m benchmarks.plots DATA [--folder docs] (DATA with {BEFORE}.csv and {AFTER}.csv)")
        return 2
    before, after = (read_scores(options.data / f"{name}.csv") for name in (BEFORE, AFTER))
    board = PlainBoard(sorted(-score for score in after.values()))
    pictures = {
        "error_by_rank.svg": (spacing_lines(board), f"{len(after):,} entries ({ABOUT}), {KNOTS} knots"),
        LIVE_PICTURE: (month_later_lines(before, after), f"A month of changes ({ABOUT}), {LIVE_KNOTS} knots"),
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (lines, title) in pictures.items():
        live = name == LIVE_PICTURE
        draw_picture(lines, title, options.folder / name, counted_top=COUNTED_TOP if live else 0)
        for line in lines:
            print(f"{name}: {line.label}: worst {line.worst_percent:.3g} %, {line.broken} points outside their bracket")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draws a curve as two diagrams: the rank of each value, and the percentage of entries that the value is better than.

matplotlib is an extra (`plots`). It is imported only when a picture is drawn.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from service.client.client_answers import CurveDocument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
DECADES_MIN = 3  # if the values span more powers of ten than this, their axis is logarithmic
SIZE_INCHES = (10, 4.2)


class DrawingImpossibleError(Exception):
    """The curve cannot be drawn."""


def draw_curve(curve: CurveDocument, path: Path, *, title: str) -> None:
    """Write the picture to `path`, in the format of its ending.

    Raises:
        DrawingImpossibleError: the extra is not installed, or the board is empty.
        OSError: the file cannot be written.
    """
    if not curve.knots:
        raise DrawingImpossibleError("the curve is of an empty column, so there is nothing to draw")
    figure = _figure()
    # Draw equal values as a vertical line from their first rank to their last.
    points = [(float(knot.value), knot.rank, knot.rank + max(knot.ties, 1) - 1) for knot in curve.knots]
    values = list(chain.from_iterable((value, value) for value, _, _ in points))
    ranks = list(chain.from_iterable((first, last) for _, first, last in points))
    shares = [100 * (curve.total - rank) / max(curve.total - 1, 1) for rank in ranks]
    by_rank, by_share = figure.subplots(1, 2)
    about = f"{curve.total:,} entries, {len(curve.knots):,} knots, {curve.method}, as of {curve.as_of}"
    figure.suptitle(f"{title}\n{about}", fontsize="medium")
    by_rank.plot(values, ranks)
    by_rank.set(yscale="log", xlabel=curve.column, ylabel="rank")
    by_rank.invert_yaxis()
    by_share.plot(values, shares)
    by_share.set(xlabel=curve.column, ylabel="better than, % of entries", ylim=(0, 100))
    least, most = min(values), max(values)
    for axes in (by_rank, by_share):
        if least > 0 and most / least > 10**DECADES_MIN:
            axes.set_xscale("log")
        if curve.best == "low":
            axes.invert_xaxis()
        axes.grid(alpha=0.3)
    figure.savefig(path, format=path.suffix.lower().removeprefix("."), metadata=_undated(path))


def _figure() -> Figure:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DrawingImpossibleError(
            "drawing needs matplotlib; install it with: pip install 'rankcurve[plots]'"
        ) from error
    matplotlib.rcParams["svg.hashsalt"] = "rankcurve"  # with this fixed salt, the same curve gives the same file
    return Figure(figsize=SIZE_INCHES, layout="constrained")


def _undated(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix.lower() == ".svg" else None

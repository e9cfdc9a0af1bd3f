"""`rankcurve curve`, `refresh` and `audit`: show a curve, have a new one fitted, and compare one with exact counts.

A picture has two diagrams: the rank of each value, and the percentage of entries that the value is better than.
matplotlib is an extra (`plots`). It is imported only when a picture is drawn.

A wrong bracket is a fault of the service, so `audit` prints the bracket and exits with code 1.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rankcurve import AsyncClient, OfflineCurve
from rankcurve.answers import Audit, Board, Curve, Knot, Record, ValueAt
from rankcurve.client import ranking_path

from service.commands.reading.ranks import ColumnOption, ColumnsOption, first_ranked, ranked_column
from service.commands.tables import show_json, show_table
from service.commands.target import BoardArgument, JsonOption, fail, service_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOP_RANKS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
TOP_PERCENTILES = (99.9, 99, 90, 50)
FORMATS = (".svg", ".png")
DECADES_MIN = 3  # if the values span more powers of ten than this, their axis is logarithmic
SIZE_INCHES = (10, 4.2)
REFRESH_TIMEOUT_S = 600.0

PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help=f"Draw the curve into this file, in the format of its ending: {' or '.join(FORMATS)}.",
    ),
]
OwnersOption = Annotated[
    int | None, typer.Option("--owners", "-n", min=1, help="Number of owners. Default: as many as the service allows.")
]


@service_command()
async def curve(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the curve from which ranks are read, and the values that an owner needs to be among the best.

    The JSON of `--json` is enough to rank offline (docs/curve.md).
    """
    if plot is not None and plot.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"{plot.name} should end in {' or '.join(FORMATS)}")
    held = await client.board(board)
    name = column or first_ranked(board, held)
    if as_json:
        show_json(await client.request("GET", ranking_path(board, name, "curve"), Record))
        return
    found = (await client.curve(board, name)).document
    if plot is not None:
        try:
            draw_curve(found, plot, title=f"{board}: {name}")
        except OSError as error:
            fail(str(error))
        return
    wanted: list[ValueAt] = []
    if ranks := [rank for rank in TOP_RANKS if rank <= found.total]:
        wanted = await client.values(board, name, ranks=ranks, percentiles=TOP_PERCENTILES)
    show_curve(found, error_text(held, name))
    show_values(wanted, name)


def show_curve(found: Curve, error: str) -> None:
    headings = ("column", "method", "entries", "knots", "off by at most", "as of")
    row = (found.column, found.method, found.total, len(knots_of(found)), error, found.as_of)
    show_table(headings, [row], numeric=("entries", "knots"))
    typer.echo()


def error_text(board: Board, column: str) -> str:
    """Return the largest error of ranks that are read from the curve, and ignore counted ranks, which are exact."""
    state, exact_top = board.curves.get(column), board.predictor.exact_top
    if state is None or state.bound is None:
        return "not known"
    if state.total <= exact_top:
        return "nothing, every rank is counted"
    return f"{100 * state.bound:.3g} % past rank {exact_top}"


def show_values(wanted: list[ValueAt], column: str) -> None:
    rows = [
        (
            f"top {each.rank}" if each.rank is not None else f"better than {each.percentile} %",
            each.value,
            "exact" if each.exact else f"{each.low}..{each.high}",
        )
        for each in wanted
    ]
    show_table(("to be in the", column, "between"), rows, numeric=(column,))


def draw_curve(curve: Curve, path: Path, *, title: str) -> None:
    """Write the picture to `path`, in the format of its ending. Raises OSError if the file cannot be written.

    End the command if the board is empty or the extra is not installed.
    """
    knots = knots_of(curve)
    if not knots:
        fail("the curve is of an empty column, so there is nothing to draw")
    figure = new_figure()
    # Draw equal values as a vertical line from their first rank to their last.
    points = [(float(knot.value), knot.rank, knot.rank + max(knot.ties, 1) - 1) for knot in knots]
    values = list(chain.from_iterable((value, value) for value, _, _ in points))
    ranks = list(chain.from_iterable((first, last) for _, first, last in points))
    shares = [100 * (curve.total - rank) / max(curve.total - 1, 1) for rank in ranks]
    by_rank, by_share = figure.subplots(1, 2)
    about = f"{curve.total:,} entries, {len(knots):,} knots, {curve.method}, as of {curve.as_of}"
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
    undated = {"Date": None} if path.suffix.lower() == ".svg" else None
    figure.savefig(path, format=path.suffix.lower().removeprefix("."), metadata=undated)


def knots_of(curve: Curve) -> list[Knot]:
    """Return a curve's knots, best first. Those of segments have the estimated ranks of the whole board."""
    if not curve.segments:
        return curve.knots
    known = {(knot.value, knot.reached_at) for segment in curve.segments for knot in segment.knots}
    offline = OfflineCurve(curve)
    knots = [
        Knot(value=value, rank=offline.rank(value, reached_at).rank, reached_at=reached_at)
        for value, reached_at in known
    ]
    return sorted(knots, key=lambda knot: knot.rank)


def new_figure() -> Figure:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        fail("drawing needs matplotlib; install it with: pip install 'rankcurve[plots]'")
    matplotlib.rcParams["svg.hashsalt"] = "rankcurve"  # with this fixed salt, the same curve gives the same file
    return Figure(figsize=SIZE_INCHES, layout="constrained")


@service_command(timeout_s=REFRESH_TIMEOUT_S)
async def refresh(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refresh the curves of a leaderboard now instead of at the scheduled time (role `ops`)."""
    names = column or (await client.board(board)).ranked_columns()
    if not names:
        fail(f"{board} has no ranked column")
    done = [(name, await client.refresh_curve(board, name)) for name in names]
    if as_json:
        show_json([curve for _, curve in done])
        return
    rows = [(name, curve.method, curve.total, f"{curve.seconds * 1000:.0f}", curve.as_of) for name, curve in done]
    show_table(("column", "method", "entries", "ms", "as of"), rows, numeric=("entries", "ms"))


@service_command(timeout_s=REFRESH_TIMEOUT_S)
async def audit(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnOption = None,
    owners: OwnersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count random owners exactly and compare the curve with the counts (role `ops`).

    The exit code is 1 if a bracket was wrong.
    """
    name = await ranked_column(client, board, column)
    done = await client.audit_curve(board, name, owners=owners)
    if as_json:
        show_json(done)
    else:
        show_audit(done)
    if done.brackets_broken or done.certificates_broken:
        fail(f"{done.brackets_broken} brackets and {done.certificates_broken} certificates were wrong")


def show_audit(done: Audit) -> None:
    headings = ("column", "owners", "mean error", "p99", "worst", "off by at most", "wrong brackets", "as of")
    errors = map(percent_text, (done.mean_error, done.p99_error, done.worst_error, done.bound))
    row = (done.column, done.owners, *errors, done.brackets_broken, done.as_of)
    show_table(headings, [row], numeric=headings[1:-1])
    if done.outcome != "compared":
        reasons = {"changed": "too much was posted since the curve was fitted", "empty": "the column is empty"}
        typer.echo(f"nothing was compared: {reasons.get(done.outcome, done.outcome)}", err=True)
    if done.broken:
        rows = [(each.value, each.true_rank, each.rank, f"{each.low}..{each.high}") for each in done.broken]
        show_table(("value", "true rank", "said", "between"), rows, numeric=("value", "true rank", "said"))


def percent_text(error: float | None) -> str:
    return "" if error is None else f"{100 * error:.3g} %"

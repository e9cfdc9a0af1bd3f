"""`rankcurve curve`: the shape of a ranking, as a summary, as the whole document, or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.client.client import ServiceClient
from service.client.client_answers import Board, CurveDocument, ValueFor
from service.commands.reading.drawing import FORMATS, DrawingImpossibleError, draw_curve
from service.commands.reading.ranks import ColumnArgument, ColumnOption, first_ranked, named_column
from service.commands.tables import show_json, show_table
from service.commands.target import (
    DEFAULT_URL,
    BoardArgument,
    JsonOption,
    KeyOption,
    Target,
    UrlOption,
    call_service,
    fail,
)

TOP_RANKS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
TOP_PERCENTILES = (99.9, 99, 90, 50)

PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help=f"Draw the curve into this file, in the format of its ending: {' or '.join(FORMATS)}.",
    ),
]


def curve(
    board: BoardArgument,
    column_argument: ColumnArgument = None,
    column: ColumnOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Show the curve from which ranks are read, and the values that an owner needs to be among the best.

    The JSON of `--json` is enough to rank offline (docs/curve.md).
    """
    column = named_column(column_argument, column)
    if plot is not None and plot.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"{plot.name} should end in {' or '.join(FORMATS)}")

    async def action(client: ServiceClient) -> None:
        held = await client.get_board(board)
        name = column or first_ranked(board, held)
        if as_json:
            show_json(await client.get_curve_document(board, name))
            return
        found = await client.get_curve(board, name)
        if plot is not None:
            try:
                draw_curve(found, plot, title=f"{board}: {name}")
            except (DrawingImpossibleError, OSError) as error:
                fail(str(error))
            return
        ranks = [rank for rank in TOP_RANKS if rank <= found.total]
        wanted = await client.get_values(board, name, ranks=ranks, percentiles=TOP_PERCENTILES) if ranks else []
        show_curve(found, error_text(held, name))
        show_values(wanted, name)

    call_service(Target(url, key), action)


def show_curve(found: CurveDocument, error: str) -> None:
    headings = ("column", "method", "entries", "knots", "off by at most", "as of")
    row = (found.column, found.method, found.total, len(found.knots), error, found.as_of)
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


def show_values(wanted: list[ValueFor], column: str) -> None:
    rows = [
        (
            f"top {each.rank}" if each.rank is not None else f"better than {each.percentile} %",
            each.value,
            "exact" if each.exact else f"{each.low}..{each.high}",
        )
        for each in wanted
    ]
    show_table(("to be in the", column, "between"), rows, numeric=(column,))

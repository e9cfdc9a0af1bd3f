"""`rankcurve curve`, `refresh` and `audit`: show a curve, let the service fit a new curve, and check a curve by counts.

The true rank must lie in the bracket of an estimate. `audit` prints wrong brackets and exits with code 1.
"""

from decimal import Decimal
from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Audit, Curve, CurveState, Record, ValueAt
from rankcurve.client import ranking_path

from service.commands.reading.ranks import ColumnOption, ColumnsOption
from service.commands.tables import show_json, show_table
from service.commands.target import BoardArgument, JsonOption, fail, service_command

TOP_RANKS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
TOP_PERCENTILES = (99.9, 99, 90, 50)
REFRESH_TIMEOUT_S = 600.0

OwnersOption = Annotated[
    int | None, typer.Option("--owners", "-n", min=1, help="Number of owners. Default: as many as the service allows.")
]


@service_command()
async def curve(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the curve from which ranks are read, and the values that an owner needs to be among the best.

    The JSON of `--json` is enough to rank offline (docs/curve.md).
    """
    if as_json:
        show_json(await client.request("GET", ranking_path(board, column, "curve"), Record))
        return
    found = (await client.curve(board, column)).document
    held, name = await client.board(board), found.column
    wanted: list[ValueAt] = []
    if ranks := [rank for rank in TOP_RANKS if rank <= found.total]:
        wanted = await client.values(board, name, ranks=ranks, percentiles=TOP_PERCENTILES)
    show_curve(found, held.curves.get(name) or CurveState(), held.predictor.exact_top)
    rows = [
        (
            f"top {each.rank}" if each.rank is not None else f"top {100 - Decimal(str(each.percentile)):f} %",
            each.value,
            "exact" if each.exact else f"{each.low}..{each.high}",
        )
        for each in wanted
    ]
    show_table(("to be in the", name, "between"), rows, numeric=(name,))


def show_curve(curve: Curve, state: CurveState, exact_top: int) -> None:
    """Print a curve's method, size and largest error. Ranks up to `exact_top` have no error: they are counted."""
    error = "not known" if state.bound is None else f"{100 * state.bound:.3g} % past rank {exact_top}"
    if state.bound is not None and state.total <= exact_top:
        error = "nothing, every rank is counted"
    headings = ("column", "method", "entries", "knots", "off by at most", "as of")
    row = (curve.column, curve.method, curve.total, state.knots, error, curve.as_of)
    show_table(headings, [row], numeric=("entries", "knots"))
    typer.echo()


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
    """Count the true ranks of random owners, and compare the curve with them (role `ops`).

    The exit code is 1 if a true rank was outside its bracket, or if an error exceeded the curve's certificate (bound).
    """
    done = await client.audit_curve(board, column, owners=owners)
    if as_json:
        show_json(done)
    else:
        show_audit(done)
    if done.brackets_broken or done.certificates_broken:
        fail(f"{done.brackets_broken} brackets and {done.certificates_broken} certificates were wrong")


def show_audit(done: Audit) -> None:
    headings = ("column", "owners", "mean error", "p99", "worst", "off by at most", "wrong brackets", "as of")
    measured = (done.mean_error, done.p99_error, done.worst_error, done.bound)
    errors = ("" if each is None else f"{100 * each:.3g} %" for each in measured)
    row = (done.column, done.owners, *errors, done.brackets_broken, done.as_of)
    show_table(headings, [row], numeric=headings[1:-1])
    if done.outcome != "compared":
        reasons = {"changed": "too much was posted since the curve was fitted", "empty": "the column is empty"}
        typer.echo(f"nothing was compared: {reasons.get(done.outcome, done.outcome)}", err=True)
    if done.broken:
        rows = [(each.value, each.true_rank, each.rank, f"{each.low}..{each.high}") for each in done.broken]
        show_table(("value", "true rank", "said", "between"), rows, numeric=("value", "true rank", "said"))

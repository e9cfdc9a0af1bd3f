"""`rankcurve top` and `rank` read a ranking from a terminal; `curve`, `refresh` and `audit` look after its curve.

An estimate is always shown with the bracket that the true rank must lie in. `audit` prints wrong brackets and exits
with 1, so a cron job can watch them.
"""

import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Audit, Board, Curve, CurveState, OwnerPosition, Position, Record, ValueAt
from rankcurve.client import PAGE_ENTRIES, Rank, ranking_path
from rankcurve.errors import ValueOutOfRangeError

from service.commands.tables import show_json, show_table
from service.commands.target import BoardArgument, JsonOption, fail, service_command

ROWS_AROUND = 100  # rows on each side of an owner, among which equal entries are counted

ColumnOption = Annotated[
    str | None, typer.Option("--column", "-c", help="Ranked column. Default: the only one.", show_default=False)
]
OwnerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="OWNER",
        help="Owner whose positions are shown; not with --value. Write `-- -5` for an owner named -5.",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    list[str] | None, typer.Option("--column", "-c", help="Ranked column, repeatable. Default: all.")
]
ValuesOption = Annotated[
    list[str] | None, typer.Option("--value", help="Show the rank of this value instead of an owner's; repeatable.")
]


@service_command()
async def top(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE_ENTRIES, help="Number of rows.")] = 10,
    from_rank: Annotated[int, typer.Option(min=1, help="Start at this row instead of the first.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show the top of a ranking, or any other part of it. A rank like ~12345 is an estimate."""
    page = await client.page(board, column, limit=limit, from_rank=from_rank if from_rank > 1 else None)
    if as_json:
        show_json(page)
        return
    ties = (await client.board(board)).ties
    shown = [] if isinstance(ties, str) else [name for name in ties if name not in ("earliest", page.column)]
    headings, rows = ["rank", "owner", page.column, *shown], list[list[object]]()
    for entry in page.entries:
        rank_text = f"{'' if entry.exact else '~'}{entry.rank}"
        rows.append([rank_text, entry.owner, entry.value, *(entry.stats.get(name) for name in shown)])
        rows[-1] += [entry.reached_at, entry.updated_at] if "earliest" in ties else [entry.updated_at]
    headings += ["reached", "updated"] if "earliest" in ties else ["updated"]
    show_table(headings, rows, numeric=("rank", page.column, *shown))
    if not all(entry.exact for entry in page.entries):
        typer.echo(
            f"~ marks an estimate from the curve; rankcurve rank {board} OWNER -c {page.column} shows its bounds",
            err=True,
        )


@service_command()
async def rank(
    client: AsyncClient,
    board: BoardArgument,
    owner: OwnerArgument = None,
    column: ColumnsOption = None,
    value: ValuesOption = None,
    mode: Annotated[Rank, typer.Option(help="auto: count near the top, and use the curve elsewhere.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show the rank of an owner, or the rank that a value would have, and the bracket that contains the true rank."""
    if (owner is None) == (not value):
        raise typer.BadParameter("give either an OWNER or --value")
    if value and column and len(column) > 1:
        raise typer.BadParameter("--value goes with one --column")
    if any("," in text for text in [*(value or []), *(column or [])]):
        raise typer.BadParameter("repeat the option; commas do not separate values")
    positions: Sequence[Position | OwnerPosition]
    if owner is not None:
        positions = await client.positions(board, owner, column or (), rank=mode)
    else:
        positions = await client.value_positions(board, column[0] if column else None, value or [], rank=mode)
    if as_json:
        show_json(positions)
        return
    spec = await client.board(board)
    show_positions(positions, [await find_share_worse(client, spec, owner, each, mode) for each in positions])


async def find_share_worse(
    client: AsyncClient, board: Board, owner: str | None, position: Position | OwnerPosition, mode: Rank
) -> float | None:
    """Find the percentage of the other entries that are worse. The service's percentile counts equal ones, too.

    Return None if so many entries have equal values and tie columns that it is not known how many are worse.
    """
    column = next((each for each in board.columns if each.name == position.column), None)
    if column is None or position.value is None or "earliest" in board.ties or (position.total or 0) < 2:
        return position.percentile
    if board.ties not in ("shared", [column.name]):  # a column leaves itself out of its own order
        return position.percentile if owner is None else await _find_share_behind(client, board, owner, position)
    next_worse = Decimal(position.value) + Decimal(-1 if column.best == "high" else 1).scaleb(-column.scale)
    try:
        [after] = await client.value_positions(board.id, column.name, [next_worse], rank=mode)
    except ValueOutOfRangeError:
        return 0.0  # no value of the column is worse
    return min(100.0, max(0.0, round(100 * (after.total + 1 - after.rank) / max(1, after.total - 1), 3)))


async def _find_share_behind(
    client: AsyncClient, board: Board, owner: str, position: Position | OwnerPosition
) -> float | None:
    """Count the entries around the owner that share its rank, because they are not worse."""
    page = await client.around(board.id, owner, position.column, better=ROWS_AROUND, worse=ROWS_AROUND)
    name = unicodedata.normalize("NFC", owner)
    own_rank = next((row.rank for row in page.entries if row.owner == name), 0)
    equal = sum(row.rank == own_rank for row in page.entries)
    if not 0 < equal <= ROWS_AROUND:  # more may follow
        return None
    return round(100 * max(0, page.total + 1 - own_rank - equal) / max(1, page.total - 1), 3)


def show_positions(positions: Sequence[Position | OwnerPosition], shares_worse: Sequence[float | None]) -> None:
    """Print one line for each position, with both bounds of the bracket if the rank is an estimate.

    If a position has a tier, the tiers are a column of the table. The sign `~` marks a tier that is not certain.
    """
    headings = ["column", "value", "rank", "between", "of", "better than %", "method", "as of"]
    rows: list[list[object]] = [
        [each.column, each.value, each.rank, bracket_text(each), each.total, share, each.method, each.as_of]
        for each, share in zip(positions, shares_worse, strict=True)
    ]
    if any(each.tier or not each.tier_certain for each in positions):
        headings.append("tier")
        for row, each in zip(rows, positions, strict=True):
            row.append(f"{'' if each.tier_certain else '~'}{each.tier or ''}")
    show_table(headings, rows, numeric=("value", "rank", "of", "better than %"))


def bracket_text(position: Position | OwnerPosition) -> str:
    """Format the bracket of a position: `exact`, bounds such as `12301..12390`, or `no value`."""
    if position.rank is None:
        return "no value"
    return "exact" if position.exact else f"{position.low}..{position.high}"


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
    """Show the curve behind the estimated ranks, and the values that an owner needs to be among the best.

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
    """Count the true ranks of random owners and compare the curve with them (role `ops`).

    Exits with 1 if a true rank was outside its bracket, or if an error exceeded the curve's certificate (bound).
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

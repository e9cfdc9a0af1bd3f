"""`rankcurve audit`: count random owners exactly and compare the counts with the curve.

A wrong bracket is a fault of the service, so the command prints the bracket and exits with code 1.
"""

from __future__ import annotations

from typing import Annotated

import typer

from service.client.client import Patience, ServiceClient
from service.client.client_answers import AuditDone
from service.commands.boards.refreshing import REFRESH_TIMEOUT_S
from service.commands.reading.ranks import ColumnArgument, ColumnOption, named_column, ranked_column
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

OwnersOption = Annotated[
    int | None, typer.Option("--owners", "-n", min=1, help="Number of owners. Default: as many as the service allows.")
]


def audit(
    board: BoardArgument,
    column_argument: ColumnArgument = None,
    column: ColumnOption = None,
    owners: OwnersOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Count random owners exactly and compare the curve with the counts (role `ops`).

    The exit code is 1 if a bracket was wrong.
    """
    column = named_column(column_argument, column)

    async def action(client: ServiceClient) -> None:
        name = await ranked_column(client, board, column)
        done = await client.audit_column(board, name, owners=owners)
        if as_json:
            show_json(done)
        else:
            show_audit(done)
        if done.brackets_broken or done.certificates_broken:
            fail(f"{done.brackets_broken} brackets and {done.certificates_broken} certificates were wrong")

    call_service(Target(url, key), action, Patience(timeout_s=REFRESH_TIMEOUT_S))


def show_audit(done: AuditDone) -> None:
    headings = ("column", "owners", "mean error", "p99", "worst", "certified", "wrong brackets", "as of")
    errors = map(percent_text, (done.mean_error, done.p99_error, done.worst_error, done.certificate))
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

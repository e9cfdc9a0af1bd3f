"""`rankcurve refresh`: have a job process fit curves now. The service responds once readers get the new curve."""

from __future__ import annotations

from typing import Annotated

import typer

from service.client.client import Patience, ServiceClient
from service.client.client_answers import RefreshDone
from service.commands.reading.ranks import ColumnsOption
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

REFRESH_TIMEOUT_S = 600.0

# Older versions had `refresh BOARD COLUMN…` instead of --column. Scripts may still use that form.
ColumnsArgument = Annotated[list[str] | None, typer.Argument(metavar="COLUMN…", hidden=True)]


def refresh(
    board: BoardArgument,
    columns: ColumnsArgument = None,
    column: ColumnsOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Refresh the curves of a leaderboard now instead of at the scheduled time (role `ops`)."""
    if columns and column:
        raise typer.BadParameter("name the columns once, with --column")

    async def action(client: ServiceClient) -> None:
        names = column or columns or (await client.get_board(board)).ranked_columns()
        if not names:
            fail(f"{board} has no ranked column")
        done = [(name, await client.refresh_curve(board, name)) for name in names]
        if as_json:
            show_json([curve for _, curve in done])
        else:
            show_refreshed(done)

    call_service(Target(url, key), action, Patience(timeout_s=REFRESH_TIMEOUT_S))


def show_refreshed(done: list[tuple[str, RefreshDone]]) -> None:
    rows = [(name, curve.method, curve.total, f"{curve.seconds * 1000:.0f}", curve.as_of) for name, curve in done]
    show_table(("column", "method", "entries", "ms", "as of"), rows, numeric=("entries", "ms"))

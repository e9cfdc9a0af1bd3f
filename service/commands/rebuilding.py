"""`rankcurve rebuild`: make a leaderboard's rows anew from the journal, on the store itself.

The rule: it says how many rows there were and how many there are, so that a surprise shows.
"""

from __future__ import annotations

import asyncio
import time

import typer

from service.commands.settings import ConfigOption, StoreOption, settings_from
from service.commands.target import BoardArgument, fail
from storage.errors import StorageError, StoreLocked


def rebuild(board: BoardArgument, store: StoreOption = None, config: ConfigOption = None) -> None:
    """Make a leaderboard anew from the journal: every row as the last post to it left it.

    On SQLite stop the service first; on PostgreSQL posts to the board wait meanwhile. Remembered post ids stay.
    Refused, with nothing changed, where the journal does not reach back to the board's beginning.
    """
    from service.rebuild_store import rebuild as rebuild_on  # here, because the other commands need no driver

    settings = settings_from({"store": store}, None, config)
    begun_s = time.perf_counter()
    try:
        done = asyncio.run(rebuild_on(settings, board))
    except StoreLocked as error:
        fail(f"stop the service first, a board is rebuilt on the store itself: {error.detail}")
    except StorageError as error:
        fail(error.detail)
    seconds = time.perf_counter() - begun_s
    typer.echo(f"{board}: {done.entries_before:,} entries before, {done.entries:,} now, {done.hidden:,} hidden")
    typer.echo(f"{done.rows:,} posts read in {seconds:.1f} s, {done.rows / seconds:,.0f} a second")

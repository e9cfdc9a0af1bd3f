"""`rankcurve rebuild`: rebuild the rows of a leaderboard from the journal, on the store itself."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from service.commands.settings import ConfigOption, StoreOption, read_settings
from service.commands.target import BoardArgument, fail
from storage.errors import StorageError, StoreLockedError

SinceOption = Annotated[
    int | None,
    typer.Option(
        "--since",
        metavar="SEQ",
        min=1,
        help="Replay the posts from this number of the journal on, including those to earlier boards of that name. "
        "Default: since the board was created or reset.",
        show_default=False,
    ),
]


def rebuild(
    board: BoardArgument, since: SinceOption = None, store: StoreOption = None, config: ConfigOption = None
) -> None:
    """Rebuild a leaderboard from the journal: every row becomes what it was after its last post.

    On SQLite stop the service first. On PostgreSQL posts to the board wait until the command ends. If a post that
    the rebuilt rows include is sent again, it is still a duplicate. The command fails, and changes nothing, if the
    journal does not reach back to the board's beginning or to --since, or if the journal has no post to the board.

    To get a deleted leaderboard back, create it again with the same columns, find the number of its first post with
    `rankcurve journal`, and rebuild it with --since.
    """
    from service.commands.operating.rebuild_store import (
        rebuild_on_store,  # imported here: the other commands need no driver
    )

    settings = read_settings({"store": store}, None, config)
    begun_s = time.perf_counter()
    try:
        done = asyncio.run(rebuild_on_store(settings, board, since))
    except StoreLockedError as error:
        fail(f"stop the service first, because the command opens the store itself: {error.detail}")
    except StorageError as error:
        fail(error.detail)
    seconds = time.perf_counter() - begun_s
    typer.echo(f"{board}: {done.entries_before:,} entries before, {done.entries:,} now, {done.hidden_entries:,} hidden")
    typer.echo(f"{done.rows:,} posts read in {seconds:.1f} s, {done.rows / seconds:,.0f} a second")
    if done.duplicates or done.rejected:
        typer.echo(f"{done.duplicates:,} left out as duplicates, {done.rejected:,} would leave the range of a column")

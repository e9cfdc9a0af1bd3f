"""`rankcurve partition move` and `board split` move a leaderboard's rows while services use the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from config import Settings
from service.commands.operating.own_store import run_on_store
from service.commands.settings import settings_command
from service.commands.target import BoardArgument

if TYPE_CHECKING:
    from jobs.boards.move import BeginCopy, MoveCounts
    from storage.store import Store

TargetArgument = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, help="The number of the partition.", show_default=False)
]
SegmentsArgument = Annotated[
    int, typer.Argument(metavar="SEGMENTS", min=2, max=64, help="The number of segments.", show_default=False)
]
PROGRESS_S = 1.0
# To get its lock, the move waits until long reads of the board's table end. Meanwhile, posts to the board wait, too.
# After this time in seconds, the move stops waiting, lets the posts pass and tries again later.
LOCK_TIMEOUT_S_MAX = 1.0


@settings_command("store", create_store=False)
def move(settings: Settings, board: BoardArgument, partition: TargetArgument) -> None:
    """Move a leaderboard to another partition of the store. Services may keep running, and no post is lost.

    The rows are copied while the services accept posts. At the end, posts to the leaderboard wait, usually for less
    than a second, until the last changes are copied. If the command is killed, the leaderboard stays where it was: run
    the command again after a minute. The leaderboards of a family share a partition and cannot be moved.

    For example:

        rankcurve partition move season 3 --store postgresql://USER@HOST/DATABASE
    """
    from storage.boards.board_copy import begin_move

    _run(settings, board, lambda _store: partial(begin_move, target=partition), f"is in partition {partition}")


@settings_command("store", create_store=False)
def split(settings: Settings, board: BoardArgument, segments: SegmentsArgument) -> None:
    """Spread a leaderboard over another number of segments. Services may keep running, and no post is lost.

    The services accept posts while each row is copied to the segment of its owner. At the end, posts to the leaderboard
    wait, usually for less than a second. The new segments have no curves, so ranks are counted until a job process has
    refreshed them, which it begins within a second. If the command is killed, the leaderboard stays as it was: run the
    command again after a minute. On SQLite, stop the service first.

    For example:

        rankcurve board split season 8 --store postgresql://USER@HOST/DATABASE
    """
    from storage.boards.board_copy import begin_split

    def begin(opened: Store) -> BeginCopy:
        own_tables_max = settings.own_tables_max if opened.dialect.parses_schema else None
        boards_max = settings.catalog_boards_max
        return partial(begin_split, segments=segments, boards_max=boards_max, own_tables_max=own_tables_max)

    _run(settings, board, begin, f"has {segments} segments")


def _run(settings: Settings, board: str, begin: Callable[[Store], BeginCopy], where: str) -> None:
    """Move a board's rows and print the result. If the move fails, end the command.

    `begin(store)` returns a function that begins the copy. `where` ("is in partition 3") is printed after the id.
    """
    settings = settings.model_copy(update={"lock_timeout_s": min(settings.lock_timeout_s, LOCK_TIMEOUT_S_MAX)})
    begun_s = shown_s = time.monotonic()

    def show_progress(counts: MoveCounts) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= PROGRESS_S:
            shown_s = time.monotonic()
            typer.echo(_describe(counts))

    async def work(store: Store) -> MoveCounts:
        # Imported here, because the other commands need no database driver.
        from jobs.boards.move import BoardMove
        from service.wiring import make_holder, make_work_leases
        from storage.schema.creation import prepare_store

        await prepare_store(store)
        move = BoardMove(
            store,
            make_work_leases(settings),
            board_id=board,
            begin=begin(store),
            holder=make_holder(),
            monotonic=time.monotonic,
            sleep=asyncio.sleep,
            report=show_progress,
        )
        return await move.run()

    done = run_on_store(settings, work)
    typer.echo(f"{board} {where}: {_describe(done)} in {time.monotonic() - begun_s:.1f} s")
    typer.echo(f"posts to it waited for at most {done.waited_s:.3f} s")


def _describe(counts: MoveCounts) -> str:
    return f"{counts.rows:,} rows and {counts.post_ids:,} post ids copied, {counts.changed:,} rows copied again"

"""`rankcurve backup` copies a SQLite store into one file. `rankcurve restore` replaces the store with such a file.

PostgreSQL has better tools of its own, so these two commands refuse a PostgreSQL store.

`rankcurve rebuild` rebuilds the rows of a leaderboard from the journal, on the store itself, without a service. On
SQLite, the command locks the store, as `serve` does. On PostgreSQL, posts of other processes to the board wait until
the rebuild has ended.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from config import Settings
from service.commands.operating.own_store import STOP_FIRST, run_on_store
from service.commands.settings import settings_command
from service.commands.target import BoardArgument, fail
from storage.errors import StorageError, StoreLockedError

if TYPE_CHECKING:
    from storage.posting.rebuild import RebuildCounts
    from storage.store import Store

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, show_default=False)]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Move an existing store aside, to *.replaced.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="SEQ",
        help="Replay the posts from this one on, including those to earlier boards of that name. SEQ is the `seq` of "
        "the board's first post in the journal. Default: since the board was created or reset.",
        show_default=False,
    ),
]


@settings_command("store")
def backup(settings: Settings, file: FileArgument) -> None:
    """Copy the SQLite store into a new FILE. The service may keep accepting posts. The store must be on this machine.

    The copy holds the store at one moment, with every post that was acknowledged before that moment. The command checks
    the copy before it gives it the name FILE.

    For example:

        rankcurve backup /backup/rankcurve-$(date +%F).db
    """
    from storage.engines.sqlite_backup import back_up_store  # imported here: other commands need no driver

    database = file_of(settings)
    begun_s = time.perf_counter()
    try:
        size_bytes = back_up_store(database, file)
    except StorageError as error:
        fail(error.detail)
    typer.echo(f"{file}: {size_bytes:,} bytes in {time.perf_counter() - begun_s:.1f} s, sound")


@settings_command("store")
def restore(settings: Settings, file: FileArgument, replace: ReplaceOption = False) -> None:
    """Replace the SQLite store with a backup. Stop the service first, and start it again afterwards.

    The command checks FILE first and leaves it unchanged. With --replace, an existing store is kept beside the new one,
    together with its write-ahead log.
    """
    from storage.engines.sqlite_backup import restore_store as restore_file

    database = file_of(settings)
    try:
        aside = restore_file(file, database, replace=replace)
    except StoreLockedError as error:
        fail(f"{STOP_FIRST}: {error.detail}")
    except StorageError as error:
        fail(error.detail)
    typer.echo(
        f"{database} now has the content of {file}"
        + (f"; the earlier store is kept as {', '.join(map(str, aside))}" if aside else "")
    )


def file_of(settings: Settings) -> Path:
    """Return the path of the SQLite store in the settings. Exit with code 2 if the store is no file."""
    from service.stores import SQLITE_PREFIX, is_shared

    if is_shared(settings.store):
        fail("use pg_dump or pg_basebackup for a PostgreSQL store; see docs/operating.md", code=2)
    return Path(settings.store.removeprefix(SQLITE_PREFIX))


@settings_command("store", create_store=False)
def rebuild(settings: Settings, board: BoardArgument, since: SinceOption = None) -> None:
    """Rebuild a leaderboard from the journal: every row becomes what it was after its last post.

    On SQLite stop the service first. On PostgreSQL posts to the board wait until the command ends. A post that
    the rebuilt rows include remains a duplicate if it is sent again. The command fails, and changes nothing, if the
    journal does not reach back to the board's beginning or to --since, or if the journal has no post to the board.

    To get a deleted leaderboard back, create it again with the same columns, find the `seq` of its first post with
    `rankcurve journal`, and rebuild it with --since.
    """
    begun_s = time.perf_counter()
    done = run_on_store(settings, partial(rebuild_on_store, board_id=board, since=since))
    seconds = time.perf_counter() - begun_s
    typer.echo(f"{board}: {done.entries_before:,} entries before, {done.entries:,} now, {done.hidden_entries:,} hidden")
    typer.echo(f"{done.rows:,} posts read in {seconds:.1f} s, {done.rows / seconds:,.0f} a second")
    if done.duplicates or done.rejected:
        typer.echo(f"{done.duplicates:,} left out as duplicates, {done.rejected:,} would leave the range of a column")


async def rebuild_on_store(store: Store, *, board_id: str, since: str | None) -> RebuildCounts:
    """Rebuild the rows of a board from the journal.

    `since` is the `seq` of the first post to replay. None: replay from where the board was created or last reset.

    Raises:
        BadCursorError: `since` is not a `seq` of this store's journal.
        UnknownBoardError, JournalIncompleteError, NothingReplayedError, SpecConflictError: the board can't be
            rebuilt, and nothing was changed.
    """
    # Imported here, because the other commands need no database driver.
    from service.contract.cursors import CursorCodec
    from storage.posting.post_ids import PostIds
    from storage.posting.rebuild import rebuild_board
    from storage.schema.creation import prepare_store

    salt = await prepare_store(store)
    numbers = None if since is None else CursorCodec(salt).decode_numbers(int(since) if since.isdecimal() else since)
    return await store.write(partial(rebuild_board, PostIds(salt), board_id=board_id, since=numbers))

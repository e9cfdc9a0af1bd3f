"""Commands on a whole store: back it up, restore it, rebuild a leaderboard from its journal, or copy it elsewhere.

`backup` and `restore` are for SQLite and refuse PostgreSQL, which has better tools of its own. `rebuild` works on the
store itself, without a service: on SQLite it locks the store, as `serve` does; on PostgreSQL, posts to the board wait
until it has ended. `store copy` copies everything to another store, and `store reopen` goes back to the old one.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from config import Settings
from config.masking import masked
from service.commands.operating.own_store import STOP_FIRST, failing_plainly, run_on_store, settings_command
from service.commands.target import BoardArgument, fail
from storage.errors import StorageError, StoreCopyError

if TYPE_CHECKING:
    from storage.engines.postgres import PostgresStore
    from storage.posting.rebuild import RebuildCounts
    from storage.store import Program, Store

# A copy waits for about 2 s until the sessions of a stopped service have ended.
SESSION_LOOKS, SESSION_LOOK_S = 20, 0.1

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
    """Copy the SQLite store of this machine into a new FILE, while the service keeps accepting posts.

    The copy is a snapshot of one moment, with every post that was acknowledged before. It gets the name FILE only after
    the command has checked it.

    For example:

        rankcurve backup /backup/rankcurve-$(date +%F).db
    """
    from storage.engines.sqlite_backup import back_up_store  # imported here: other commands need no driver

    database = file_of(settings)
    begun_s = time.perf_counter()
    with failing_plainly(STOP_FIRST):
        size_bytes = back_up_store(database, file)
    typer.echo(f"{file}: {size_bytes:,} bytes in {time.perf_counter() - begun_s:.1f} s, sound")


@settings_command("store")
def restore(settings: Settings, file: FileArgument, replace: ReplaceOption = False) -> None:
    """Replace the SQLite store with a backup. Stop the service first, and start it again afterwards.

    FILE is checked first and stays unchanged. With --replace, an existing store and its write-ahead log are kept beside
    the new one.
    """
    from storage.engines.sqlite_backup import restore_store as restore_file

    database = file_of(settings)
    with failing_plainly(STOP_FIRST):
        aside = restore_file(file, database, replace=replace)
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


ReasonOption = Annotated[str | None, typer.Option("--reason", help="Reason to record, as shown by `rankcurve acts`.")]


@settings_command("store", create_store=False)
def rebuild(settings: Settings, board: BoardArgument, since: SinceOption = None, reason: ReasonOption = None) -> None:
    """Rebuild a leaderboard from the journal: every row becomes what it was after its last post.

    On SQLite, stop the service first. On PostgreSQL, posts to the board wait until the command ends. Posts that the
    rebuilt rows include are still duplicates if they are sent again. If the journal does not reach back to the board's
    beginning or to --since, or has no post to the board, the command fails and changes nothing.

    To get a deleted leaderboard back, create it again with the same columns, find the `seq` of its first post with
    `rankcurve journal`, and rebuild it with --since.
    """
    begun_s = time.perf_counter()
    done = run_on_store(settings, partial(rebuild_on_store, board_id=board, since=since, reason=reason))
    seconds = time.perf_counter() - begun_s
    typer.echo(f"{board}: {done.entries_before:,} entries before, {done.entries:,} now, {done.hidden_entries:,} hidden")
    typer.echo(f"{done.rows:,} posts read in {seconds:.1f} s, {done.rows / seconds:,.0f} a second")
    if done.duplicates or done.rejected:
        typer.echo(f"{done.duplicates:,} left out as duplicates, {done.rejected:,} would leave the range of a column")


async def rebuild_on_store(
    store: Store, *, board_id: str, since: str | None, reason: str | None = None
) -> RebuildCounts:
    """Rebuild the rows of a board from the journal, and store the act with its reason.

    `since` is the `seq` of the first post to replay. None: replay from where the board was created or last reset.

    Raises:
        BadCursorError: `since` is not a `seq` of this store's journal.
        UnknownBoardError, JournalIncompleteError, NothingReplayedError, SpecConflictError: the board can't be
            rebuilt, and nothing was changed.
    """
    # Imported here, because the other commands need no database driver.
    from service.contract.cursors import CursorCodec
    from service.wiring import now_us
    from storage.boards.acts import Act, record_act
    from storage.posting.post_ids import PostIds
    from storage.posting.rebuild import rebuild_board
    from storage.schema.creation import prepare_store

    salt = await prepare_store(store)
    numbers = None if since is None else CursorCodec(salt).decode_numbers(int(since) if since.isdecimal() else since)

    def rebuilding() -> Program[RebuildCounts]:
        counts = yield from rebuild_board(PostIds(salt), board_id=board_id, since=numbers)
        yield from record_act(Act(now_us(), "board.rebuilt", board=board_id, reason=reason))
        return counts

    return await store.write(rebuilding)


FromArgument = Annotated[str, typer.Argument(metavar="FROM", help="Address of the store.", show_default=False)]
ToArgument = Annotated[str, typer.Argument(metavar="TO", help="Address of an empty store.", show_default=False)]


@settings_command()
def copy(settings: Settings, source: FromArgument, target: ToArgument) -> None:
    """Copy a whole store to an empty one: boards, families, posts, curves, archives, leases and keys.

    Stop the services of both stores first; `rankcurve serve --read-only` may serve FROM during the copy. At the end the
    command compares all rows and closes FROM: from then on, serve TO. If the command is killed, run it again.

    If there is no store at TO yet, it is created with one partition. To get several, run `rankcurve store init` first.

    For example:

        rankcurve store copy sqlite:///data/rankcurve.db postgresql://USER@HOST/DATABASE
    """
    begun_s = time.monotonic()
    with failing_plainly(f"{STOP_FIRST}; `serve --read-only` may serve FROM during the copy"):
        asyncio.run(copy_store(settings, source, target))
    typer.echo(f"{masked(target)} has taken the place of {masked(source)} ({time.monotonic() - begun_s:.0f} s)")


@settings_command("store", create_store=False)
def reopen(settings: Settings) -> None:
    """Reopen a store that was copied, or is being copied. It lacks everything that was posted to the other one."""
    from storage.store_copy import reopen_store

    run_on_store(settings, lambda store: store.write(reopen_store))
    typer.echo(f"{masked(settings.store)} may be served again")


async def _count_writers(source: PostgresStore) -> int:
    """Count the sessions of services, after a moment in which those of a service that was just stopped can end."""
    for _ in range(SESSION_LOOKS):
        if not (sessions := await source.count_other_writers()):
            break
        await asyncio.sleep(SESSION_LOOK_S)
    return sessions


async def copy_store(settings: Settings, source_url: str, target_url: str) -> None:
    """Copy a store to another one. Raises StoreCopyError, and the errors of `open_store`."""
    # Imported here, because the other commands need no database driver.
    from service.stores import open_store
    from service.telemetry.logs import logging_to_stderr
    from storage.engines.postgres import PostgresStore
    from storage.schema.creation import COPIED_TO, COPYING_TO
    from storage.store_copy import StoreCopy, begin_copy, reopen_store

    async with AsyncExitStack() as stack:
        stack.enter_context(logging_to_stderr())

        async def open_one(url: str, *, create: bool) -> Store:
            store = await open_store(settings.model_copy(update={"store": url, "create_store": create}))
            stack.push_async_callback(store.close)
            return store

        source = await open_one(source_url, create=False)
        names = masked(source_url), masked(target_url)
        meta = await source.write(lambda: begin_copy(names[1]))
        try:
            if isinstance(source, PostgresStore) and (sessions := await _count_writers(source)):
                raise StoreCopyError(f"services may write to the source in {sessions} sessions: {STOP_FIRST}")
            target = await open_one(target_url, create=True)
            copy = StoreCopy(source, target, names, typer.echo)
            is_open = await copy.prepare(meta)
        except StorageError:
            if meta.keys().isdisjoint((COPYING_TO, COPIED_TO)):  # nothing was copied, so services may write again
                await source.write(reopen_store)
            raise
        if is_open:
            await copy.run()

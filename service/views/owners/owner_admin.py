"""Handlers with which operators erase an owner from every leaderboard, hide the owner, or show the owner again.

Each transaction works on a bounded number of boards. If the work is interrupted, the operator finishes it by sending
the same request again.

An owner is erased first from the boards that have rows, then from archives. A board that is archived in between is
therefore still found. Archives are looked up in the store, because the catalog of a process does not hold them.
"""

import secrets
from collections.abc import Callable, Iterator
from functools import partial

from service.context import Context
from service.contract.routes import Call
from storage.archive.archive_reader import ArchivedEntries, list_archives_of_owner
from storage.boards.boards import find_boards_by_key
from storage.boards.closed_boards import hold_boards_with_rows
from storage.boards.profiles import profiles
from storage.entries.entries import Entries, Move, lock_boards_with_owner, log_moves
from storage.entries.erasure import erasure_statements
from storage.entries.hidden_owners import hidden_statements
from storage.errors import UnknownOwnerError
from storage.log.change_log import change_log
from storage.log.log_record import ChangeKind
from storage.queue.queue_erasure import drop_queued
from storage.records import Board
from storage.store import Program, read_single

ARCHIVES_A_STEP = 100  # the most archives in one transaction, which decodes and writes few blocks of each archive
# The most boards of families in one transaction. One query reads all of them, and opening a board takes microseconds.
FAMILY_BOARDS_A_STEP = 2_000
# The most other boards in one transaction. Compiling the statements of unused boards blocks the event loop.
BOARDS_A_STEP = 20
HIDDEN_MORE = 100_000  # the most hidden rows that an owner may have on boards outside the current step
TOKEN_BYTES = 8
_Work = Callable[[list[Entries]], Program[object]]


async def erase_entry(context: Context, call: Call) -> None:
    board = await context.catalog.find_board(call.path["board"])
    owner, until = call.path["owner"], dict[int, int]()
    entries = context.boards.open_board(board)
    waited = await drop_queued(context.store, owner, board_key=board.key)
    await context.store.write(lambda: _erase([entries], owner, context.now_us(), until))
    if board.key not in until and not waited:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    await _rename(context, owner, until, otherwise=0)


def _erase(boards: list[Entries], owner: str, now_us: int, until: dict[int, int]) -> Program[None]:
    """Erase the owner's entries, and add to `until` the last log position of the erasure, by board key.

    The caller must remove the owner's name and posts from the change log up to that position.
    """
    erased: dict[int, Move] = {}
    for entries in boards:
        gone = yield from entries.remove_entry(owner, ChangeKind.ERASED)
        gone = gone or (yield from hidden_statements.erase_hidden_entry(entries, owner))
        if gone is not None:
            erased[entries.board.key] = gone
    if erased:
        logged = yield from log_moves(erased.values(), now_us=now_us)
        until.update(dict.fromkeys(erased, logged.next - 1))


async def erase_owner(context: Context, call: Call) -> None:
    """Erase entries, profile, and the owner's name and posts in the journal."""
    owner, until = call.path["owner"], dict[int, int]()
    # Drop queued posts first. When `drop_queued` returns, the posts that a worker had already taken from the queue are
    # applied, and the code below erases what they wrote.
    await drop_queued(context.store, owner)
    begun = await read_single(context.store, change_log.take_mark)
    await _on_every_board(context, owner, lambda boards: _erase(boards, owner, context.now_us(), until))
    await erase_from_archives(context, owner)
    await context.store.write(lambda: _forget(context, owner))
    await _rename(context, owner, until, otherwise=begun - 1)


def _forget(context: Context, owner: str) -> Program[None]:
    yield from profiles.remove_profile(owner)
    yield from hidden_statements.mark_owner(owner, now_us=context.now_us(), hide=False)


async def _rename(context: Context, owner: str, until: dict[int, int], *, otherwise: int) -> None:
    """Remove the owner's name and posts from the journal, in transactions that change a bounded number of rows."""
    rename = partial(
        erasure_statements.rename_owner,
        owner,
        token=secrets.token_hex(TOKEN_BYTES),
        until=until,
        otherwise=otherwise,
        rows_max=context.settings.prune_rows_max,
    )
    past: int | None = 0
    while past is not None:
        stretches, past = await context.store.read(partial(erasure_statements.find_stretches, owner, past=past))
        for stretch in stretches:
            done: int | None = 0
            while done is not None:
                done = await context.store.write(partial(rename, stretch, past=done))


async def hide_owner(context: Context, call: Call) -> None:
    owner = call.path["owner"]
    await _mark(context, owner, hide=True)
    await _on_every_board(
        context, owner, lambda boards: hidden_statements.hide_owner(boards, owner, now_us=context.now_us())
    )


async def show_owner(context: Context, call: Call) -> None:
    owner = call.path["owner"]
    await _mark(context, owner, hide=False)
    limit = context.settings.catalog_boards_max
    keys = set(await context.store.read(lambda: hidden_statements.list_hidden_boards(owner, limit=limit)))
    await _on_every_board(
        context, owner, lambda boards: hidden_statements.show_owner(boards, owner, now_us=context.now_us()), keys
    )


async def _mark(context: Context, owner: str, *, hide: bool) -> None:
    await context.store.write(lambda: hidden_statements.mark_owner(owner, now_us=context.now_us(), hide=hide))


async def _on_every_board(context: Context, owner: str, work: _Work, keys: set[int] | None = None) -> None:
    await context.catalog.load(boards_max=context.settings.catalog_boards_max)
    boards = [board for board in context.catalog.list_known() if keys is None or board.key in keys]
    for step in list_steps(boards):
        opened = [context.boards.open_board(board) for board in step]
        await context.store.write(partial(_on_live, opened, owner, work))


def list_steps(boards: list[Board]) -> Iterator[list[Board]]:
    # Posts lock rows in this order, too, so no deadlock occurs: by table, then by board.
    boards.sort(key=lambda board: (board.key if board.table_key is None else board.table_key, board.key))
    in_families = [board for board in boards if _in_family_table(board)]
    others = [board for board in boards if not _in_family_table(board)]
    for these, step_boards in ((others, BOARDS_A_STEP), (in_families, FAMILY_BOARDS_A_STEP)):
        for start in range(0, len(these), step_boards):
            yield these[start : start + step_boards]


def _in_family_table(board: Board) -> bool:
    return board.family_key is not None and board.table_key is not None


def _on_live(boards: list[Entries], owner: str, work: _Work) -> Program[None]:
    alive = yield from hold_boards_with_rows([entries.board.key for entries in boards])
    # Leave out boards that were deleted or archived since the catalog was read: they have no rows.
    there = [entries for entries in boards if entries.board.key in alive]
    if there and _in_family_table(there[0].board):  # most of a family's thousands of boards do not have the owner
        unseen = set((yield from hidden_statements.list_hidden_boards(owner, limit=len(boards) + HIDDEN_MORE)))
        shown = {entries.board.key for entries in (yield from lock_boards_with_owner(there, owner))}
        there = [entries for entries in there if entries.board.key in shown | unseen]
    yield from work(there)


async def erase_from_archives(context: Context, owner: str) -> None:
    """Erase an owner from every archive, in transactions that change a bounded number of archives."""
    after_key = -1
    while True:
        listing = partial(list_archives_of_owner, owner, after_key=after_key, limit=ARCHIVES_A_STEP)
        keys = await context.store.read(listing)
        if keys:
            await context.store.write(partial(_erase_archived, context, keys, owner))
            after_key = keys[-1]
        if len(keys) < ARCHIVES_A_STEP:
            return


def _erase_archived(context: Context, keys: list[int], owner: str) -> Program[None]:
    boards = yield from find_boards_by_key(keys)
    for board in boards.values():
        # Skip an archive that is still being written. Its writer begins again, because the owner's row was erased.
        if board.archived_us is not None:
            yield from ArchivedEntries(board).remove_entry(owner, ChangeKind.ERASED)

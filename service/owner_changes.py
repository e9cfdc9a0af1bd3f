"""What operators do to owners, on every leaderboard: erase, hide, show again.

The rule: work on many boards goes in transactions of a bounded number of them, and what was interrupted is finished by
asking again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator

from storage.closures import boards_with_rows
from storage.entries import Entries, with_owner
from storage.erasing import erasing
from storage.errors import StoreBusy, UnknownOwner
from storage.hidden import hidden
from storage.journal_blocks import Stretch
from storage.posted import Happened
from storage.profiles import profiles
from storage.queue_erasing import drop_queued
from storage.records import Board
from storage.store import Program

from .archives import erase_from_archives
from .context import Context
from .routes import Call, Reply

FAMILY_BOARDS_A_STEP = 2_000  # asked for together, and opened in microseconds
HIDDEN_MORE = 100_000  # rows that an owner may have on other boards
BOARDS_A_STEP = 20  # compiling the statements of boards that nobody used is work on the event loop
TOKEN_BYTES = 8
CHANGE_MORE_S = 30  # than a change waits for transactions, before posts undo it: its process must have died
SETTLED_LOOK_S = 0.005  # between two looks whether older transactions have ended; nearly always none runs
_Work = Callable[[list[Entries]], Program[None]]


async def erase_entry(context: Context, call: Call) -> Reply:
    """`DELETE /v1/leaderboards/{board}/entries/{owner}`."""
    board = await context.catalog.find(call.path["board"])
    owner, until = call.path["owner"], dict[int, int]()
    entries = context.boards.open(board)[0]
    waited = await drop_queued(context.store, owner, board_key=board.key)
    await context.store.write(lambda: _erase([entries], owner, context.now_us(), until))
    if board.key not in until and not waited:
        raise UnknownOwner(f"{owner!r} has no entry in {board.id!r}")
    await _rename(context, owner, until, otherwise=0)
    return Reply(None, status=204)


def _erase(boards: list[Entries], owner: str, now_us: int, until: dict[int, int]) -> Program[None]:
    """Erase the owner's entries; `until` gets, by board, the number in the log that all before it is gone by."""
    erased: list[int] = []
    for entries in boards:
        gone = yield from entries.take_out(owner, Happened.ERASED, now_us=now_us, place=len(erased))
        unseen = hidden(entries.dialect).remove(entries, owner, now_us=now_us, place=len(erased))
        if gone is not None or (yield from unseen):
            erased.append(entries.board.key)
    if erased:
        seq = yield from erasing(boards[0].dialect).say(now_us=now_us, place=len(erased))
        until.update(dict.fromkeys(erased, seq))


async def erase_owner(context: Context, call: Call) -> Reply:
    """`DELETE /v1/owners/{owner}`: entries, profile, and what the journal says of the owner."""
    owner, until = call.path["owner"], dict[int, int]()
    log = erasing(context.store.dialect)
    await drop_queued(context.store, owner)  # before the rest: what a worker has taken is applied by then
    begun = await context.store.write(lambda: log.say(now_us=context.now_us()))
    await _on_every_board(context, owner, lambda boards: _erase(boards, owner, context.now_us(), until))
    await erase_from_archives(context, owner)
    await context.store.write(lambda: _forget(context, owner))
    await _rename(context, owner, until, otherwise=begun)
    return Reply(None, status=204)


def _forget(context: Context, owner: str) -> Program[None]:
    yield from profiles(context.store.dialect).remove(owner)
    yield from hidden(context.store.dialect).forget(owner)


async def _rename(context: Context, owner: str, until: dict[int, int], *, otherwise: int) -> None:
    """Take the owner's name and posts out of the journal, a bounded number of rows a transaction."""
    log, rows_max = erasing(context.store.dialect), context.settings.prune_rows_max
    token = secrets.token_hex(TOKEN_BYTES)

    def rename(stretch: Stretch, past: int) -> Program[int | None]:
        return log.rename(owner, stretch, token=token, until=until, otherwise=otherwise, rows_max=rows_max, past=past)

    past: int | None = 0
    while past is not None:
        begin = past
        stretches, past = await context.store.read(lambda: log.stretches(owner, past=begin))  # noqa: B023 - run at once
        for stretch in stretches:
            seq: int | None = 0
            while seq is not None:
                seq = await context.store.write(lambda past=seq: rename(stretch, past))  # type: ignore[misc] # noqa: B023


async def hide(context: Context, call: Call) -> Reply:
    """`PUT /v1/owners/{owner}/hidden`."""
    owner, statements = call.path["owner"], hidden(context.store.dialect)
    await _change(context, owner, hide=True)

    def away(boards: list[Entries]) -> Program[None]:
        yield from statements.hide(boards, owner, now_us=context.now_us())

    await _on_every_board(context, owner, away)
    return Reply(None, status=204)


async def show(context: Context, call: Call) -> Reply:
    """`DELETE /v1/owners/{owner}/hidden`."""
    owner, statements = call.path["owner"], hidden(context.store.dialect)
    await _change(context, owner, hide=False)

    def back(boards: list[Entries]) -> Program[None]:
        yield from statements.show(boards, owner, now_us=context.now_us())

    limit = context.settings.catalog_boards_max
    keys = set(await context.store.read(lambda: statements.of_owner(owner, limit=limit)))
    await _on_every_board(context, owner, back, keys)
    return Reply(None, status=204)


async def _change(context: Context, owner: str, *, hide: bool) -> None:
    statements = hidden(context.store.dialect)
    lasts_us = round((context.settings.statement_timeout_s + CHANGE_MORE_S) * 1e6)
    if not await context.store.write(
        lambda: statements.begin(owner, until_us=context.now_us() + lasts_us, hide=hide),
    ):
        return
    is_hidden: bool | None = None
    try:
        await _settle(context)
        is_hidden = hide
    finally:  # otherwise as before: while an owner changes, first posts to a board are refused
        await context.store.write(lambda: statements.end(owner, now_us=context.now_us(), hide=is_hidden))


async def _settle(context: Context) -> None:
    """Return when whoever may not have seen that an owner is changing has ended.

    Raises:
        StoreBusy: it takes too long; asking again goes on from here.
    """
    if context.store.sole_writer:
        return
    statements = hidden(context.store.dialect)
    transaction = await context.store.write(statements.number_transaction)
    try:
        async with asyncio.timeout(context.settings.statement_timeout_s):
            while not await context.store.read(lambda: statements.settled(transaction)):  # noqa: ASYNC110 - the store's
                await asyncio.sleep(SETTLED_LOOK_S)
    except TimeoutError as error:
        raise StoreBusy("a transaction has been running for too long: ask again when it has ended") from error


async def _on_every_board(context: Context, owner: str, work: _Work, keys: set[int] | None = None) -> None:
    await context.catalog.load(boards_max=context.settings.catalog_boards_max)
    boards = [board for board in context.catalog.boards() if keys is None or board.key in keys]
    for step in _steps(boards):
        opened = [context.boards.open(board)[0] for board in step]
        await context.store.write(lambda opened=opened: _on_live(opened, owner, work))  # type: ignore[misc]


def _steps(boards: list[Board]) -> Iterator[list[Board]]:
    boards.sort(key=lambda board: board.key)  # posts lock rows in this order too
    in_families = [board for board in boards if _in_family_table(board)]
    others = [board for board in boards if not _in_family_table(board)]
    for these, step_boards in ((others, BOARDS_A_STEP), (in_families, FAMILY_BOARDS_A_STEP)):
        for start in range(0, len(these), step_boards):
            yield these[start : start + step_boards]


def _in_family_table(board: Board) -> bool:
    return board.family_key is not None and board.table_key is not None


def _on_live(boards: list[Entries], owner: str, work: _Work) -> Program[None]:
    dialect = boards[0].dialect
    alive = yield from boards_with_rows(dialect, [entries.board.key for entries in boards])
    # A board may have been deleted or archived since the catalog was read: it has no rows then.
    there = [entries for entries in boards if entries.board.key in alive]
    if there and _in_family_table(there[0].board):  # few of thousands
        unseen = set((yield from hidden(dialect).of_owner(owner, limit=len(boards) + HIDDEN_MORE)))
        shown = {entries.board.key for entries in (yield from with_owner(there, owner))}
        there = [entries for entries in there if entries.board.key in shown | unseen]
    yield from work(there)

"""Handlers with which operators erase an owner from every leaderboard, hide the owner, or show the owner again.

Each transaction works on a bounded number of boards of one partition. If the work is interrupted, the operator finishes
it by sending the same request again.

A board may move to another partition meanwhile. The transaction that misses it there leaves it out, and the next round
finds it. The log of the partition that it left keeps its earlier changes, so an erasure takes the owner's name out of
the logs of all partitions.

An owner is erased first from the boards that have rows, then from archives. A board that is archived in between is
therefore still found. Archives are looked up in the store, because the catalog of a process does not hold them.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from service.context import Context
from service.contract.responses.boards import OwnerEntries
from service.contract.routes import Call
from storage.archive.archive_reader import ArchivedEntries, list_archives_of_owner, note_change
from storage.boards.boards import find_boards_by_key, find_keys_ever
from storage.boards.closed_boards import hold_boards_with_rows
from storage.boards.profiles import profiles
from storage.entries.entries import Entries, RankingChange, lock_boards_with_owner, log_ranking_changes
from storage.entries.erasure import erasure_statements
from storage.entries.hidden_owners import hidden_statements
from storage.errors import BoardChangedError, UnknownOwnerError
from storage.log.change_log import change_log
from storage.log.log_record import ChangeKind
from storage.queue.queue_erasure import drop_queued
from storage.records import Board, by_partition
from storage.schema.creation import in_each_partition
from storage.store import Program, Store, in_partition

ARCHIVES_A_STEP = 100  # the most archives in one transaction, which decodes and writes few blocks of each archive
# The most boards of families in one transaction. One query reads all of them, and opening a board takes microseconds.
FAMILY_BOARDS_A_STEP = 2_000
# The most other boards in one transaction. Compiling the statements of unused boards blocks the event loop.
BOARDS_A_STEP = 20
HIDDEN_MORE = 100_000  # the most hidden rows that an owner may have on boards outside the current step
TOKEN_BYTES = 8
ROUNDS_MAX = 4  # the first round works on every board, the others on boards that have moved since they were listed
_Work = Callable[[list[Entries]], Program[object]]
_ArchiveWork = Callable[[list[Board], str], Program[int]]  # returns on how many of the boards the owner has an entry
_Positions = dict[int, dict[int, int]]  # log positions by partition, and then by board key


async def erase_entry(context: Context, call: Call) -> None:
    owner, until = call.path["owner"], _Positions()
    whole = await context.catalog.find_board(call.path["board"])
    board, keys = whole.part_of(owner), [whole.key]
    if whole.segments:  # the owner may have posts in the logs of earlier segments
        keys = await context.store.read(lambda: find_keys_ever(whole))
    entries = context.boards.open_board(board)
    waited = sum([await drop_queued(context.store, owner, board_key=key) for key in keys])
    await context.store_for_board(board).write(lambda: _erase([entries], owner, context.now_us(), until))
    if not until and not waited:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    for positions in until.values():
        positions.update(dict.fromkeys(keys, positions[board.key]))
    await _rename(context, owner, until, {})


def _erase(boards: list[Entries], owner: str, now_us: int, until: _Positions) -> Program[None]:
    """Erase the owner's entries on boards of one partition. Run this program for that partition.

    Add to `until` the last log position that the boards have in each partition. The caller must remove the owner's name
    and posts from the change logs up to these positions.
    """
    erased: dict[int, RankingChange] = {}
    for entries in boards:
        gone = yield from entries.remove_entry(owner, ChangeKind.ERASED)
        gone = gone or (yield from hidden_statements.erase_hidden_entry(entries, owner))
        if gone is not None:
            erased[entries.board.key] = gone
    if erased:
        yield from log_ranking_changes(erased.values(), now_us=now_us)
        for number, mark in enumerate((yield from in_each_partition(change_log.take_mark))):
            until.setdefault(number, {}).update(dict.fromkeys(erased, mark - 1))


async def erase_owner(context: Context, call: Call) -> OwnerEntries:
    """Erase entries, profile, and the owner's name and posts in the journal."""
    owner, until = call.path["owner"], _Positions()
    # Drop queued posts first. When `drop_queued` returns, the posts that a worker had already taken from the queue are
    # applied, and the code below erases what they wrote.
    await drop_queued(context.store, owner)
    begun = await context.store.read(lambda: in_each_partition(change_log.take_mark))
    await _on_every_board(context, owner, lambda boards: _erase(boards, owner, context.now_us(), until))
    archived = await _on_every_archive(context, owner, _erase_archived)
    await context.store.write(lambda: _forget(context, owner))
    await _rename(context, owner, until, {number: mark - 1 for number, mark in enumerate(begun)})
    return OwnerEntries(archived + len({key for positions in until.values() for key in positions}))


def _forget(context: Context, owner: str) -> Program[None]:
    yield from profiles.remove_profile(owner)
    yield from hidden_statements.mark_owner(owner, now_us=context.now_us(), hide=False)


async def _rename(context: Context, owner: str, until: _Positions, otherwise: Mapping[int, int]) -> None:
    """Remove the owner's name and posts from the journal, in transactions that change a bounded number of rows.

    `until`: the last positions to change. `otherwise`: those of all other boards, by partition; 0 if left out.
    """
    token = secrets.token_hex(TOKEN_BYTES)
    for number in sorted(until.keys() | otherwise.keys()):
        rename = partial(
            erasure_statements.rename_owner,
            owner,
            token=token,
            until=until.get(number, {}),
            otherwise=otherwise.get(number, 0),
            rows_max=context.settings.prune_rows_max,
        )
        await _rename_in(context.store.at(number), owner, rename)


async def _rename_in(store: Store, owner: str, rename: Callable[..., Program[int | None]]) -> None:
    past: int | None = 0
    while past is not None:
        stretches, past = await store.read(partial(erasure_statements.find_stretches, owner, past=past))
        for stretch in stretches:
            done: int | None = 0
            while done is not None:
                done = await store.write(partial(rename, stretch, past=done))


async def hide_owner(context: Context, call: Call) -> OwnerEntries:
    owner = call.path["owner"]
    await _mark(context, owner, hide=True)
    await _on_every_board(
        context, owner, lambda boards: hidden_statements.hide_owner(boards, owner, now_us=context.now_us())
    )
    archived = await _on_every_archive(context, owner, _note_archived)
    return OwnerEntries(archived + len(await _list_hidden_boards(context, owner)))


async def show_owner(context: Context, call: Call) -> OwnerEntries:
    owner = call.path["owner"]
    await _mark(context, owner, hide=False)
    keys = await _list_hidden_boards(context, owner)
    await _on_every_board(
        context, owner, lambda boards: hidden_statements.show_owner(boards, owner, now_us=context.now_us()), keys
    )
    return OwnerEntries(len(keys) + await _on_every_archive(context, owner, _note_archived))


async def _list_hidden_boards(context: Context, owner: str) -> set[int]:
    """Return the keys of the boards on which the owner has a hidden row."""
    listing = partial(hidden_statements.list_hidden_boards, owner, limit=context.settings.catalog_boards_max)
    return set[int]().union(*await context.store.read(lambda: in_each_partition(listing)))


async def _mark(context: Context, owner: str, *, hide: bool) -> None:
    await context.store.write(lambda: hidden_statements.mark_owner(owner, now_us=context.now_us(), hide=hide))


async def _on_every_board(context: Context, owner: str, work: _Work, keys: set[int] | None = None) -> None:
    for _ in range(ROUNDS_MAX):
        await context.catalog.load(boards_max=context.settings.catalog_boards_max)
        boards = [board for board in context.catalog.list_known() if keys is None or board.key in keys]
        keys = set()
        for step in list_steps(boards):
            opened = [context.boards.open_board(board) for board in step]
            store = context.store.at(step[0].partition)
            keys |= await store.write(partial(_on_live, opened, owner, work))
        if not keys:
            return
    raise BoardChangedError


def list_steps(boards: list[Board]) -> Iterator[list[Board]]:
    """Yield the boards of each transaction. They are in one partition, and in the order in which posts lock rows."""
    # Posts lock rows by table and then by board, so no deadlock occurs.
    boards.sort(key=lambda board: (board.key if board.table_key is None else board.table_key, board.key))
    for _, theirs in by_partition(boards):
        in_families = [board for board in theirs if _in_family_table(board)]
        others = [board for board in theirs if not _in_family_table(board)]
        for these, step_boards in ((others, BOARDS_A_STEP), (in_families, FAMILY_BOARDS_A_STEP)):
            for start in range(0, len(these), step_boards):
                yield these[start : start + step_boards]


def _in_family_table(board: Board) -> bool:
    return board.family_key is not None and board.table_key is not None


def _on_live(boards: list[Entries], owner: str, work: _Work) -> Program[set[int]]:
    """Run `work` on boards of one partition. Return the keys of the boards that have moved to another partition."""
    places = yield from hold_boards_with_rows([entries.board.key for entries in boards])
    # Leave out boards that were deleted or archived since the catalog was read: they have no rows.
    alive = [entries for entries in boards if entries.board.key in places]
    there = [entries for entries in alive if places[entries.board.key] == entries.board.partition]
    moved = {entries.board.key for entries in alive} - {entries.board.key for entries in there}
    if there and _in_family_table(there[0].board):  # most of a family's thousands of boards do not have the owner
        unseen = set((yield from hidden_statements.list_hidden_boards(owner, limit=len(boards) + HIDDEN_MORE)))
        shown = {entries.board.key for entries in (yield from lock_boards_with_owner(there, owner))}
        there = [entries for entries in there if entries.board.key in shown | unseen]
    yield from work(there)
    return moved


async def _on_every_archive(context: Context, owner: str, work: _ArchiveWork) -> int:
    """Run `work` on each archive that may have the owner, in transactions that change a bounded number of archives.

    Return how many have an entry of the owner.
    """
    after_key, entries = -1, 0
    while True:
        listing = partial(list_archives_of_owner, owner, after_key=after_key, limit=ARCHIVES_A_STEP)
        found = await context.store.read(partial(in_each_partition, listing))
        keys = sorted(key for theirs in found for key in theirs)[:ARCHIVES_A_STEP]
        if keys:
            entries += await context.store.write(partial(_in_archives, keys, owner, work))
            after_key = keys[-1]
        if len(keys) < ARCHIVES_A_STEP:
            return entries


def _in_archives(keys: list[int], owner: str, work: _ArchiveWork) -> Program[int]:
    entries = 0
    boards = yield from find_boards_by_key(keys, held=True)
    # Skip an archive that is still being written. Its writer begins again, because the owner's row was removed.
    for partition, theirs in by_partition(board for board in boards.values() if board.archived_us is not None):
        entries += yield from in_partition(partition, work(theirs, owner))
    return entries


def _erase_archived(boards: list[Board], owner: str) -> Program[int]:
    entries = 0
    for board in boards:
        entries += (yield from ArchivedEntries(board).remove_entry(owner, ChangeKind.ERASED)) is not None
    return entries


def _note_archived(boards: list[Board], owner: str) -> Program[int]:
    changed = []
    for board in boards:
        entries = ArchivedEntries(board)
        if (yield from entries.find_entries([owner])) or (yield from entries.of_hidden([owner])):
            changed.append(board)
    yield from note_change(changed)
    return len(changed)

"""The programs and coalesced calls that read single entries with their totals, and the rows around an owner.

The most important rule: entries and totals come from one snapshot of the current boards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from storage.boards.boards import ALL_ENTRIES, check_copy, find_totals, state_of
from storage.coalesce import StoreCoalescers
from storage.entries.entries import Entries, find_on_shared_tables
from storage.entries.rankings import OwnersNeighbours
from storage.reads.open_boards import OpenBoards
from storage.records import Board, Entry
from storage.store import Program, Store, read_single


class EntryRead(NamedTuple):
    """An owner's entry and the totals of its board, both from one snapshot."""

    entry: Entry | None
    totals: dict[int, int]  # number of entries by column index


class PointReads:
    """Answers many concurrent point reads with few statements.

    Each method raises `StoreBusyError` if too many reads are waiting.
    """

    def __init__(
        self, store: Store, boards: OpenBoards, *, point_reads_per_batch_max: int, reads_waiting_max: int, lanes: int
    ) -> None:
        self._store, self._boards = store, boards
        batch_max, waiting_max = point_reads_per_batch_max, reads_waiting_max
        self._entries = StoreCoalescers(self._read_entries, batch_max=batch_max, waiting_max=waiting_max, lanes=lanes)
        self._around_owners = StoreCoalescers(
            self._read_owners, batch_max=batch_max, waiting_max=waiting_max, lanes=lanes
        )

    def read_entry(self, board: Board, owner: str) -> asyncio.Future[EntryRead]:
        """Return a future for an owner's entry, which may be None, and the board's totals."""
        return self._entries.ask(self._store.for_board(board), _shape(board), (board, owner))

    def read_around_owner(
        self, board: Board, column_index: int, owner: str, *, better_rows: int, worse_rows: int
    ) -> asyncio.Future[OwnersNeighbours | None]:
        """Return a future for the rows on both sides of an owner's row.

        Its result is None if the owner has no value in the column, or if the board is archived.
        """
        asked = _Around(board, column_index, better_rows, worse_rows, owner)
        kind = (*_shape(board), column_index, better_rows, worse_rows)
        return self._around_owners.ask(self._store.for_board(board), kind, asked)

    async def _read_entries(self, asked: list[tuple[Board, str]]) -> list[EntryRead]:
        entries = self._boards.open_board(asked[0][0])
        owners = list({owner for _, owner in asked})
        store = self._store.for_board(entries.board)
        if entries.board.archived_us is not None:
            found, totals = await store.read(lambda: _read_archive(entries, owners))
        else:
            found, totals = await read_single(store, lambda: entries.find_entries_with_totals(owners))
            check_copy(entries.board, totals)
        return [EntryRead(found.get(owner), totals) for _, owner in asked]

    async def _read_owners(self, asked: list[_Around]) -> list[OwnersNeighbours | None]:
        first = asked[0]
        if first.board.archived_us is not None:
            return [None] * len(asked)
        entries = self._boards.open_board(first.board)
        ranking = entries.rankings[first.column_index]
        owners = [each.owner for each in asked]
        found = await self._store.for_board(first.board).read(
            lambda: ranking.read_around_owners(owners, better_rows=first.better_rows, worse_rows=first.worse_rows)
        )
        if found:
            check_copy(first.board, next(iter(found.values())).totals)
        else:
            await read_single(self._store.for_board(first.board), lambda: read_totals([first.board]))
        return [found.get(number) for number in range(len(asked))]


def read_owner_on_boards(boards: Sequence[Entries], owner: str) -> Program[list[EntryRead]]:
    """Return the owner's entry on each of these boards, with the board's totals, in the order of `boards`.

    This takes one statement for all totals, one for each table that boards share, and one for each other board.

    Raises:
        UnknownBoardError, BoardChangedError: see `read_totals`.
    """
    totals = yield from read_totals([entries.board for entries in boards])
    found: dict[int, Entry] = {}
    own: dict[int, Entries] = {}
    shared: list[Entries] = []
    for entries in boards:
        board = entries.board
        if board.table_key is not None and board.archived_us is None:
            shared.append(entries)
        elif totals[board.key].get(ALL_ENTRIES):
            own[board.key] = entries
    for key, entries in own.items():
        if (entry := (yield from entries.find_entries([owner])).get(owner)) is not None:
            found[key] = entry
    found |= yield from find_on_shared_tables(shared, owner)
    return [EntryRead(found.get(entries.board.key), totals[entries.board.key]) for entries in boards]


def _read_archive(entries: Entries, owners: Sequence[str]) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
    found = yield from entries.find_entries(owners)
    return found, (yield from read_totals([entries.board]))[entries.board.key]


def read_totals(boards: Sequence[Board]) -> Program[dict[int, dict[int, int]]]:
    """Return the totals of each board: for each board key, the numbers of entries by column index.

    Raises:
        UnknownBoardError: a board was deleted.
        BoardChangedError: a board is no longer the version that the caller passed.
    """
    totals = yield from find_totals(list({board.key for board in boards}))
    for board in boards:
        check_copy(board, totals[board.key])
    return totals


class _Around(NamedTuple):
    board: Board
    column_index: int
    better_rows: int
    worse_rows: int
    owner: str


def _shape(board: Board) -> tuple[int, int]:
    # A request may hold the version of a board from before a column was added. That version has shorter rows, so
    # requests for it are not coalesced with requests for the new version.
    return board.key, state_of(board)

"""The point reads that nearly every request makes, coalesced: entries with totals, and the rows around places."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from .boards import OpenBoards
from .coalesce import Coalescers
from .entries import Entries, read_with_totals
from .leaderboards import check_copy, check_there, count_entries, state_of
from .neighbours import OwnersNeighbours
from .records import Board, Entry
from .store import Program, Store


class EntryRead(NamedTuple):
    """An owner's entry and the totals of its board, of one snapshot."""

    entry: Entry | None
    totals: dict[int, int]  # entries by column index


class _Around(NamedTuple):
    board: Board
    column_index: int
    better_rows: int
    worse_rows: int
    owner: str


class EntryReads:
    """Answers many concurrent point reads with few statements."""

    def __init__(
        self, store: Store, boards: OpenBoards, *, point_reads_per_batch_max: int, reads_waiting_max: int, lanes: int
    ) -> None:
        self._store, self._boards = store, boards
        batch_max, waiting_max = point_reads_per_batch_max, reads_waiting_max
        self._entries = Coalescers(self._read_entries, batch_max=batch_max, waiting_max=waiting_max, lanes=lanes)
        self._around_owners = Coalescers(self._read_owners, batch_max=batch_max, waiting_max=waiting_max, lanes=lanes)

    def read(self, board: Board, owner: str) -> asyncio.Future[EntryRead]:
        """The entry of an owner, None inside where there is none.

        Raises:
            StoreBusy: too many reads are waiting.
        """
        return self._entries.ask(self._store.of(board.id), _shape(board), (board, owner))

    def around_owner(
        self, board: Board, column_index: int, owner: str, *, better_rows: int, worse_rows: int
    ) -> asyncio.Future[OwnersNeighbours | None]:
        """The rows on both sides of an owner's; None where the owner has no value in the column, or is in an archive.

        Raises:
            StoreBusy: too many reads are waiting.
        """
        asked = _Around(board, column_index, better_rows, worse_rows, owner)
        kind = (*_shape(board), column_index, better_rows, worse_rows)
        return self._around_owners.ask(self._store.of(board.id), kind, asked)

    async def _read_entries(self, asked: list[tuple[Board, str]]) -> list[EntryRead]:
        entries, _ = self._boards.open(asked[0][0])
        owners = list({owner for _, owner in asked})
        if entries.board.archived_us is not None:
            store = self._store.of(entries.board.id)
            found, totals = await store.read(lambda: _of_archive(entries, owners))
            return [EntryRead(found.get(owner), totals) for _, owner in asked]
        found, totals = read_with_totals(await self._store.of(asked[0][0].id).read_one(entries.with_totals(owners)))
        await self._check(asked[0][0], totals)
        return [EntryRead(found.get(owner), totals) for _, owner in asked]

    async def _read_owners(self, asked: list[_Around]) -> list[OwnersNeighbours | None]:
        first = asked[0]
        if first.board.archived_us is not None:
            return [None] * len(asked)
        entries, _ = self._boards.open(first.board)
        neighbours = entries.rankings[first.column_index].neighbours
        owners = [each.owner for each in asked]
        found = await self._store.of(first.board.id).read(
            lambda: neighbours.around_owners(owners, better_rows=first.better_rows, worse_rows=first.worse_rows)
        )
        await self._check(first.board, next(iter(found.values())).totals if found else {})
        return [found.get(number) for number in range(len(asked))]

    async def _check(self, board: Board, totals: dict[int, int]) -> None:
        """That the board is there and what it was: in a table of its own its rows would be missing or be it.

        Raises:
            BoardChanged, UnknownBoard
        """
        check_copy(board, totals)
        if board.is_guest and not totals:
            store = self._store.of(board.id)
            await store.read(lambda: check_there(store.dialect, board))


def _shape(board: Board) -> tuple[int, int]:
    # One that was found before a column was added is another kind: its rows are shorter.
    return board.key, state_of(board)


def _of_archive(entries: Entries, owners: Sequence[str]) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
    found = yield from entries.by_owners(owners)
    totals = (yield from count_entries(entries.dialect, [entries.board.key]))[entries.board.key]
    if not totals:
        yield from check_there(entries.dialect, entries.board)
    check_copy(entries.board, totals)
    return found, totals

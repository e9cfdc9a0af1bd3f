"""The positions of one owner on many boards, in few statements, whatever the number of boards.

Each store is read at most twice, each time in one snapshot: first all entries, then the counts of all ranks that must
be counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from service.context import Context
from service.contract.queries import RankMode
from service.contract.responses.positions import Position
from service.ranks.locator import CountStarts, LocatedRank, Locator, WantedRank
from storage.reads.point_reads import read_owner_on_boards, read_totals
from storage.records import Board
from storage.store import Program, Store


class BoardColumn(NamedTuple):
    board: Board
    column_index: int


class _Sought(NamedTuple):
    """An owner's cell on a board, and the board's locator and totals, from which the rank is found."""

    locator: Locator
    wanted: WantedRank
    totals: dict[int, int]


class _Count(NamedTuple):
    """A rank that must be counted, and what the count starts from."""

    sought: _Sought
    starts: CountStarts

    def reads_more_than(self, rows_max: int, mode: RankMode) -> bool:
        locator, wanted, totals = self.sought
        return totals.get(wanted.column_index, 0) > rows_max and locator.may_read_many_rows(wanted, mode, self.starts)


async def find_positions(
    context: Context, asked: Sequence[BoardColumn], owner: str, mode: RankMode = "auto"
) -> list[Position | None]:
    """Return the owner's positions in the order of `asked`; None where the owner has no value.

    Raises:
        UnknownBoardError, BoardChangedError: a board was deleted or has changed since this process read it.
    """
    by_store: dict[Store, list[int]] = defaultdict(list)
    for number, each in enumerate(asked):
        by_store[context.store_for_board(each.board)].append(number)
    found: list[Position | None] = [None] * len(asked)
    for store, numbers in by_store.items():
        these = await _of_store(context, store, [asked[number] for number in numbers], owner, mode)
        for number, position in zip(numbers, these, strict=True):
            found[number] = position
    return found


async def _of_store(
    context: Context, store: Store, asked: Sequence[BoardColumn], owner: str, mode: RankMode
) -> list[Position | None]:
    boards = [context.boards.open_board(each.board)[0] for each in asked]
    reads = await store.read(lambda: read_owner_on_boards(boards, owner))
    sought: dict[int, _Sought] = {}
    for number, (each, (entry, totals)) in enumerate(zip(asked, reads, strict=True)):
        cell = None if entry is None else entry.cells[each.column_index]
        if isinstance(cell, str):
            sought[number] = _Sought(
                context.ranks.find_locator(each.board), WantedRank(each.column_index, cell, owner), totals
            )
    located = await _located(context, store, list(sought.values()), mode)
    found: list[Position | None] = [None] * len(asked)
    for (number, (locator, wanted, _)), (at, totals) in zip(sought.items(), located, strict=True):
        found[number] = locator.make_position(wanted, at, totals)
    return found


async def _located(
    context: Context, store: Store, sought: Sequence[_Sought], mode: RankMode
) -> list[tuple[LocatedRank, dict[int, int]]]:
    """Return ranks with the totals of their boards. Count ranks for which no curve is good enough, in one snapshot."""
    found = [each.locator.locate_without_count(each.wanted, mode) for each in sought]
    counts = [
        _Count(each, each.locator.find_count_starts([each.wanted.column_index]))
        for each, at in zip(sought, found, strict=True)
        if not at
    ]
    rows_max = context.settings.light_read_rows_max
    heavy = any(count.reads_more_than(rows_max, mode) for count in counts)

    def count_ranks() -> Program[list[tuple[LocatedRank, dict[int, int]]]]:
        totals = yield from read_totals([count.sought.locator.board for count in counts])
        answers = []
        for each, starts in counts:
            at = yield from each.locator.count_rank(each.wanted, mode, starts)
            answers.append((at, totals[each.locator.board.key]))
        return answers

    rest = iter(await store.read(count_ranks, heavy=heavy) if counts else [])
    return [next(rest) if at is None else (at, each.totals) for each, at in zip(sought, found, strict=True)]

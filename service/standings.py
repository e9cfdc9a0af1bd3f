"""Where one owner stands on many boards: few statements, however many boards are asked about.

The rule: first all entries are read, then all ranks that need a count are counted, each in one snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from storage.owner_entries import owner_on_boards, totals_of_boards
from storage.records import Board
from storage.store import Program, Store

from .context import Context
from .position_answers import Position
from .positions import Footings, Located, Locator, Wanted
from .queries import RankMode


class Asked(NamedTuple):
    """A ranked column of a board."""

    board: Board
    column_index: int


class _Sought(NamedTuple):
    """A cell whose rank is sought on its board."""

    locator: Locator
    wanted: Wanted
    totals: dict[int, int]


class _Count(NamedTuple):
    """One that has to be counted, and what the count starts from."""

    sought: _Sought
    footings: Footings

    def reads_more_than(self, rows_max: int, mode: RankMode) -> bool:
        """Whether the count may read more rows."""
        locator, wanted, totals = self.sought
        return totals.get(wanted.column_index, 0) > rows_max and locator.counts_far([wanted], mode, self.footings)


async def standings(
    context: Context, asked: Sequence[Asked], owner: str, mode: RankMode = "auto"
) -> list[Position | None]:
    """The owner's positions in the order asked for, None where there is no value.

    Raises:
        UnknownBoard, BoardChanged: a board is not what this process knew.
    """
    by_store: dict[Store, list[int]] = defaultdict(list)
    for number, each in enumerate(asked):
        by_store[context.store_of(each.board)].append(number)
    found: list[Position | None] = [None] * len(asked)
    for store, numbers in by_store.items():
        these = await _of_store(context, store, [asked[number] for number in numbers], owner, mode)
        for number, position in zip(numbers, these, strict=True):
            found[number] = position
    return found


async def _of_store(
    context: Context, store: Store, asked: Sequence[Asked], owner: str, mode: RankMode
) -> list[Position | None]:
    boards = [context.boards.open(each.board)[0] for each in asked]
    reads = await store.read(lambda: owner_on_boards(store.dialect, boards, owner))
    sought: dict[int, _Sought] = {}
    for number, (each, (entry, totals)) in enumerate(zip(asked, reads, strict=True)):
        cell = None if entry is None else entry.cells[each.column_index]
        if isinstance(cell, str):
            sought[number] = _Sought(context.locators.of(each.board), Wanted(each.column_index, cell, owner), totals)
    located = await _located(context, store, list(sought.values()), mode)
    found: list[Position | None] = [None] * len(asked)
    for (number, (locator, wanted, _)), (at, totals) in zip(sought.items(), located, strict=True):
        found[number] = locator.position(wanted, at, totals)
    return found


async def _located(
    context: Context, store: Store, sought: Sequence[_Sought], mode: RankMode
) -> list[tuple[Located, dict[int, int]]]:
    """Ranks with the totals of their boards: off the curve, and counted in one snapshot where that is not enough."""
    found = [each.locator.at_once(each.wanted, mode) for each in sought]
    counts = [
        _Count(each, each.locator.footings([each.wanted])) for each, at in zip(sought, found, strict=True) if not at
    ]
    rows_max = context.settings.light_read_rows_max
    heavy = any(count.reads_more_than(rows_max, mode) for count in counts)

    def counted() -> Program[list[tuple[Located, dict[int, int]]]]:
        totals = yield from totals_of_boards(store.dialect, [count.sought.locator.board for count in counts])
        answers = []
        for each, footings in counts:
            [at] = yield from each.locator.counted([each.wanted], mode, footings)
            answers.append((at, totals[each.locator.board.key]))
        return answers

    rest = iter(await store.read(counted, heavy=heavy) if counts else [])
    return [next(rest) if at is None else (at, each.totals) for each, at in zip(sought, found, strict=True)]

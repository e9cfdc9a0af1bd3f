"""An owner's position on a board that may be open, closed or archived, and the one that a cell would have there.

The rule: exact wherever the board keeps its rows or its archive; a board that another process has archived meanwhile is
asked again as what it is by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from storage.errors import BoardChanged, UnknownBoard
from storage.records import Board

from .context import Context
from .position_answers import Position
from .positions import Wanted

T = TypeVar("T")
_RENEWALS_MAX = 3  # as for every request, see `renewal`


async def final_position(context: Context, board_id: str, column_index: int, owner: str) -> Position | None:
    """An owner's exact position; None where the owner has no value in the column, or nothing was posted to the board.

    Raises:
        UnknownBoard: no family lists it either.
    """

    async def of(board: Board) -> Position | None:
        read = await context.reads.read(board, owner)
        cell = None if read.entry is None else read.entry.cells[column_index]
        return await _located(context, board, Wanted(column_index, cell, owner)) if isinstance(cell, str) else None

    return await _renewed(context, board_id, of)


async def position_of_cell(context: Context, board_id: str, column_index: int, cell: str) -> Position | None:
    """The position that an arrival with this cell would have; None where nothing was posted to the board.

    Raises:
        UnknownBoard: no family lists it either.
    """

    async def of(board: Board) -> Position | None:
        if board.is_unreached:
            return None
        return await _located(context, board, Wanted(column_index, cell, None))

    return await _renewed(context, board_id, of)


async def _located(context: Context, board: Board, wanted: Wanted) -> Position:
    locator = context.locators.of(board)
    (located,), totals = await locator.locate([wanted], "exact")
    return locator.position(wanted, located, totals)


async def _renewed(context: Context, board_id: str, ask: Callable[[Board], Awaitable[T]]) -> T:
    board = await context.catalog.find(board_id)
    for _ in range(_RENEWALS_MAX):
        try:
            return await ask(board)
        except (BoardChanged, UnknownBoard):
            board = await context.catalog.reread(board_id)
    return await ask(board)

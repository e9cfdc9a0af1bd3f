"""Where a value stands among the entries of several leaderboards together: shards of one game, or regions.

The rule: the parts are asked as any position is, and only their counts are added; so the bounds hold as each part's do.
"""

from __future__ import annotations

from predictor import Bounded, added_up
from storage.errors import UnknownColumn
from storage.records import Board

from .context import Context
from .owner_views import find_column
from .position_answers import Position, PositionMethod
from .positions import percentile
from .problems import Problem
from .queries import ValuePositionsQuery
from .routes import Call

# Of the parts' methods the answer names the one that says least: a sum is no better than its worst part.
_METHODS: tuple[PositionMethod, ...] = ("count", "knot", "gap", "curve")


async def added_boards(context: Context, call: Call, first: Board, index: int) -> list[tuple[Board, int]]:
    """The boards that `with` names, each with the column's position there.

    Raises Problem: a board twice, one where the column is ranked in another way, or more values than are allowed.
    """
    query: ValuePositionsQuery = call.query
    column = first.spec.columns[index]
    asked, most = len(query.values) * (1 + len(query.with_)), context.settings.query_values_max
    if asked > most:
        raise Problem("too_many_values", f"{asked} values, one a leaderboard, are more than {most}", pointer="values")
    found: list[tuple[Board, int]] = []
    for position, board_id in enumerate(query.with_):
        pointer = f"with/{position}"
        if board_id in (first.id, *query.with_[:position]):
            raise Problem("bad_request", f"{board_id!r} would be counted twice", pointer=pointer)
        try:
            board, other_index = await find_column(context, board_id, column.name)
        except UnknownColumn as error:
            raise UnknownColumn(error.detail, pointer=pointer) from error
        other = board.spec.columns[other_index]
        if (other.best, other.scale) != (column.best, column.scale):
            raise Problem("bad_request", f"{column.name!r} of {board_id!r} is ranked in another way", pointer=pointer)
        found.append((board, other_index))
    return found


def together(parts: list[Position]) -> Position:
    """The position of one value among the entries of all parts."""
    rank, low, high = added_up(Bounded(part.rank, part.low, part.high) for part in parts)
    total = sum(part.total for part in parts)
    return Position(
        column=parts[0].column,
        value=parts[0].value,
        rank=rank,
        low=low,
        high=high,
        exact=low == high,
        method=max((part.method for part in parts), key=_METHODS.index),
        total=total,
        percentile=percentile(rank, total),
        as_of=min(part.as_of for part in parts),
    )

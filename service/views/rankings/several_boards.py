"""The rank of a value among the entries of several leaderboards together, such as those of the regions of a game.

The numbers of better entries on all boards are added up, and so are the ends of the brackets. Therefore the bracket of
the sum is as reliable as the brackets of the boards.
"""

from __future__ import annotations

from predictor import BoundedRank, add_up_ranks
from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import ValuePositionsQuery
from service.contract.responses.positions import Position, PositionMethod
from service.contract.routes import Call
from service.ranks.locator import percentile
from service.views.owners.owners import find_column
from storage.errors import UnknownColumnError
from storage.records import Board

# From the best method to the worst. The answer has the worst of the boards' methods, because a sum is no more exact
# than its least exact part.
_METHODS: tuple[PositionMethod, ...] = ("count", "knot", "gap", "curve")


async def find_added_boards(context: Context, call: Call, first: Board, index: int) -> list[tuple[Board, int]]:
    """Return the boards that `with` names, each with the index of the column there.

    Raises:
        UnknownBoardError, UnknownColumnError: one of the boards, or the column on one of them, does not exist.
        ProblemError: a board is named twice or ranks the column in another way, or there are too many values.
    """
    query: ValuePositionsQuery = call.query
    column = first.spec.columns[index]
    asked, most = len(query.values) * (1 + len(query.with_)), context.settings.query_values_max
    if asked > most:
        raise ProblemError(
            "too_many_values",
            f"{asked} values, counted once for each leaderboard, are more than {most}",
            pointer="values",
        )
    found: list[tuple[Board, int]] = []
    for position, board_id in enumerate(query.with_):
        pointer = f"with/{position}"
        if board_id in (first.id, *query.with_[:position]):
            raise ProblemError("bad_request", f"{board_id!r} would be counted twice", pointer=pointer)
        try:
            board, other_index = await find_column(context, board_id, column.name)
        except UnknownColumnError as error:
            raise UnknownColumnError(error.detail, pointer=pointer) from error
        other = board.spec.columns[other_index]
        if (other.best, other.scale) != (column.best, column.scale):
            raise ProblemError(
                "bad_request", f"{column.name!r} of {board_id!r} has another best or scale", pointer=pointer
            )
        found.append((board, other_index))
    return found


def add_up_positions(parts: list[Position]) -> Position:
    """Return the position of a value among the entries of all boards, from its position on each board."""
    rank, low, high = add_up_ranks(BoundedRank(part.rank, part.low, part.high) for part in parts)
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

"""The comparison of an owner's positions with those of the previous period.

The answer says how many places the owner gained by the owner's own value (`moved`), and how many by the values of
others (`field_moved`). To compute `moved`, the owner's current value is ranked on the earlier board, without the
owner's own earlier entry. `moved` is the owner's earlier rank minus that rank. `field_moved` is the remaining part of
the change of rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import RankMode
from service.contract.responses.positions import OwnerPositions, Position, Previous
from service.contract.values import parse_decimal
from service.ranks.locator import LocatedRank, WantedRank
from service.views.retry_on_change import retry_with_boards
from storage.boards.family_ids import board_id, parse_board_id
from storage.records import Best, Board

from .owner_on_boards import BoardColumn, find_positions


def find_board_before(board: Board) -> str | None:
    """Return the id of the board for the previous period, or None.

    Raises:
        ProblemError: the board belongs to no family.
    """
    named = None if board.family_key is None else parse_board_id(board.id)
    if named is None:
        detail = f"{board.id!r} is not the leaderboard of a period, so no period comes before it"
        raise ProblemError("bad_request", detail, pointer="compare")
    before = named.period.previous
    return None if before is None else board_id(named.family, before.id, named.facets)


async def add_previous(
    context: Context, board: Board, before_id: str | None, answer: OwnerPositions, mode: RankMode
) -> OwnerPositions:
    """Set `previous` in each position of the answer, and return the answer. Without `before_id`, `previous` is None."""
    if before_id is None:
        for position in answer.positions:
            position.previous = None
        return answer

    async def compare_positions(made: Mapping[str, Board]) -> list[Previous]:
        return await _previous(context, board, before_id, made.get(before_id), answer, mode)

    found = await retry_with_boards(context.catalog, [before_id], compare_positions)
    for position, previous in zip(answer.positions, found, strict=True):
        position.previous = previous
    return answer


async def _previous(
    context: Context, board: Board, before_id: str, before: Board | None, answer: OwnerPositions, mode: RankMode
) -> list[Previous]:
    indexes = [board.column_index[position.column] for position in answer.positions]
    then: list[Position | None] = [None] * len(indexes)
    if before is not None:
        then = await find_positions(context, [BoardColumn(before, index) for index in indexes], answer.owner, mode)
    values = {
        index: _scaled(board, index, position)
        for index, position in zip(indexes, answer.positions, strict=True)
        if isinstance(position, Position)
    }
    ranked = await _ranked(context, board, before, values, mode)
    found = []
    for index, position, earlier in zip(indexes, answer.positions, then, strict=True):
        previous = Previous(
            board=before_id, position=earlier, value_position=ranked.get(index), moved=None, field_moved=None
        )
        if isinstance(position, Position) and earlier is not None:
            own = _scaled(board, index, earlier)
            previous.moved = earlier.rank - _rank_instead(board, index, values[index], own, earlier, ranked[index])
            previous.field_moved = earlier.rank - position.rank - previous.moved
        found.append(previous)
    return found


def _scaled(board: Board, index: int, position: Position) -> int:
    """Return the value of a position in units of the column's last digit."""
    value = position.value
    return parse_decimal(str(value) if isinstance(value, int) else value, board.spec.columns[index].scale)


def _rank_instead(board: Board, index: int, value: int, own: int, earlier: Position, ranked: Position) -> int:
    """Return the rank that the owner would have had on the earlier board with `value` instead of `own`."""
    if value == own:
        return earlier.rank
    own_is_better = own > value if board.spec.columns[index].best is Best.HIGH else own < value
    return max(1, ranked.rank - own_is_better)


async def _ranked(
    context: Context, board: Board, before: Board | None, values: Mapping[int, int], mode: RankMode
) -> dict[int, Position]:
    """Return, by column index, the positions that newcomers with these values would have on the earlier board."""
    locator = context.ranks.find_locator(board if before is None else before)
    rankings = locator.entries.rankings
    wanted = [WantedRank(index, rankings[index].padding.pad_arrival(value), None) for index, value in values.items()]
    if before is None:  # no post has reached the earlier board, so every value would have ranked first
        now_us = context.now_us()
        found = [locator.make_position(each, LocatedRank(1, 1, 1, "count", now_us), {}) for each in wanted]
    else:
        found = await locator.find_positions(wanted, mode)
    return dict(zip(values, found, strict=True))

"""An owner's positions beside those of the period before, so that a client can tell "you moved" from "the field moved".

The rule: the value of now is ranked on the board of then as any value is, and what moved is told by the others alone:
there the owner's own entry of then is not counted, and an equal value has moved nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from storage.family_ids import board_id, parse_board_id
from storage.records import Best, Board

from ..context import Context
from ..position_answers import OwnerPositions, Position, Previous
from ..positions import Located, Wanted
from ..problems import Problem
from ..queries import RankMode
from ..renewal import with_made
from ..standings import Asked, standings
from ..values import parse_decimal


def board_before(board: Board) -> str | None:
    """The id of the board of the period before; None of all time.

    Raises:
        Problem: the board is no family's.
    """
    named = None if board.family_key is None else parse_board_id(board.id)
    if named is None:
        detail = f"{board.id!r} is not the leaderboard of a period: none is before it"
        raise Problem("bad_request", detail, pointer="compare")
    before = named.period.previous
    return None if before is None else board_id(named.family, before.id, named.facets)


async def add_previous(
    context: Context, board: Board, before_id: str | None, answer: OwnerPositions, mode: RankMode
) -> OwnerPositions:
    """The answer, with `previous` in each of its positions: as on the board of that id, null without one."""
    if before_id is None:
        for position in answer.positions:
            position.previous = None
        return answer

    async def compared(made: Mapping[str, Board]) -> list[Previous]:
        return await _previous(context, board, before_id, made.get(before_id), answer, mode)

    found = await with_made(context.catalog, [before_id], compared)
    for position, previous in zip(answer.positions, found, strict=True):
        position.previous = previous
    return answer


async def _previous(
    context: Context, board: Board, before_id: str, before: Board | None, answer: OwnerPositions, mode: RankMode
) -> list[Previous]:
    indexes = [board.column_index[position.column] for position in answer.positions]
    then: list[Position | None] = [None] * len(indexes)
    if before is not None:
        then = await standings(context, [Asked(before, index) for index in indexes], answer.owner, mode)
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
    """The value of a position, in units of the column's last digit."""
    value = position.value
    return parse_decimal(str(value) if isinstance(value, int) else value, board.spec.columns[index].scale)


def _rank_instead(board: Board, index: int, value: int, own: int, earlier: Position, ranked: Position) -> int:
    """The rank that an owner would have had on the earlier board with this value in the place of the own one."""
    if value == own:
        return earlier.rank
    own_is_better = own > value if board.spec.columns[index].best is Best.HIGH else own < value
    return max(1, ranked.rank - own_is_better)


async def _ranked(
    context: Context, board: Board, before: Board | None, values: Mapping[int, int], mode: RankMode
) -> dict[int, Position]:
    """The positions that arrivals with these values would have on the earlier board, by column index."""
    locator = context.locators.of(board if before is None else before)
    rankings = locator.entries.rankings
    wanted = [Wanted(index, rankings[index].padding.pad_arrival(value), None) for index, value in values.items()]
    if before is None:  # nothing was posted to it: everyone would have been the first
        now_us = context.now_us()
        located, totals = [Located(1, 1, 1, "count", now_us) for _ in wanted], dict[int, int]()
    else:
        located, totals = await locator.locate(wanted, mode)
    return {each.column_index: locator.position(each, at, totals) for each, at in zip(wanted, located, strict=True)}

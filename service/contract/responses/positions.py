"""The answers about positions: of owners, of values, and of one owner on many leaderboards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.values import Number, Time, one_of

PositionMethod = Literal["count", "knot", "gap", "curve"]


class NextPlace(msgspec.Struct, kw_only=True, gc=False):
    """The next better place: its rank with the bracket, its value, and the `points` that the owner lacks to take it.

    `points` is the difference between the owner's value and the value of that place. If the earliest of equal values is
    better, `points` is greater by one unit of the last digit. In this case it is null if the owner would need a value
    outside the column's range. `as_of` may differ from that of the owner's position.
    """

    rank: int
    low: int
    high: int
    exact: bool
    as_of: Time
    value: Number
    points: Number | None


class Position(msgspec.Struct, kw_only=True, gc=False):
    """A rank with its bracket: the true rank as of `as_of` lies between `low` and `high`.

    `exact` is true if `low` and `high` are equal. `next` and `previous` are present if the request asks for them.
    `next` is null if nobody is better. `previous` is null if there is no previous period.
    """

    column: str
    value: Number
    rank: int
    low: int
    high: int
    exact: bool
    method: PositionMethod
    total: int
    percentile: float
    as_of: Time
    next: NextPlace | UnsetType | None = UNSET
    previous: Previous | UnsetType | None = UNSET


class NoPosition(msgspec.Struct, kw_only=True):
    """A column in which the owner has no value."""

    column: str
    value: None = None
    rank: None = None
    previous: Previous | UnsetType | None = UNSET


class Previous(msgspec.Struct, kw_only=True):
    """A comparison with the previous period. `position` is the owner's position in that period.

    `value_position` is the position that a new entry with the current value would have in that period. The owner's own
    entry of that period is counted, too. If the earliest of equal values is better, the new entry stands behind equal
    values. A member is null if the value that it needs is missing.
    """

    board: str
    position: Position | None
    value_position: Position | None


OwnerPosition = Annotated[Any, one_of(Position, NoPosition)]


class Positions(msgspec.Struct, gc=False):
    """The positions of values, in the order of the request."""

    positions: list[Position]


class OwnerPositions(msgspec.Struct, gc=False):
    """An owner's positions, in the order of the request."""

    owner: str
    positions: list[OwnerPosition]


class BoardPosition(Position, kw_only=True, gc=False):
    """A position on a leaderboard, with the id of the leaderboard."""

    board: str


class NoBoardPosition(NoPosition, kw_only=True):
    """A leaderboard on which the owner has no value in the column."""

    board: str


AnyBoardPosition = Annotated[Any, one_of(BoardPosition, NoBoardPosition)]


class BoardPositions(msgspec.Struct):
    """One owner's positions on many leaderboards, in the order of the request."""

    owner: str
    positions: list[AnyBoardPosition]

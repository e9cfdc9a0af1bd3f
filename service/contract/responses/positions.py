"""The answers about positions: of owners, of values, and of one owner on many leaderboards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.values import Number, one_of

from .curves import Time

PositionMethod = Literal["count", "knot", "gap", "curve"]


class NextPlace(msgspec.Struct, kw_only=True, gc=False):
    """The next better place: its rank with the bracket, the value that holds it, and how much is missing to take it.

    If the earliest of equal values is better, `points` is one unit more than the difference of the values. It is null
    if the column's range ends before that.
    """

    rank: int
    low: int
    high: int
    exact: bool
    value: Number
    points: Number | None


class Position(msgspec.Struct, kw_only=True, gc=False):
    """A rank and the bracket [low, high] that the true one lies in as of `as_of`; `exact` where they are equal.

    `next` and `previous` are there if they were asked for. `next` is null if nobody is better. `previous` is null if no
    period comes before.
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
    """The period before: the owner's `position` there, and the position that the current value would have had instead.

    `value_position` ranks the current value among the other owners of that period. If the earliest of equal values is
    better, it stands behind those with the same value. The owner's own value of that period does not count; if it
    equals the current one, the position is the same. `moved` is how many places the owner's value has gained among the
    values of that period (`position.rank` - `value_position.rank`). `field_moved` is how many places the owner has
    gained because the others' values changed (`value_position.rank` - current `rank`). A member is null if a value that
    it needs is missing.
    """

    board: str
    position: Position | None
    value_position: Position | None
    moved: int | None
    field_moved: int | None


if TYPE_CHECKING:
    OwnerPosition: TypeAlias = Position | NoPosition
else:
    OwnerPosition = one_of(Position, NoPosition)


class Positions(msgspec.Struct, gc=False):
    """Positions of values, in the order asked for."""

    positions: list[Position]


class OwnerPositions(msgspec.Struct, gc=False):
    """An owner's positions, in the order asked for."""

    owner: str
    positions: list[OwnerPosition]


class BoardPosition(Position, kw_only=True, gc=False):
    """A position that names its leaderboard."""

    board: str


class NoBoardPosition(NoPosition, kw_only=True):
    """A leaderboard on which the owner has no value in the column."""

    board: str


if TYPE_CHECKING:
    AnyBoardPosition: TypeAlias = BoardPosition | NoBoardPosition
else:
    AnyBoardPosition = one_of(BoardPosition, NoBoardPosition)


class BoardPositions(msgspec.Struct):
    """One owner's positions on many leaderboards, in the order asked for."""

    owner: str
    positions: list[AnyBoardPosition]

"""The types of the answers with positions: of an owner, of values, and of one owner on many leaderboards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.values import Number, Time, one_of

PositionMethod = Literal["count", "knot", "gap", "curve"]


class NextPlace(msgspec.Struct, kw_only=True, gc=False):
    """The next better entry: its rank (from `low` to `high`), its value, and the `points` that the owner still needs.

    `points` is the difference between the two values. If time or other columns order equal values, an equal value may
    not be enough, so `points` is one unit of the last digit more; it is null if the owner would then need a value
    outside the column's range. The owner's own position may have another `as_of`.
    """

    rank: int
    low: int
    high: int
    exact: bool
    as_of: Time
    value: Number
    points: Number | None


class Position(msgspec.Struct, kw_only=True, gc=False):
    """A rank with its bracket: at the time `as_of`, the true rank is between `low` and `high`.

    `exact` is true if `low` and `high` are equal. `next` and `previous` are present if the request asks for them;
    `next` is null if nobody is better, and `previous` if there is no previous period. `tier` is present if the column
    has tiers: the tier of `rank`, null if no tier fits. `tier_certain` is present, and false, if the ranks from `low`
    to `high` span several tiers. Only positions on many leaderboards have `board`, the id of the leaderboard. An
    owner's position has `reached_at` if the earlier of two equal values ranks better: when the owner reached the value.
    Only results of posts with `moved=true` have `rank_before`: the rank that the owner's previous value would have now.
    It is null if there was none.
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
    tier: str | UnsetType | None = UNSET
    tier_certain: bool | UnsetType = UNSET
    reached_at: Time | UnsetType = UNSET
    rank_before: int | UnsetType | None = UNSET
    next: NextPlace | UnsetType | None = UNSET
    previous: Previous | UnsetType | None = UNSET
    board: str | UnsetType = UNSET


class NoPosition(msgspec.Struct, kw_only=True):
    """A column in which the owner has no value or is hidden: `value` and `rank` are null."""

    column: str
    value: None = None
    rank: None = None
    rank_before: int | UnsetType | None = UNSET
    previous: Previous | UnsetType | None = UNSET
    board: str | UnsetType = UNSET


class Previous(msgspec.Struct, kw_only=True):
    """A comparison with the previous period. `board` is the id of the leaderboard of that period.

    `position` is the owner's position in that period, or null. `value_position` is the position that a new entry with
    the owner's current value would have had there; null if the owner has no value now. The owner's own entry of that
    period is counted, too. If time or other columns order equal values, these precede the new entry.
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


class BoardPositions(OwnerPositions, gc=False):
    """One owner's positions on many leaderboards, in the order of the request."""

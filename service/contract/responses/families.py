"""The answers about families, and about the history of an owner."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.contract.requests import TiesName

from .boards import ColumnAnswer, PredictorAnswer
from .curves import Time
from .positions import Position


class FamilyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A family: its full specification, and how many of its leaderboards have received posts."""

    id: str
    columns: list[ColumnAnswer]
    ties: TiesName
    table: Literal["own", "shared"]
    predictor: PredictorAnswer
    periods: list[str]
    time_zone: str
    facets: list[list[str]]
    grace_seconds: int
    keep: dict[str, int]
    boards: int
    created_at: Time


Bound = Annotated[str | None, Meta(description="ISO 8601 in UTC, with microseconds")]


class PeriodAnswer(msgspec.Struct, frozen=True):
    """A period. If `closed` is true, late posts to the period are rejected.

    For the all-time period, `starts_at`, `ends_at` and `closed` are null.
    """

    name: str
    starts_at: Bound
    ends_at: Bound
    closed: bool | None


class FamilyBoardAnswer(msgspec.Struct, frozen=True):
    """A family's leaderboard for one period and some facet values. `previous` is the leaderboard of the period before.

    If `archived` is true, requests to the leaderboard are answered from its archive. A request for something that the
    archive does not hold is answered with 410.
    """

    board: str
    period: PeriodAnswer
    previous: str | None
    archived: bool


class FacetValue(msgspec.Struct, frozen=True):
    """A value of a facet, its leaderboard, and how many owners have an entry on that leaderboard."""

    value: str
    board: str
    entries: int


class FacetList(msgspec.Struct, frozen=True):
    """The values that posts of one period had for a facet. `next` is the next page's cursor; null on the last page."""

    facet: str
    period: PeriodAnswer
    values: list[FacetValue]
    next: str | None


class PastPosition(msgspec.Struct, frozen=True):
    """A closed period, its leaderboard, and the owner's final position on that leaderboard.

    The position is null if the owner had no value in the column.
    """

    board: str
    period: PeriodAnswer
    position: Position | None


class HistoryAnswer(msgspec.Struct, frozen=True):
    """An owner's final positions in closed periods, the newest period first. Periods without a position are listed too.

    `next` is the cursor of older periods; null on the last page.
    """

    owner: str
    column: str
    history: list[PastPosition]
    next: str | None

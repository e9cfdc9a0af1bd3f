"""The answers about families: their specifications, boards, facets, and the history of an owner."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.contract.requests import TiesName

from .boards import ColumnAnswer, PredictorAnswer
from .curves import Time
from .positions import Position


class FamilyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A family: its full specification, and how many leaderboards posts have reached."""

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


Bound = Annotated[str | None, Meta(description="ISO 8601 in UTC, microseconds")]


class PeriodAnswer(msgspec.Struct, frozen=True):
    """A period; of all time the last three are null. `closed`: its late posts are rejected."""

    name: str
    starts_at: Bound
    ends_at: Bound
    closed: bool | None


class FamilyBoardAnswer(msgspec.Struct, frozen=True):
    """The leaderboard of a time and of facet values, and the one of the period before.

    One that is `archived` answers what its archive holds, 410 the rest.
    """

    board: str
    period: PeriodAnswer
    previous: str | None
    archived: bool


class FacetValue(msgspec.Struct, frozen=True):
    """A value of a facet, its leaderboard, and the owners that have an entry there."""

    value: str
    board: str
    entries: int


class FacetList(msgspec.Struct, frozen=True):
    """The values of a facet in one period that posts had; `next` is the cursor of those after them."""

    facet: str
    period: PeriodAnswer
    values: list[FacetValue]
    next: str | None


class PastPosition(msgspec.Struct, frozen=True):
    """A period that is closed, its leaderboard, and where the owner ended there; null where it had no value."""

    board: str
    period: PeriodAnswer
    position: Position | None


class HistoryAnswer(msgspec.Struct, frozen=True):
    """An owner's positions by closed period, newest first, none left out; `next` is the cursor of the ones before."""

    owner: str
    column: str
    history: list[PastPosition]
    next: str | None

"""The JSON of leagues: bodies that callers send, and answers."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from storage.leagues.cohorts import COHORT_MAX, DIVISIONS_MAX, Zone
from storage.periods import PeriodKind
from storage.records import Absent, PredictorSpec, Ties

from .requests import (
    COLUMNS_MAX,
    LIST_BOUNDS,
    REWARDS_MAX,
    ColumnBody,
    ColumnName,
    FacetedPostBody,
    GraceSeconds,
    PeriodBody,
    PredictorBody,
    Reason,
    TiesSent,
)
from .responses.boards import ColumnAnswer, ProfileObject, Stats, TiesShown
from .values import TIER_PATTERN, Number, Time, matching

KEEP = 10  # closed periods of which a league keeps the cohorts, by default

DivisionName = Annotated[str, matching(TIER_PATTERN)]
_Moved = Annotated[int, Meta(ge=0, le=COHORT_MAX)]


class DivisionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A division of a league, and how many owners of each of its cohorts move when a period ends."""

    name: DivisionName
    promote: _Moved = 0
    """The number of the best owners, who rise to the next division. Nobody rises from the last one."""
    relegate: _Moved = 0
    """The number of the last owners, who fall to the division before. Nobody falls from the first one."""


class LeagueRewardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A reward of the best of a cohort. An owner gets the first one that fits."""

    name: Annotated[str, matching(TIER_PATTERN)]
    """No other reward of the league has the same name."""
    division: DivisionName | None = None
    """The only division whose owners get it. Default: all divisions."""
    to_rank: Annotated[int, Meta(ge=1, le=COHORT_MAX)]
    """The worst final rank in a cohort that gets it."""
    data: Annotated[Raw, Meta(extra_json_schema={"type": "object"})] | UnsetType = UNSET
    """A JSON object of at most 1,000 bytes. Every grant carries it. Default: `{}`."""


class PutLeague(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The specification of a league. It is a family with one kind of period; its leaderboards have cohorts."""

    columns: Annotated[list[ColumnBody], Meta(min_length=1, max_length=COLUMNS_MAX)]
    column: ColumnName
    """The ranked column that decides who rises and who falls."""
    ties: TiesSent = Ties.EARLIEST
    """As of a leaderboard. Where equal values share a rank, all or none of them rise or fall."""
    period: PeriodKind | PeriodBody
    """A period of the calendar except `all`, or one of any length."""
    time_zone: str = "UTC"
    """An IANA name: `Europe/Berlin`."""
    cohort: Annotated[int, Meta(ge=2, le=COHORT_MAX)]
    """The number of seats of a cohort."""
    divisions: Annotated[list[DivisionBody], Meta(min_length=1, max_length=DIVISIONS_MAX)]
    """The divisions, the best one last. Their rules can change at any time, and better ones can be appended."""
    rewards: Annotated[list[LeagueRewardBody], Meta(max_length=REWARDS_MAX)] = []
    """The prizes when a period ends. They can change until then."""
    absent: Absent = Absent.STAY
    """The cost of a period without a post: `stay` costs nothing, `relegate` one division, `leave` all of them."""
    grace_seconds: GraceSeconds | UnsetType = UNSET
    """The time after the end of a period during which late posts still count. Default: 0 for a new league. Until it has
    passed, owners of that period wait for their seats in the next one. It can only be shortened."""
    keep: Annotated[int, Meta(ge=1)] = KEEP
    """The number of closed periods that keep their rows and cohorts."""
    partition: Annotated[int, Meta(ge=0)] | None = None
    """The partition of the store in which it is created. Default: the service chooses."""
    predictor: PredictorBody = PredictorBody()
    reason: Reason | None = None


class LeaguePostBody(FacetedPostBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A post to a league. The first one of a period takes a seat in a cohort."""

    division: DivisionName | None = None
    """The division in which an owner who is new to the league begins. Others stay in theirs. A player token can't
    name one."""


class LeaguePostList(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Many posts to a league. The answer has their results in the same order."""

    posts: Annotated[list[LeaguePostBody], Meta(extra_json_schema=LIST_BOUNDS)]


class LeagueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A league with its full specification. `partition` is present if the store has several partitions."""

    id: str
    columns: list[ColumnAnswer]
    column: str
    ties: TiesShown
    period: str | PeriodBody
    time_zone: str
    cohort: int
    divisions: list[DivisionBody]
    rewards: list[LeagueRewardBody]
    absent: Absent
    grace_seconds: int
    keep: int
    partition: int | UnsetType = UNSET
    predictor: PredictorSpec
    created_at: Time


class LeagueList(msgspec.Struct, frozen=True):
    """A page of leagues in the order of their ids. `next` is the cursor of the next page; null on the last page."""

    leagues: list[LeagueAnswer]
    next: str | None


class LeagueEntry(msgspec.Struct, kw_only=True):
    """An owner in a cohort. `rank`, which is exact, and `value` are null if the owner has no value in the column."""

    rank: int | None
    owner: str
    value: Number | None
    zone: Zone
    updated_at: Time
    stats: Stats
    profile: ProfileObject | UnsetType | None = UNSET


class CohortEvent(msgspec.Struct, kw_only=True):
    """The data of an event `cohort`: a cohort of the current period as it is now, without profiles."""

    league: str
    period: str
    board: str
    ends_at: Time
    division: str
    cohort: str
    seats: int
    entries: list[LeagueEntry]


class CohortAnswer(CohortEvent, kw_only=True):
    """A cohort of a period, with all of its owners, best first. `seats` is their number.

    `settled` is true once the period is over and everybody in the cohort has moved.
    """

    settled: bool


class LeagueOwner(msgspec.Struct, kw_only=True):
    """An owner in the current period of a league, with all owners of its cohort, best first.

    Before its first post in the period, an owner has a division and no seat: `cohort` is null. After that post, an
    owner whose previous result is not known yet waits for a seat: `waiting` is true, and `division` is null; its posts
    count all the same. `position` and `zone` are null without a value, without a seat, and if the owner is hidden.
    """

    league: str
    owner: str
    period: str
    board: str
    ends_at: Time
    division: str | None
    cohort: str | None
    seats: int
    position: int | None
    zone: Zone | None
    waiting: bool
    entries: list[LeagueEntry]


class LeaguePast(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an owner in a closed period. `rank` is null if the owner had no value, or was hidden."""

    period: str
    board: str
    ends_at: Time
    division: str
    cohort: str
    seats: int
    rank: int | None
    outcome: Literal["promoted", "stayed", "relegated"]


class LeagueHistory(msgspec.Struct, frozen=True):
    """The results of an owner, the newest first. `next` is the cursor of the next page; null on the last page."""

    owner: str
    history: list[LeaguePast]
    next: str | None


class DivisionAnswer(msgspec.Struct, frozen=True):
    """A division in the current period: how many owners have seats in it, and in how many cohorts."""

    name: str
    owners: int
    cohorts: int


class DivisionList(msgspec.Struct, frozen=True):
    """The divisions of a league in its current period, the best one last."""

    league: str
    period: str
    ends_at: Time
    divisions: list[DivisionAnswer]

"""The bodies that the service answers with, as types: the OpenAPI document is made from them.

The rule: they hold what goes on the wire and nothing else; times are text already, decimals their exact digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .problems import ProblemDocument
from .values import Number
from .wire import BestName, KindName, MergeName, MethodName, TiesName

StatusName = Literal["applied", "unchanged", "duplicate", "rejected"]
JournalKind = Literal["post", "erase", "hide", "show", "reset", "delete", "erased"]
PositionMethod = Literal["count", "knot", "gap", "curve"]
CurveMethod = Literal["skip", "scan"]
REF_TEMPLATE = "#/components/schemas/{name}"
Stats = dict[str, Number | str | None]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="ISO 8601 in UTC, microseconds")]


ALTERNATIVES: list[type[msgspec.Struct]] = []  # what `_one_of` refers to; the OpenAPI document adds them


def _one_of(*kinds: type[msgspec.Struct]) -> Any:
    """msgspec describes no union of untagged structs, as it could not decode one; answers are only encoded."""
    ALTERNATIVES.extend(kinds)
    refs = [{"$ref": REF_TEMPLATE.format(name=kind.__name__)} for kind in kinds]
    return Annotated[Any, Meta(extra_json_schema={"anyOf": refs})]


class ColumnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A column with every default filled in; `min` and `max` are null for text."""

    name: str
    sorted: bool
    merge: MergeName
    best: BestName
    scale: int
    min: Number | None
    max: Number | None
    type: KindName


class PredictorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How ranks are estimated."""

    samples: int
    exact_top: int
    refresh_seconds: int
    method: MethodName


class CurveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a ranked column's curve: how it was made, how many knots, of when."""

    method: CurveMethod
    total: int
    knots: int
    as_of: Time
    age_seconds: float
    certificate: float | None = None


class BoardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard: its full specification and, where one board is asked for, its curves by ranked column."""

    id: str
    columns: list[ColumnAnswer]
    ties: TiesName
    table: Literal["own", "shared"]
    predictor: PredictorAnswer
    entries: int
    created_at: Time
    curves: dict[str, CurveState | None] | UnsetType = UNSET


class BoardList(msgspec.Struct, frozen=True):
    """A page of leaderboards by id; `next` is the cursor of the page after it, null at the end."""

    leaderboards: list[BoardAnswer]
    next: str | None


class BoardResult(msgspec.Struct, kw_only=True):
    """What became of a post on one of its leaderboards."""

    board: str
    status: StatusName
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostResult(msgspec.Struct, kw_only=True, gc=False):
    """What became of a post; `stats` are the stored values. A post that named its boards has `boards` instead."""

    owner: str
    status: StatusName
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    boards: list[BoardResult] | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostResults(msgspec.Struct, gc=False):
    """The results in the order of the posts."""

    results: list[PostResult]


if TYPE_CHECKING:
    ProfileObject: TypeAlias = msgspec.Raw
else:
    ProfileObject = Annotated[dict[str, Any], Meta(description="as it was stored; null where the owner has none")]


class ProfileAnswer(msgspec.Struct):
    """What an owner is called and looks like."""

    owner: str
    profile: ProfileObject


class EntryAnswer(msgspec.Struct):
    """One owner's stats; `hidden` is there, and true, where no ranking holds the entry."""

    owner: str
    updated_at: Time
    stats: Stats
    hidden: bool | UnsetType = UNSET
    profile: ProfileObject | UnsetType | None = UNSET


class Position(msgspec.Struct, kw_only=True, gc=False):
    """A rank and the bracket [low, high] that the true one lies in as of `as_of`; `exact` where they are equal."""

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


class NoPosition(msgspec.Struct, kw_only=True):
    """A column in which the owner has no value."""

    column: str
    value: None = None
    rank: None = None


if TYPE_CHECKING:
    OwnerPosition: TypeAlias = Position | NoPosition
else:
    OwnerPosition = _one_of(Position, NoPosition)


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
    AnyBoardPosition = _one_of(BoardPosition, NoBoardPosition)


class BoardPositions(msgspec.Struct):
    """One owner's positions on many leaderboards, in the order asked for."""

    owner: str
    positions: list[AnyBoardPosition]


class LookupEntry(msgspec.Struct):
    """An entry of a lookup. With a column, `position` and `place`, the rank among those asked for; null: no value."""

    owner: str
    updated_at: Time
    stats: Stats
    position: Position | UnsetType | None = UNSET
    place: int | UnsetType | None = UNSET
    hidden: bool | UnsetType = UNSET
    profile: ProfileObject | UnsetType | None = UNSET


class LookupAnswer(msgspec.Struct):
    """The entries in the order asked for, and the owners who have none."""

    entries: list[LookupEntry]
    missing: list[str]


class JournalLine(msgspec.Struct):
    """A line of the journal: what was posted and, of an applied post, what was stored afterwards. `owner` and what
    follows `accepted_at` are gone once the owner was erased; `board` is null where it was deleted long ago."""

    seq: int
    kind: JournalKind
    board: str | None
    owner: str | None
    accepted_at: Time
    status: StatusName | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    set: Stats | UnsetType = UNSET
    post_id: str | UnsetType = UNSET
    at: Time | UnsetType = UNSET
    stored: Stats | UnsetType = UNSET


class OwnerPosts(msgspec.Struct):
    """An owner's posts, the newest first; `next`, given as `before`, continues, null at the end."""

    owner: str
    posts: list[JournalLine]
    next: int | None


class RankedEntry(msgspec.Struct, gc=False):
    """A row of a ranking."""

    rank: int
    exact: bool
    owner: str
    value: Number
    updated_at: Time
    stats: Stats
    profile: ProfileObject | UnsetType | None = UNSET


class Page(msgspec.Struct, gc=False):
    """Rows of a ranking, best to worst; owners of equal rank ascend by code point. `next`/`prev`: null at the ends."""

    column: str
    total: int
    entries: list[RankedEntry]
    next: str | None
    prev: str | None


class TopEvent(msgspec.Struct):
    """The data of an event `top`: the best rows as they are now."""

    column: str
    total: int
    entries: list[RankedEntry]


class OwnerEvent(msgspec.Struct):
    """The data of an event `position`: where the owner stands now, all null where it is not ranked any more.

    `overtaken_by`: up to ten of those who went past since the event before; `previous_rank` is that event's.
    """

    owner: str
    column: str
    value: Number | None
    rank: int | None
    total: int
    percentile: float | None
    previous_rank: int | None
    overtaken_by: list[str]


class RankValue(msgspec.Struct):
    """The worst value that still has `rank` or better; on an empty leaderboard all three are null."""

    rank: int
    value: Number | None
    low: Number | None
    high: Number | None
    exact: bool


class PercentileValue(msgspec.Struct):
    """The worst value that still has the percentile or better; on an empty leaderboard all three are null."""

    percentile: float
    value: Number | None
    low: Number | None
    high: Number | None
    exact: bool


if TYPE_CHECKING:
    ValueFor: TypeAlias = RankValue | PercentileValue
else:
    ValueFor = _one_of(RankValue, PercentileValue)


class Values(msgspec.Struct):
    """Values for the ranks asked for, then for the percentiles."""

    values: list[ValueFor]


class Bucket(msgspec.Struct, rename={"from_": "from"}):
    """Entries with a value from `from` up to `to`; the last bucket includes its `to`."""

    from_: Number
    to: Number
    entries: int


class Buckets(msgspec.Struct):
    """The distribution of a column's values."""

    buckets: list[Bucket]


class KnotAnswer(msgspec.Struct):
    """A value of the column with its exact rank and how many entries have it."""

    value: Number
    rank: int
    ties: int


class CurveAnswer(msgspec.Struct):
    """A curve: between two knots the rank is read off a line."""

    column: str
    method: CurveMethod
    total: int
    as_of: Time
    certificate: float | None
    knots: list[KnotAnswer]


class RefreshAnswer(msgspec.Struct):
    """The curve that now serves, and how long fitting it took."""

    column: str
    method: CurveMethod
    total: int
    as_of: Time
    certificate: float | None
    seconds: float


class Health(msgspec.Struct):
    """`ok`, or what is missing."""

    status: str

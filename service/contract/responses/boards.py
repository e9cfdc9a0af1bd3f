"""The answers about leaderboards: specifications, entries, pages, results of posts, values, buckets, curves, audits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.contract.problems import ProblemDocument
from service.contract.requests import BestName, KindName, MergeName, MethodName, TiesName
from service.contract.values import Number, one_of

from .curves import CurveState, Time
from .positions import Position

StatusName = Literal["applied", "unchanged", "duplicate", "rejected"]
CurveMethod = Literal["skip", "scan"]
Stats = dict[str, Number | str | None]


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


class BoardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard: its full specification and, where one board is asked for, its curves by ranked column.

    `opens_at`, `closes_at`, `grace_seconds` and `keep_seconds` are there if it opens or closes. A `closed` leaderboard
    takes no posts. An `archived` one has no rows any more: the top, owners, values and the curve come from its archive,
    and any other request is answered with 410.
    """

    id: str
    columns: list[ColumnAnswer]
    ties: TiesName
    table: Literal["own", "shared"]
    predictor: PredictorAnswer
    opens_at: Time | UnsetType | None = UNSET
    closes_at: Time | UnsetType | None = UNSET
    grace_seconds: int | UnsetType = UNSET
    keep_seconds: int | UnsetType | None = UNSET
    closed: bool
    archived: bool
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
    """What became of a post; `stats` are the stored values. A post that named its boards has `boards` instead.

    A rejected post has an `error`. If it has `boards` too, `error` is the cause of the other rejections.
    """

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
    ProfileObject = Annotated[
        dict[str, Any], Meta(description="The profile as it was stored; null if the owner has none.")
    ]


class EntryAnswer(msgspec.Struct):
    """One owner's stats. `hidden` is there, and true, if no ranking shows the entry."""

    owner: str
    updated_at: Time
    stats: Stats
    hidden: bool | UnsetType = UNSET
    profile: ProfileObject | UnsetType | None = UNSET


class LookupEntry(msgspec.Struct):
    """An entry of a lookup. With a column it has `position`, and `place`, its rank among the owners asked for.

    Both are null if the owner has no value in the column.
    """

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
    """Rows of a ranking, best to worst. Owners of equal rank are sorted by code point.

    `next` and `prev` are cursors, null at the ends of the ranking.
    """

    column: str
    total: int
    entries: list[RankedEntry]
    next: str | None
    prev: str | None


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
    ValueFor = one_of(RankValue, PercentileValue)


class Values(msgspec.Struct):
    """Values for the ranks asked for, then for the percentiles."""

    values: list[ValueFor]


class Bucket(msgspec.Struct, rename={"from_": "from"}):
    """Entries with a value from `from` up to `to`; the last bucket includes its `to`.

    `low`, `high` and `exact` are there if `entries` was read off the curve: the true number lies between the bounds.
    """

    from_: Number
    to: Number
    entries: int
    low: int | UnsetType = UNSET
    high: int | UnsetType = UNSET
    exact: bool | UnsetType = UNSET


class Buckets(msgspec.Struct):
    """The distribution of a column's values."""

    buckets: list[Bucket]


class EndAnswer(msgspec.Struct):
    """The last value that an entry beyond the knots may have."""

    value: Number
    reached_at: Time | UnsetType = UNSET


class OutsideAnswer(msgspec.Struct):
    """Entries that came after the fit and lie beyond its knots: before the best knot, or after the worst.

    `best` and `worst` are null if no entry lies there. `errors` has the errors of both sides.
    """

    best: EndAnswer | None
    worst: EndAnswer | None
    errors: list[int] | None


class KnotAnswer(msgspec.Struct):
    """A value of the column with its exact rank and how many entries have it.

    `reached_at` is when this value was reached; it is there if the earliest of equal values is better.
    """

    value: Number
    rank: int
    ties: int
    reached_at: Time | UnsetType = UNSET


class CurveAnswer(msgspec.Struct, kw_only=True):
    """A curve with all that ranking offline needs. docs/curve.md has the formula; docs/rank_offline.py is an example.

    Between two neighbouring knots the rank follows a line over keys, or a cubic. `shapes` has the inner control values
    of the cubics, in 1/65536 of the rise between the knots. `errors` has, for each two neighbours, how far such an
    estimate can be off; it is null if that was not measured. Lines and cubics are defined on a lattice of `step` units
    of the last digit. If `snaps` is true, every stored value lies on the lattice.
    """

    column: str
    best: BestName
    scale: int
    ties: TiesName
    method: CurveMethod
    total: int
    as_of: Time
    certificate: float | None
    step: int
    snaps: bool
    knots: list[KnotAnswer]
    errors: list[int] | None
    shapes: list[list[int]] | None
    outside: OutsideAnswer | None


class RefreshAnswer(msgspec.Struct):
    """The curve that now serves, and how long fitting it took."""

    column: str
    method: CurveMethod
    total: int
    as_of: Time
    certificate: float | None
    seconds: float


class AuditedRank(msgspec.Struct):
    """A value whose true rank, as of the curve's time, lies outside the curve's bracket."""

    value: Number
    true_rank: int
    rank: int
    low: int
    high: int


class AuditAnswer(msgspec.Struct, kw_only=True):
    """The relative error of the curve's ranks of random owners against counted ranks, as of the curve's time.

    `outcome` is `changed` if more posts came since then than the service can subtract; then nothing was compared. It is
    `empty` if the column has no entry. `broken` lists the first of the wrong brackets.
    """

    column: str
    outcome: Literal["compared", "changed", "empty"]
    method: CurveMethod
    total: int
    as_of: Time
    certificate: float | None
    owners: int
    mean_error: float | None
    p99_error: float | None
    worst_error: float | None
    brackets_broken: int
    certificates_broken: int
    broken: list[AuditedRank]
    seconds: float

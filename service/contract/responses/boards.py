"""The answers about leaderboards, families, posts and curves."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from predictor import AnyCurve, FitMethod
from service.contract.problems import ProblemDocument
from service.contract.values import Number, Time, format_us, one_of
from storage.records import Best, Board, ColumnKind, Merge, PostStatus, PredictorSpec, TableSharing, Ties

from .positions import Position

Stats = dict[str, Number | str | None]


class ColumnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A column with every default filled in. `min` and `max` are null for a column of text."""

    name: str
    sorted: bool
    merge: Merge
    best: Best
    scale: int
    min: Number | None
    max: Number | None
    type: ColumnKind


class CurveFacts(msgspec.Struct, kw_only=True):
    """The members of every answer about a curve. `certificate` is its measured error, if its knots were certified."""

    method: FitMethod
    total: int
    as_of: Time
    certificate: float | None


def curve_facts(curve: AnyCurve) -> dict[str, Any]:
    """Return the members of `CurveFacts`."""
    return {
        "method": curve.method,
        "total": curve.total,
        "as_of": format_us(curve.as_of_us),
        "certificate": curve.certificate,
    }


class CurveState(CurveFacts, kw_only=True):
    """The state of a ranked column's curve: how and when it was fitted, its knots, and the changes since the fit."""

    knots: int
    age_seconds: float
    certificate: float | None = None
    live: bool  # whether the curve has live counts, which add the changes since its fit
    moves: int  # how many changes since the fit entered a gap between knots, left one, or stayed within one
    bound: float  # the greatest relative error that a current rank below the exactly counted top may have


def curve_state(board: Board, curve: AnyCurve, now_us: int) -> CurveState:
    return CurveState(
        **curve_facts(curve),
        knots=curve.knot_count,
        age_seconds=max(0.0, (now_us - curve.as_of_us) / 1e6),
        live=curve.is_live,
        moves=curve.moved,
        bound=curve.estimate_drift(board.spec.predictor.exact_top + 1).bound,
    )


class BoardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard with its full specification.

    `curves` has the state of each ranked column's curve. Lists of leaderboards leave it out. Lists by activity have
    `active_at`, the time of the last logged change or else of the creation. `opens_at`,
    `closes_at`, `grace_seconds` and `keep_seconds` are present if the leaderboard has an opening or a closing time. A
    `partition` is present if the store has several partitions and the leaderboard has one segment. A
    `closed` leaderboard takes no posts. An `archived` leaderboard no longer has rows. Requests for its top, its owners,
    its values and its curve are answered from its archive. Any other request is answered with 410.
    """

    id: str
    columns: list[ColumnAnswer]
    ties: Ties
    table: TableSharing
    partition: int | UnsetType = UNSET
    segments: int = 1
    predictor: PredictorSpec
    opens_at: Time | UnsetType | None = UNSET
    closes_at: Time | UnsetType | None = UNSET
    grace_seconds: int | UnsetType = UNSET
    keep_seconds: int | UnsetType | None = UNSET
    closed: bool
    archived: bool
    entries: int
    created_at: Time
    active_at: Time | UnsetType = UNSET
    curves: dict[str, CurveState | None] | UnsetType = UNSET


class BoardList(msgspec.Struct, frozen=True):
    """A page of leaderboards in the order of their ids. `next` is the cursor of the next page; null on the last one."""

    leaderboards: list[BoardAnswer]
    next: str | None


class OwnerBoard(msgspec.Struct, frozen=True):
    """A leaderboard on which an owner has an entry, and the entry."""

    board: str
    updated_at: Time
    stats: Stats


class OwnerBoards(msgspec.Struct, frozen=True):
    """The leaderboards of an owner by id. `next` is the cursor of the next page; null on the last one.

    A page may have few leaderboards, or none, and still a `next`, because a request looks at a bounded number of them.
    """

    owner: str
    boards: list[OwnerBoard]
    next: str | None


class OwnerEntries(msgspec.Struct, frozen=True):
    """On how many leaderboards, archived ones included, an owner has or had an entry. 0: the name may be wrong."""

    entries: int


class FamilyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A family: its full specification, and how many of its leaderboards have received posts.

    `partition` is present if the store has several partitions.
    """

    id: str
    columns: list[ColumnAnswer]
    ties: Ties
    table: TableSharing
    partition: int | UnsetType = UNSET
    predictor: PredictorSpec
    periods: list[str]
    time_zone: str
    facets: list[list[str]]
    grace_seconds: int
    keep: dict[str, int]
    boards: int
    created_at: Time


class FamilyList(msgspec.Struct, frozen=True):
    """A page of families in the order of their ids. `next` is the cursor of the next page; null on the last one."""

    families: list[FamilyAnswer]
    next: str | None


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


class BoardResult(msgspec.Struct, kw_only=True):
    """The result of a post on one of its leaderboards."""

    board: str
    status: PostStatus
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostResult(msgspec.Struct, kw_only=True, gc=False):
    """The result of a post. `stats` holds the stored values. A post that named its boards has `boards` instead.

    A rejected post has an `error`. If the result also has `boards`, `error` says what went wrong on one of these
    boards. The post was not applied to the other boards either.
    """

    owner: str
    status: PostStatus
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    boards: list[BoardResult] | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostResults(msgspec.Struct, gc=False):
    """The results of the posts of a request, in the order of the posts."""

    results: list[PostResult]


class Accepted(msgspec.Struct, frozen=True):
    """Posts that are durable in the ingest queue; workers apply them within seconds.

    `accepted` is how many posts the request had. `duplicates` is how many of these posts had been applied before to a
    period that is closed now. Such posts are not queued again.
    """

    accepted: int
    duplicates: int | UnsetType = UNSET


class PostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a post on a leaderboard.

    `owner` is null in a list if the journal no longer names the owner: it was pruned, or the owner was erased.
    `status` is `pending` while the post waits in the queue. Afterwards it is the same status that a direct post has.
    `updated_at` and `stats` are those of the owner's row after the post. `error` says why the post was rejected.
    """

    post_id: str
    owner: str | None
    status: Literal["pending", "applied", "unchanged", "rejected"]
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostStates(msgspec.Struct, frozen=True):
    """The posts on a leaderboard that have one id, by owner. `more` is true if some of them are left out."""

    post_id: str
    posts: list[PostState]
    more: bool


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of the queue, and the worker that has it.

    It has the number of waiting posts, the age of the oldest one, and the number of posts that were ever applied. Each
    partition has shards of its own, numbered from 0. `partition` is null for posts to boards of several partitions.
    """

    partition: int | None
    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ingest queue. `workers` is how many workers run now, and `workers_max` is how many may run.

    `capacity` is how many posts the store applies per second, and `speed` is how many posts one worker applies per
    second. `workers_max` is calculated from both speeds. They show the measurements of the last calculation; before
    the first one they are null.
    """

    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[ShardAnswer]


ProfileObject = Annotated[
    msgspec.Raw,
    Meta(description="The profile as it was stored; null if the owner has none.", extra_json_schema={"type": "object"}),
]


class EntryAnswer(msgspec.Struct):
    """One owner's stats. If the owner is hidden, `hidden` is true; otherwise it is missing."""

    owner: str
    updated_at: Time
    stats: Stats
    hidden: bool | UnsetType = UNSET
    profile: ProfileObject | UnsetType | None = UNSET


class LookupEntry(EntryAnswer):
    """An entry that a lookup found.

    If the lookup names a column, the entry also has `position` and `place`. `position` is the owner's position in that
    column, and `place` is the owner's rank among the requested owners. Both are null if the owner has no value in the
    column.
    """

    position: Position | UnsetType | None = UNSET
    place: int | UnsetType | None = UNSET


class LookupAnswer(msgspec.Struct):
    """The entries in the order of the request, and the owners who have no entry."""

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
    """Rows of a ranking, from the best to the worst. Owners of equal rank are in the order of their code points.

    `next` is the cursor of the page after this one; null on the last page. `prev` is the cursor of the page before this
    one; null on the first page.
    """

    column: str
    total: int
    entries: list[RankedEntry]
    next: str | None
    prev: str | None


class RankValue(msgspec.Struct):
    """The worst value that has this rank or a better one. The true value lies between `low` and `high`.

    A value that was read off the curve is as of the curve's time. It is exact only if nothing has changed since.
    On an empty leaderboard, `value`, `low` and `high` are null.
    """

    rank: int
    value: Number | None
    low: Number | None
    high: Number | None
    exact: bool


class PercentileValue(msgspec.Struct):
    """The worst value that has this percentile or a better one. The true value lies between `low` and `high`.

    A value that was read off the curve is as of the curve's time. It is exact only if nothing has changed since.
    On an empty leaderboard, `value`, `low` and `high` are null.
    """

    percentile: float
    value: Number | None
    low: Number | None
    high: Number | None
    exact: bool


ValueFor = Annotated[Any, one_of(RankValue, PercentileValue)]


class Values(msgspec.Struct):
    """The values at the requested ranks, followed by the values at the requested percentiles."""

    values: list[ValueFor]


class Bucket(msgspec.Struct, rename={"from_": "from"}):
    """The number of entries with a value from `from` up to, but not including, `to`. The last bucket includes its `to`.

    `low`, `high` and `exact` are present if `entries` was estimated from the curve. At the curve's time, the true
    number lay between `low` and `high`. `exact` is true if the two are equal and nothing has changed since that time.
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
    """The best or the worst value that an entry beyond the knots may have."""

    value: Number
    reached_at: Time | UnsetType = UNSET


class OutsideAnswer(msgspec.Struct):
    """Bounds for entries that came after the fit and lie beyond its knots.

    `best` is a bound for the entries that are better than the best knot: no such entry has a better value. `worst` is a
    bound for the entries that are worse than the worst knot. Each is null if there are no such entries. `errors` has,
    for both ends, how far an estimated rank can be off. It is null if this was not measured.
    """

    best: EndAnswer | None
    worst: EndAnswer | None
    errors: list[int] | None


class KnotAnswer(msgspec.Struct):
    """A value of the column, its exact rank, and the number of entries with this value (`ties`).

    `reached_at` is the time when an owner reached this value. It is present if the earliest of equal values is better.
    """

    value: Number
    rank: int
    ties: int
    reached_at: Time | UnsetType = UNSET


class CurveSegment(CurveFacts, kw_only=True):
    """The curve of one segment. `as_of` says when its ranks were true."""

    step: int
    snaps: bool
    knots: list[KnotAnswer]
    errors: list[int] | None
    shapes: list[list[int]] | None
    outside: OutsideAnswer | None


class CurveAnswer(CurveSegment):
    """A curve with everything that is needed to calculate ranks offline.

    docs/curve.md has the formula. Between two neighbouring knots, the rank
    follows a straight line over keys, or a cubic. `shapes` has the inner control values of the cubics. Their unit is
    1/65536 of the rise between the knots. `errors` has, for each pair of neighbouring knots, how far an estimated rank
    between the two can be off. It is null if this was not measured. Lines and cubics are defined on a lattice, whose
    points are `step` units of the last digit apart. If `snaps` is true, every stored value lies on the lattice.

    Only a leaderboard with several segments has `segments`, and then `knots` is empty. Its number of better entries is
    the sum of those of the segments. Its bounds are summed likewise, and `certificate` is of the sum.
    """

    column: str
    best: Best
    scale: int
    ties: Ties
    segments: list[CurveSegment] | UnsetType = UNSET


class RefreshAnswer(CurveFacts, kw_only=True):
    """The result of a refresh: facts about the new curve, and how many seconds the refresh took."""

    column: str
    seconds: float


class AuditedRank(msgspec.Struct):
    """A value whose true rank lies outside the bracket that the curve gives.

    The true rank was counted for the same time as the bracket: the curve's `as_of`.
    """

    value: Number
    true_rank: int
    rank: int
    low: int
    high: int


class AuditAnswer(CurveFacts, kw_only=True):
    """The relative errors of the ranks that a curve gives to random owners.

    The errors compare these ranks with the ranks that the owners had at the curve's time. To count them, the service
    subtracts the posts since that time. `outcome` is `changed` if there were too many of these posts; then nothing was
    compared. `outcome` is `empty` if the column has no entry. `broken` lists the first few values whose true rank lies
    outside the bracket.
    `mean_error`, `p99_error`, `worst_error` and `bound`, the largest error that is possible now, are those of ranks
    past the exactly counted top. `certificate` is of all ranks.
    """

    column: str
    outcome: Literal["compared", "changed", "empty"]
    bound: float
    owners: int
    mean_error: float | None
    p99_error: float | None
    worst_error: float | None
    brackets_broken: int
    certificates_broken: int
    broken: list[AuditedRank]
    seconds: float

"""The types of the answers about leaderboards, families, posts and curves.

Their docstrings are for users of the API.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from predictor import AnyCurve, FitMethod
from service.contract.problems import ProblemDocument
from service.contract.requests import EntryBody, OnBreach, PeriodBody, RewardBody, TierBody
from service.contract.values import Number, Time, format_us
from storage.records import Best, Board, ColumnKind, Each, Merge, PostStatus, PredictorSpec, TableSharing, Ties

from .positions import OwnerPosition, Position

Stats = dict[str, Number | str | None]
TiesShown = Ties | list[str]


class ColumnAnswer(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A column of a leaderboard, with every default filled in. For a column of text, `min` and `max` are null.

    `of` is present if the column follows another one or is a quotient, `per` and `from` if it is a quotient, `tiers` if
    it has tiers, and the last four if there are such limits on posts.
    """

    name: str
    sorted: bool
    merge: Merge
    best: Best
    scale: int
    min: Number | None
    max: Number | None
    type: ColumnKind
    of: str | UnsetType = UNSET
    per: str | UnsetType = UNSET
    from_: int | UnsetType = UNSET
    tiers: list[TierBody] | UnsetType = UNSET
    post_min: Number | UnsetType = UNSET
    post_max: Number | UnsetType = UNSET
    gain_per_hour_max: Number | UnsetType = UNSET
    on_breach: OnBreach | UnsetType = UNSET


class CurveFacts(msgspec.Struct, kw_only=True):
    """Facts about a curve. `certificate` is the largest possible relative error of its ranks; null if not measured."""

    method: FitMethod
    total: int
    as_of: Time
    certificate: float | None


def curve_facts(curve: AnyCurve) -> dict[str, Any]:
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
    live: bool  # whether the curve counts the changes since its fit, so that its ranks include them
    moves: int  # how often since the fit an entry's value entered a gap between knots, left one, or changed within one
    bound: float  # the largest relative error that a rank greater than `exact_top` may have now


def curve_state(board: Board, curve: AnyCurve, now_us: int) -> CurveState:
    return CurveState(
        **curve_facts(curve),
        knots=curve.knot_count,
        age_seconds=max(0.0, (now_us - curve.as_of_us) / 1e6),
        live=curve.is_live,
        moves=curve.moved,
        bound=curve.estimate_drift(board.spec.predictor.exact_top + 1).bound,
    )


class SpecAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an answer that a leaderboard and a family have in common."""

    id: str
    columns: list[ColumnAnswer]
    ties: TiesShown
    table: TableSharing
    partition: int | UnsetType = UNSET
    predictor: PredictorSpec
    entry: EntryBody | UnsetType = UNSET
    created_at: Time


class BoardAnswer(SpecAnswer, frozen=True, kw_only=True):
    """A leaderboard with its full specification.

    `curves` has the state of each ranked column's curve; lists of leaderboards have no `curves`. Only lists by activity
    have `active_at`: the time of the last logged change, or of the creation if no change is logged. `opens_at`,
    `closes_at`, `grace_seconds` and `keep_seconds` are present if the leaderboard has an opening or a closing time.
    `changes` is how often a row was written or erased: by how much it grows says how busy the leaderboard is. A reset
    may set it back. `entry` is present if it has entry rules, and `owners` then says how many owners take part: who
    joined or posted.
    `partition` is present if the store has several partitions and the leaderboard has one segment. `rewards` and `each`
    are present if there are rewards. A `closed` leaderboard accepts no posts. An `archived` leaderboard no longer has
    rows: requests for its top, its owners, its values and its curve are answered from its archive, and all others with
    410.
    """

    segments: int = 1
    opens_at: Time | UnsetType | None = UNSET
    closes_at: Time | UnsetType | None = UNSET
    grace_seconds: int | UnsetType = UNSET
    keep_seconds: int | UnsetType | None = UNSET
    rewards: list[RewardBody] | UnsetType = UNSET
    each: Each | UnsetType = UNSET
    closed: bool
    archived: bool
    entries: int
    changes: int
    owners: int | UnsetType = UNSET
    active_at: Time | UnsetType = UNSET
    curves: dict[str, CurveState | None] | UnsetType = UNSET


class BoardList(msgspec.Struct, frozen=True):
    """A page of leaderboards, ordered by id or activity. `next` is the next page's cursor; null on the last page.

    `partitions_away` lists the partitions that do not answer. Their leaderboards are missing.
    """

    leaderboards: list[BoardAnswer]
    next: str | None
    partitions_away: list[int] | UnsetType = UNSET


class OwnerBoard(msgspec.Struct, frozen=True):
    """A leaderboard on which an owner has an entry, and the entry."""

    board: str
    updated_at: Time
    stats: Stats


class OwnerBoards(msgspec.Struct, frozen=True):
    """The leaderboards on which an owner has an entry, by id. `next` is the next page's cursor; null on the last page.

    Each request looks at a bounded number of leaderboards, so a page can be short or empty and still have a `next`.
    `partitions_away` lists the partitions that do not answer. Their leaderboards are missing.
    """

    owner: str
    boards: list[OwnerBoard]
    next: str | None
    partitions_away: list[int] | UnsetType = UNSET


class OwnerEntries(msgspec.Struct, frozen=True):
    """The number of leaderboards, archived ones included, with an entry of the owner. If it is 0, check the name.

    `partitions_away` lists the partitions that do not answer. The owner's entries there are changed once they are back.
    """

    entries: int
    partitions_away: list[int] | UnsetType = UNSET


class ErasedEntries(msgspec.Struct, frozen=True):
    """The number of erased entries. `more` is true if the same request would erase more: send it again."""

    erased: int
    more: bool


class FamilyAnswer(SpecAnswer, frozen=True, kw_only=True):
    """A family with its full specification. `boards` is the number of its leaderboards that have received posts.

    `partition` is present if the store has several partitions, `rewards` and `each` if there are rewards, and `league`
    if the family is a league.
    """

    periods: list[str | PeriodBody]
    time_zone: str
    facets: list[list[str]]
    grace_seconds: int
    keep: dict[str, int]
    rewards: dict[str, list[RewardBody]] | UnsetType = UNSET
    each: Each | UnsetType = UNSET
    boards: int
    league: bool | UnsetType = UNSET


class FamilyList(msgspec.Struct, frozen=True):
    """A page of families in the order of their ids. `next` is the cursor of the next page; null on the last page."""

    families: list[FamilyAnswer]
    next: str | None


class PeriodAnswer(msgspec.Struct, frozen=True):
    """A period of a family, such as a day. If `closed` is true, it accepts no more posts, not even late ones.

    For the all-time period, `starts_at`, `ends_at` and `closed` are null.
    """

    name: str
    starts_at: Time | None
    ends_at: Time | None
    closed: bool | None


class FamilyBoardAnswer(msgspec.Struct, frozen=True):
    """A family's leaderboard for one period and some facet values.

    `previous` is the id of the leaderboard of the previous period; null for the all-time period. If `archived` is true,
    requests are answered from the leaderboard's archive, or with 410 if the archive does not have the answer.
    """

    board: str
    period: PeriodAnswer
    previous: str | None
    archived: bool


class FacetValue(msgspec.Struct, frozen=True):
    """A value of a facet, the id of its leaderboard, and how many owners have an entry on this leaderboard."""

    value: str
    board: str
    entries: int


class FacetList(msgspec.Struct, frozen=True):
    """The values of a facet in the posts of one period. `next` is the next page's cursor; null on the last page."""

    facet: str
    period: PeriodAnswer
    values: list[FacetValue]
    next: str | None


class PastPosition(msgspec.Struct, frozen=True):
    """A closed period, the id of its leaderboard, and the owner's final position on this leaderboard.

    The position is null if the owner had no value in the column.
    """

    board: str
    period: PeriodAnswer
    position: Position | None


class HistoryAnswer(msgspec.Struct, frozen=True):
    """An owner's final positions in closed periods, newest first. Periods without posts are left out.

    `next` is the cursor of the next page, which has older periods; null on the last page. If posts are rare, a page can
    have fewer periods than the limit.
    """

    owner: str
    column: str
    history: list[PastPosition]
    next: str | None


# No result says that a post was voided: a voided post that is sent again is rejected.
_RESULTS = sorted(status.value for status in PostStatus if status is not PostStatus.VOIDED)
ResultStatus = Annotated[PostStatus, Meta(extra_json_schema={"enum": _RESULTS})]


class BoardResult(msgspec.Struct, kw_only=True):
    """The result of a post on one of its leaderboards. `positions` is present if the request asks for them."""

    board: str
    status: ResultStatus
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    positions: list[OwnerPosition] | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostResult(msgspec.Struct, kw_only=True, gc=False):
    """The result of a post. `stats` has the values of the owner's entry after the post.

    `positions` has the owner's positions after the request, if the request asks for them and the post was applied. A
    post that is `held` has a `post_id`, its own or one that the service made, and no `stats`.

    A post to a family, or one that names its leaderboards, has `boards` instead: a result for each leaderboard. A
    rejected post was applied to none of them, and its `error` says why; if it has `boards`, one of these has the same
    error.
    """

    owner: str
    status: ResultStatus
    post_id: str | UnsetType = UNSET
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    positions: list[OwnerPosition] | UnsetType = UNSET
    boards: list[BoardResult] | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class PostResults(msgspec.Struct, gc=False):
    """The results of the posts of a request, in the order of the posts."""

    results: list[PostResult]


class Accepted(msgspec.Struct, frozen=True):
    """The answer to posts that were stored durably in the queue. Workers apply them within seconds.

    `accepted` is the number of posts in the request. `duplicates` of them were already applied before their
    leaderboards closed; they are not queued again.
    """

    accepted: int
    duplicates: int | UnsetType = UNSET


class PostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a post on a leaderboard.

    In a list, `owner` is null if the owner was erased, or if the journal was pruned and no longer names the owner.
    `status` is `pending` while the post waits in the queue, `held` while it waits for an operator's verdict, and
    `voided` once it was refused or taken back; otherwise it is that of a post that was not queued. `updated_at` and
    `stats` describe the owner's entry after the post. `error` says why the post was rejected.
    """

    post_id: str
    owner: str | None
    status: Literal["pending", "applied", "unchanged", "rejected", "held", "voided"]
    updated_at: Time | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class HeldPostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A post that waits for a verdict. `at` is its time, and `reason` says why it is held.

    An empty `set` is left out.
    """

    post_id: str
    owner: str
    held_at: Time
    at: Time
    stats: Stats
    set: Stats | UnsetType = UNSET
    reason: str


class HeldPosts(msgspec.Struct, frozen=True):
    """A page of the held posts of a leaderboard, oldest first. `next` is null on the last page."""

    board: str
    posts: list[HeldPostAnswer]
    next: str | None


class PostStates(msgspec.Struct, frozen=True):
    """A leaderboard's posts with the same post id, ordered by owner. `more` is true if some posts are left out."""

    post_id: str
    posts: list[PostState]
    more: bool


class FamilyReset(msgspec.Struct, frozen=True):
    """The period whose leaderboards were emptied. `boards` is how many of these existed."""

    family: str
    period: PeriodAnswer
    boards: int


class VoidedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """One leaderboard of a post that was taken back, with either `status` or `error`.

    `stats` has the values of the owner's entry without the post, or is null if no other post made the entry.
    """

    board: str
    status: Literal["recomputed"] | UnsetType = UNSET
    stats: Stats | UnsetType | None = UNSET
    error: ProblemDocument | UnsetType = UNSET


class VoidedPost(msgspec.Struct, frozen=True):
    """The result of taking back a post. Repeating the request gives the same result."""

    post_id: str
    owner: str
    boards: list[VoidedBoard]


class MergedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """One leaderboard on which the merged owner had an entry, with either `status` or `error`.

    `stats` has the merged values. If there is an `error`, the entry still has the earlier id.
    """

    board: str
    status: Literal["merged"] | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class MergedOwner(msgspec.Struct, frozen=True):
    """The result of merging an owner into another one. Repeating the request gives the same result."""

    owner: str
    into: str
    boards: list[MergedBoard]


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A shard, which is a part of the ingest queue, and the `worker` that applies its posts.

    `posts` is the number of waiting posts, `age_seconds` the age of the oldest of them, and `applied` the number of
    posts that were ever applied or rejected. Each partition has its own shards, numbered from 0. If `partition` is
    null, the shard is for posts to leaderboards in several partitions.
    """

    partition: int | None
    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None


class QueueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ingest queue. `workers` run now, and at most `workers_max` may run.

    `capacity` is how many posts per second the store can apply, and `speed` how many one worker can apply. The service
    calculates `workers_max` from both. Both are null before the first calculation.

    `partitions_away` lists the partitions that do not answer. Their posts and shards are missing.
    """

    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[ShardAnswer]
    partitions_away: list[int] | UnsetType = UNSET


ProfileObject = Annotated[
    msgspec.Raw,
    Meta(description="The profile as it was stored; null if the owner has none.", extra_json_schema={"type": "object"}),
]


Hidden = bool | Literal["shadow"]


class EntryAnswer(msgspec.Struct):
    """One owner's stats on a leaderboard. `hidden` is true if the owner is hidden, and absent otherwise.

    It is `"shadow"` if the owner is shadowed, but only for callers with the role `ops`.

    An owner who has joined and has no value yet has null in every column.
    """

    owner: str
    updated_at: Time
    stats: Stats
    hidden: Hidden | UnsetType = UNSET
    profile: ProfileObject | UnsetType | None = UNSET


class JoinAnswer(msgspec.Struct, frozen=True):
    """An owner who has joined a leaderboard with entry rules."""

    board: str
    owner: str
    joined_at: Time | None
    """The time at which the owner joined; null if the owner came by posting."""
    posts: int
    """The number of the owner's posts that were accepted since the leaderboard has rules."""
    posts_left: int | None
    """The number of posts that are still accepted; null: any number."""


class LookupEntry(EntryAnswer):
    """An entry that a lookup found.

    If the lookup names a column, the entry also has `position`, the owner's position in that column, and `place`, its
    rank among the requested owners. Both are null if the owner has no value in the column. If the earlier of two equal
    values ranks better, `reached_at` is when the owner reached the value.
    """

    position: Position | UnsetType | None = UNSET
    place: int | UnsetType | None = UNSET
    reached_at: Time | UnsetType = UNSET


class LookupAnswer(msgspec.Struct):
    """The entries of the requested owners, in the order of the request. `missing` names owners without an entry."""

    entries: list[LookupEntry]
    missing: list[str]


class RankedEntry(msgspec.Struct, gc=False):
    """A row of a ranking: an owner's entry and its rank. `exact` is false if the rank is an estimate.

    `tier` is present if the column has tiers: the tier of `rank`, null if no tier fits. `reached_at` is present if the
    earlier of two equal values ranks better: when the owner reached the value, whatever the order in which posts came.
    `tier_rank` is present on pages of a tier: the rank among the rows of the tier.
    """

    rank: int
    exact: bool
    owner: str
    value: Number
    updated_at: Time
    stats: Stats
    tier: str | UnsetType | None = UNSET
    reached_at: Time | UnsetType = UNSET
    profile: ProfileObject | UnsetType | None = UNSET
    tier_rank: int | UnsetType = UNSET


class Page(msgspec.Struct, gc=False):
    """Rows of a ranking, from the best to the worst, or in the order of owners if the request asks for `order=owner`.

    Owners with equal ranks are ordered by the code points of their names. `next` is the cursor of the next page; null
    on the last page. `prev` is the cursor of the page before; null on the first page and with `order=owner`.
    """

    column: str
    total: int
    entries: list[RankedEntry]
    next: str | None
    prev: str | None


class RankValue(msgspec.Struct):
    """The worst value that still reaches this rank or this percentile. The true value lies between `low` and `high`.

    If the value comes from the curve, it holds for the curve's time `as_of`, and `exact` is true only if the
    leaderboard has not changed since then. On an empty leaderboard, `value`, `low` and `high` are null.
    """

    value: Number | None
    low: Number | None
    high: Number | None
    exact: bool
    rank: int | UnsetType = UNSET
    percentile: float | UnsetType = UNSET


class Values(msgspec.Struct):
    """The values at the requested ranks, followed by the values at the requested percentiles."""

    values: list[RankValue]


class Bucket(msgspec.Struct, rename={"from_": "from"}):
    """The number of entries with a value from `from` up to, but not including, `to`. The last bucket includes its `to`.

    `low`, `high` and `exact` are present if `entries` was estimated from the curve. The true number at the curve's
    time `as_of` was from `low` to `high`. `exact` is true if both are equal and nothing has changed since `as_of`.
    """

    from_: Number
    to: Number
    entries: int
    low: int | UnsetType = UNSET
    high: int | UnsetType = UNSET
    exact: bool | UnsetType = UNSET


class Buckets(msgspec.Struct):
    """The distribution of a column's values: buckets in ascending order, which together contain all values."""

    buckets: list[Bucket]


class EndAnswer(msgspec.Struct):
    """The limit of the values beyond the best or the worst knot of a curve. `OutsideAnswer` explains these limits."""

    value: Number
    reached_at: Time | UnsetType = UNSET
    tie_values: list[Number | None] | UnsetType = UNSET


class OutsideAnswer(msgspec.Struct):
    """The limits of values beyond the best and the worst knot of a curve, which entries got after the fit.

    No value is better than `best`, which is null if none is better than the best knot. `worst` is the same for values
    worse than the worst knot. `errors` has two numbers: how many ranks estimates can be off beyond these two knots;
    null if not measured.
    """

    best: EndAnswer | None
    worst: EndAnswer | None
    errors: list[int] | None


class KnotAnswer(EndAnswer, kw_only=True):
    """A value of the column, its exact rank, and the number of entries with this value (`ties`).

    If the earlier of two equal values ranks better, a knot also has `reached_at`: when an owner reached the value. If
    other columns order equal values, it has their values: `tie_values`, in the order of the curve's `tie_columns`.
    """

    rank: int
    ties: int


class TieColumnAnswer(msgspec.Struct):
    """A column that orders entries with equal values in the curve's column."""

    column: str
    best: Best
    scale: int
    min: Number
    max: Number


class CurveSegment(CurveFacts, kw_only=True):
    """The curve of one segment, which is a part of a leaderboard, at the time `as_of`. See `CurveAnswer`."""

    step: int
    snaps: bool
    knots: list[KnotAnswer]
    errors: list[int] | None
    shapes: list[list[int]] | None
    outside: OutsideAnswer | None


class CurveAnswer(CurveSegment):
    """A curve with everything that a client needs to rank offline. docs/curve.md has the formula.

    Between two neighbouring knots, the rank follows a straight line, or a cubic Bézier curve if there are `shapes`: two
    inner control values for each pair of neighbouring knots, in units of 1/65536 of the difference between their ranks.
    For each pair, `errors` says how many ranks an estimate between the knots can be off; null if not measured. The
    formula turns each value into a whole number, the key of the value. Lattice points are the key of the first knot
    plus multiples of `step`. Each line or cubic begins at the first lattice point after a knot and ends at the next
    knot. If `snaps` is true, the key of every stored value is a lattice point.

    A leaderboard with several segments has `segments`, and then `knots` is empty. To get a rank, sum the segments'
    counts of better entries; bounds add up the same way. `certificate` is about this sum. `tiers` is present if the
    column has tiers.
    """

    column: str
    best: Best
    scale: int
    ties: TiesShown
    tie_columns: list[TieColumnAnswer] | UnsetType = UNSET
    tiers: list[TierBody] | UnsetType = UNSET
    segments: list[CurveSegment] | UnsetType = UNSET


class RefreshAnswer(CurveFacts, kw_only=True):
    """The result of a refresh: facts about the new curve. `seconds` is how long the refresh took."""

    column: str
    seconds: float


class AuditedRank(msgspec.Struct):
    """A value whose true rank is outside the curve's bracket from `low` to `high`, both as of the curve's `as_of`."""

    value: Number
    true_rank: int
    rank: int
    low: int
    high: int


class AuditAnswer(CurveFacts, kw_only=True):
    """The relative errors of the ranks that a curve gives to random owners.

    These ranks are compared with the true ranks at the curve's time `as_of`, which the service gets by counting the
    current entries and undoing the changes since. If it does not know all of these changes, or there are too many, it
    compares nothing: `outcome` is `changed`. `outcome` is `empty` if the column has no entry. `broken` lists the first
    few values whose true rank is outside the bracket. `certificate` is the largest possible error at any rank, and
    `bound` at ranks greater than `exact_top`, as are `mean_error`, `p99_error` and `worst_error`.
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

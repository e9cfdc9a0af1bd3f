"""The types of the service's answers, in which decimals are exact.

A number is an `int` if its column has no scale, and otherwise a `decimal.Decimal`. Times are in UTC. A type ignores
members that it does not know, so that an older client works with a newer service.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from .errors import Problem, UnexpectedAnswerError, one_line

Value = int | Decimal
Stats = dict[str, Any]  # values are int, Decimal, str or None
Record = dict[str, Any]
Status = Literal["applied", "unchanged", "duplicate", "held", "rejected", "accepted"]
T = TypeVar("T")
LEASE_S_MAX = 1e9  # 30 years; no timer waits for much longer


class Tier(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tier, which is a named band of a ranking, limited by the worst rank, percentage or value that fits.

    Only one of the three limits is set.
    """

    name: str
    to_rank: int | None = None
    to_percent: Value | None = None
    value: Value | None = None


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a board. `ranked` is what the wire calls `sorted`. Text columns have neither `min` nor `max`."""

    name: str
    ranked: bool = msgspec.field(name="sorted", default=False)
    merge: str = ""
    best: str = "high"
    scale: int = 0
    min: Value | None = None
    max: Value | None = None
    type: str = "number"
    of: str | None = None  # the column that the merge rule `with` follows, or the dividend of `quotient`
    per: str | None = None  # the divisor of the merge rule `quotient`
    from_: int | None = msgspec.field(name="from", default=None)  # the least divisor that gives a quotient
    tiers: list[Tier] = []  # an entry has the first one that fits


class CurveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a curve. `bound` is the largest relative error of an estimated rank beyond the counted top."""

    method: str = ""
    total: int = 0
    knots: int = 0
    as_of: datetime | None = None
    certificate: float | None = None
    live: bool = False
    bound: float | None = None


class Predictor(msgspec.Struct, frozen=True, kw_only=True):
    """A board's settings for estimated ranks. Ranks up to `exact_top` are counted instead."""

    samples: int = 0
    exact_top: int = 0
    refresh_seconds: int = 0
    method: str = ""


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard with its specification. In lists of boards, `curves` is empty."""

    id: str = ""
    columns: list[Column]
    ties: str | list[str] = "shared"
    entries: int | None = None
    owners: int | None = None  # the number of participants, if there are entry rules
    created_at: datetime | None = None
    active_at: datetime | None = None  # only in a list by activity
    closed: bool = False
    archived: bool = False
    predictor: Predictor = Predictor()
    curves: dict[str, CurveState | None] = {}

    def ranked_columns(self) -> list[str]:
        return [column.name for column in self.columns if column.ranked]


class OwnerBoard(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard on which an owner has an entry, together with that entry."""

    board: str
    updated_at: datetime
    stats: Stats = {}


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """The number of erased entries, and whether repeating the request would erase more."""

    erased: int
    more: bool = False


class ExpectedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A reward that an owner would receive if the leaderboard closed now.

    `data` holds what the reward is to the game.
    """

    owner: str
    reward: str
    rank: int
    data: Record = {}


class Grant(ExpectedGrant, frozen=True, kw_only=True):
    """A reward that an owner was granted. `id` never changes, and `claimed_at` is None until the grant is claimed."""

    id: str
    board: str
    claimed_at: datetime | None = None


class ClaimedGrant(Grant, frozen=True, kw_only=True):
    """A claimed grant. `first` is true in only one answer, which may get lost, so use `id` as the key of a payout."""

    first: bool


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's act, such as `owner.hidden`. `key` is the id of the API key, or None if there were no keys."""

    id: str
    at: datetime
    act: str
    key: str | None = None
    owner: str | None = None
    board: str | None = None
    reason: str | None = None
    detail: Record | None = None


class HiddenOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A hidden owner, with the time, the `key` and the `reason` of the act that hid it.

    If `shadow` is true, answers about the owner continue as if the owner were ranked.
    """

    owner: str
    since: datetime
    key: str | None = None
    reason: str | None = None
    shadow: bool = False


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A period of a family. In the all-time period, both times and `closed` are None."""

    name: str
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    closed: bool | None = None


class FamilyBoard(msgspec.Struct, frozen=True, kw_only=True):
    """A family's board for one period and certain facet values. `previous` is the board of the previous period."""

    board: str
    period: Period
    previous: str | None = None
    archived: bool = False


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a facet, its board, and the number of owners with an entry there."""

    value: str
    board: str
    entries: int = 0


class BoardResult(msgspec.Struct, frozen=True, kw_only=True):
    """A post's result on one of its boards."""

    board: str
    status: Status
    updated_at: datetime | None = None
    stats: Stats = {}
    positions: list[OwnerPosition] = []  # if the post asked for them
    error: Problem | None = None


class VoidedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a voided post on one board: the `stats` without it, or an `error`.

    `stats` is None if no other post remains.
    """

    board: str
    status: str | None = None
    stats: Stats | None = None
    error: Problem | None = None


class HeldPost(msgspec.Struct, frozen=True, kw_only=True):
    """A post that is held for review. `at` is the time of the post, and `reason` says why it is held."""

    post_id: str
    owner: str
    held_at: datetime
    at: datetime
    stats: Stats
    set: Stats = {}
    reason: str


class MergedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """A board on which a merged owner had an entry, with the `stats` of the merged entry or an `error`."""

    board: str
    status: str | None = None
    stats: Stats | None = None
    error: Problem | None = None


class PostResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a post. `stats` holds the stored values; a post to several boards has `boards` instead.

    `status` is `applied`, `unchanged` (nothing was better), `duplicate` (the id was applied before), `held` (it waits
    for a verdict, and `post_id` is set), `rejected` (`error` says why), or `accepted` for a queued post.
    """

    owner: str = ""
    status: Status
    post_id: str | None = None
    updated_at: datetime | None = None
    stats: Stats = {}
    positions: list[OwnerPosition] = []  # if the post asked for them
    boards: list[BoardResult] = []
    error: Problem | None = None


class NextPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The next better place.

    `points` is the number still needed to reach it, or None if no value in the column's range is better than the value
    of that place.
    """

    rank: int
    low: int
    high: int
    exact: bool
    value: Value
    points: Value | None = None
    as_of: datetime | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A rank with its bracket: the true rank as of `as_of` lies between `low` and `high`, both included.

    `tier` is the tier of `rank`, or None if no tier fits or the column has none. If `tier_certain` is False, the ranks
    of the bracket fall into several tiers. `reached_at` is set for an owner where the earlier of two equal values is
    better.
    """

    column: str
    value: Value
    rank: int
    low: int
    high: int
    exact: bool
    method: str
    total: int
    percentile: float
    as_of: datetime
    tier: str | None = None
    tier_certain: bool = True
    reached_at: datetime | None = None


class OwnerPosition(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's position, like `Position`, except that `value`, `rank` and what follows are None without a value.

    `board` is set if the request named several boards, and `next` and `previous` are set if the request asked for them.
    `rank_before` is set if the post asked for it, but is None for a first value and for a duplicate.
    """

    board: str | None = None
    column: str
    value: Value | None = None
    rank: int | None = None
    low: int | None = None
    high: int | None = None
    exact: bool = False
    method: str = ""
    total: int | None = None
    percentile: float | None = None
    as_of: datetime | None = None
    tier: str | None = None
    tier_certain: bool = True
    reached_at: datetime | None = None
    rank_before: int | None = None
    next: NextPlace | None = None
    previous: Previous | None = None


class Previous(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison with the previous period. The positions are None if the owner had no value then."""

    board: str
    position: Position | None = None
    value_position: Position | None = None


class PastPosition(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's final position in a closed period, or None if the owner had no value then."""

    board: str
    period: Period | None = None
    position: Position | None = None


class CohortEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's entry in a league cohort. `zone` is `promotion`, `safe` or `relegation`, and `rank` is exact."""

    owner: str
    rank: int | None = None
    value: Value | None = None
    zone: str = "safe"
    updated_at: datetime
    stats: Stats = {}
    profile: Record | None = None


class Cohort(msgspec.Struct, frozen=True, kw_only=True):
    """A league's cohort in one period, with all its owners, best first.

    `settled` is true once its owners have moved.
    """

    league: str
    period: str
    board: str
    ends_at: datetime
    division: str
    cohort: str
    seats: int = 0
    settled: bool = False
    entries: list[CohortEntry] = []


class LeagueOwner(msgspec.Struct, frozen=True, kw_only=True):
    """An owner in the current period of a league, together with all owners of the same cohort.

    `cohort` is None before the owner's first post of the period. `waiting` is true if the owner has posted, but its
    last result is not in yet.
    """

    league: str
    owner: str
    period: str
    board: str
    ends_at: datetime
    division: str | None = None
    cohort: str | None = None
    seats: int = 0
    position: int | None = None
    zone: str | None = None
    waiting: bool = False
    entries: list[CohortEntry] = []


class LeaguePast(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's result in a closed period: `promoted`, `stayed` or `relegated`. `rank` is None without a value."""

    period: str
    board: str
    ends_at: datetime
    division: str
    cohort: str
    seats: int = 0
    rank: int | None = None
    outcome: str = "stayed"


class Division(msgspec.Struct, frozen=True, kw_only=True):
    """A division of a league, with the number of owners who have seats in it and the number of its cohorts."""

    name: str
    owners: int = 0
    cohorts: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One owner's stats. For operators, `hidden` is `"shadow"` if the owner is shadowed."""

    owner: str
    updated_at: datetime
    stats: Stats
    hidden: bool | Literal["shadow"] = False
    profile: Record | None = None


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new player token. The ids of its posts begin with its `id`."""

    token: str
    id: str
    expires_at: datetime


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """An owner who takes part in a board with entry rules."""

    board: str
    owner: str
    joined_at: datetime | None = None  # None if the owner took part by posting
    posts: int = 0  # the number of accepted posts
    posts_left: int | None = None  # None if there is no limit


class FoundEntry(Entry, frozen=True, kw_only=True):
    """An entry found by a lookup. `place` is the owner's rank among the owners asked for.

    `position`, `place` and `reached_at` are set only if the lookup names a column.
    """

    position: Position | None = None
    place: int | None = None
    reached_at: datetime | None = None


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """The entries found, in the order of the request, and the owners who have none."""

    entries: list[FoundEntry]
    missing: list[str]


class RankedEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of a ranking. `sent_tier` holds `tier` as it was sent, which is UNSET if the column has no tiers.

    `reached_at` is set where the earlier of two equal values ranks better.
    """

    rank: int
    exact: bool
    owner: str
    value: Value
    updated_at: datetime
    stats: Stats
    reached_at: datetime | None = None
    sent_tier: str | msgspec.UnsetType | None = msgspec.field(default=msgspec.UNSET, name="tier")
    tier_rank: int | None = None  # on pages of a tier: the rank among its rows
    profile: Record | None = None

    @property
    def tier(self) -> str | None:
        """The tier of `rank`, or None if no tier fits or the column has none."""
        return self.sent_tier or None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a ranking, best to worst.

    `next` and `prev` are cursors for the neighbouring pages, or None at the ends.
    """

    column: str
    total: int
    entries: list[RankedEntry]
    next: str | None = None
    prev: str | None = None


class ValueAt(msgspec.Struct, frozen=True, kw_only=True):
    """The worst value that still has the rank or the percentile. All values are None on an empty board."""

    rank: int | None = None
    percentile: float | None = None
    value: Value | None = None
    low: Value | None = None
    high: Value | None = None
    exact: bool = False


class Bucket(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The number of entries with a value from `from_` up to `to`. `low` and `high` are set if it is an estimate."""

    from_: Value
    to: Value
    entries: int
    low: int | None = None
    high: int | None = None
    exact: bool = True


class CurveEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The best or the worst value that an entry beyond the knots may have."""

    value: Value
    reached_at: datetime | None = None
    tie_values: list[Value | None] = []


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds for entries beyond the knots; None for an end without entries."""

    best: CurveEnd | None = None
    worst: CurveEnd | None = None
    errors: list[int] | None = None


class Knot(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its exact rank, and the number of entries that have it.

    `reached_at` counts where the earliest of equal values is better.
    """

    value: Value
    rank: int
    ties: int = 1
    reached_at: datetime | None = None
    tie_values: list[Value | None] = []


class CurveSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The curve of one segment of a board."""

    method: str
    total: int
    as_of: datetime
    certificate: float | None = None
    step: int = 1
    snaps: bool = False
    knots: list[Knot]
    errors: list[int] | None = None
    shapes: list[tuple[int, int]] | None = None
    outside: Outside | None = None


class TieColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column by which a curve orders equal values. Entries without a value in it come last."""

    column: str
    best: str
    scale: int
    min: Value
    max: Value


class Curve(CurveSegment, frozen=True, kw_only=True):
    """A curve as the service sends it, from which an `OfflineCurve` computes ranks.

    If it is the sum of `segments`, it has no knots of its own.
    """

    column: str
    best: str = "high"
    scale: int = 0
    ties: str | list[str] = "shared"
    tie_columns: list[TieColumn] = []
    tiers: list[Tier] = []
    segments: list[CurveSegment] | None = None


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a refresh. `seconds` is how long it took."""

    column: str = ""
    method: str = ""
    total: int = 0
    as_of: datetime | None = None
    certificate: float | None = None
    seconds: float = 0.0


class BrokenBracket(msgspec.Struct, frozen=True, kw_only=True):
    """A value whose true rank is outside its bracket."""

    value: Value
    true_rank: int
    rank: int
    low: int
    high: int


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit. Errors are relative to the true rank; they are None if nothing was compared."""

    column: str
    outcome: str
    owners: int = 0
    certificate: float | None = None
    bound: float | None = None
    mean_error: float | None = None
    p99_error: float | None = None
    worst_error: float | None = None
    brackets_broken: int = 0
    certificates_broken: int = 0
    broken: list[BrokenBracket] = []
    as_of: datetime | None = None


class JournalLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the journal: a post, or a change to an owner or a board. Pass its `seq` to continue after this line."""

    seq: int | str
    kind: str
    board: str | None = None
    owner: str | None = None
    accepted_at: datetime
    status: Status | None = None
    stats: Stats = {}
    set: Stats = {}
    post_id: str | None = None
    at: datetime | None = None
    stored: Stats = {}
    error: Problem | None = None


class TopEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that are currently best."""

    column: str
    total: int
    entries: list[RankedEntry]


class OwnerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's current position. `overtaken_by` names up to ten owners who overtook since the previous event."""

    owner: str
    column: str
    value: Value | None = None
    rank: int | None = None
    total: int
    percentile: float | None = None
    previous_rank: int | None = None
    overtaken_by: list[str] = []
    tier: str | None = None
    reached_at: datetime | None = None


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a stream. The event `reset` has no data, and means that events may have been missed."""

    event: str
    id: str
    data: TopEvent | OwnerEvent | Cohort | None = None


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A key's lease, as the service sends it."""

    resource: str
    key: str
    region: str
    version: int
    lease_expires: datetime
    expires_in: Annotated[float, msgspec.Meta(le=LEASE_S_MAX)]
    acquired: bool


def decode(content: bytes, type: type[T]) -> T:
    """Decode `content` as `type`, with exact decimals. Raises UnexpectedAnswerError."""
    try:
        hashable: Any = type
        answer: T = _decoder(hashable)(content)
        return answer
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError) as cause:
        raise UnexpectedAnswerError(f"the answer does not come from rankcurve: {one_line(str(cause))}") from cause


def check_name(answered: str, asked: str) -> None:
    """Raise UnexpectedAnswerError if an answer names another owner or key than the request did.

    Such an answer belongs to another request.
    """
    if answered != asked and answered != unicodedata.normalize("NFC", asked):
        raise UnexpectedAnswerError(f"the answer is about {answered!r}, and {asked!r} was asked for")


@lru_cache(maxsize=256)
def _decoder(type: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(type, float_hook=Decimal).decode


ENCODER = msgspec.json.Encoder(decimal_format="number")

"""The types of the service's answers. A decimal is exact: an `int` without a scale, otherwise a `decimal.Decimal`.

A type ignores members that it does not know, so an older client works with a newer service. Times are in UTC.
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
    """A tier, a named band of a ranking. One of its limits is set: the worst rank, percentage or value that fits."""

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
    of: str | None = None  # with the merge rule `with`: the column that it follows; with `quotient`: the dividend
    per: str | None = None  # with the merge rule `quotient`: the divisor
    from_: int | None = msgspec.field(name="from", default=None)  # the least divisor that gives a quotient
    tiers: list[Tier] = []  # an entry has the first one that fits


class CurveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a curve. `bound` is the largest relative error of an estimated rank past the counted top."""

    method: str = ""
    total: int = 0
    knots: int = 0
    as_of: datetime | None = None
    certificate: float | None = None
    live: bool = False
    bound: float | None = None


class Predictor(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a board for estimated ranks. Ranks up to `exact_top` are counted, not estimated."""

    samples: int = 0
    exact_top: int = 0
    refresh_seconds: int = 0
    method: str = ""


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard with its specification. Lists of boards leave out `curves`."""

    id: str = ""
    columns: list[Column]
    ties: str | list[str] = "shared"
    entries: int | None = None
    owners: int | None = None  # how many take part, if there are entry rules
    created_at: datetime | None = None
    active_at: datetime | None = None  # only in a list by activity
    closed: bool = False
    archived: bool = False
    predictor: Predictor = Predictor()
    curves: dict[str, CurveState | None] = {}

    def ranked_columns(self) -> list[str]:
        return [column.name for column in self.columns if column.ranked]


class OwnerBoard(msgspec.Struct, frozen=True, kw_only=True):
    """A leaderboard on which an owner has an entry, and the entry."""

    board: str
    updated_at: datetime
    stats: Stats = {}


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """The number of erased entries, and whether the same request would erase more."""

    erased: int
    more: bool = False


class ExpectedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A reward that an owner would get if the leaderboard closed now. `data` is what the reward has for the game."""

    owner: str
    reward: str
    rank: int
    data: Record = {}


class Grant(ExpectedGrant, frozen=True, kw_only=True):
    """A reward that an owner has got. `id` never changes; `claimed_at` is None until the grant is claimed."""

    id: str
    board: str
    claimed_at: datetime | None = None


class ClaimedGrant(Grant, frozen=True, kw_only=True):
    """A claimed grant. `first` is true in one answer only, which may get lost: let `id` be the key of a payout."""

    first: bool


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An act of an operator, such as `owner.hidden`. `key` is the id of the API key; None if there were no keys."""

    id: str
    at: datetime
    act: str
    key: str | None = None
    owner: str | None = None
    board: str | None = None
    reason: str | None = None
    detail: Record | None = None


class HiddenOwner(msgspec.Struct, frozen=True, kw_only=True):
    """An owner who is hidden since then. `key` and `reason` are those of the act.

    `shadow`: answers about the owner continue as if it were ranked.
    """

    owner: str
    since: datetime
    key: str | None = None
    reason: str | None = None
    shadow: bool = False


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A period of a family. For the all-time period, both times and `closed` are None."""

    name: str
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    closed: bool | None = None


class FamilyBoard(msgspec.Struct, frozen=True, kw_only=True):
    """A family's board for one period and some facet values. `previous` is the board of the period before."""

    board: str
    period: Period
    previous: str | None = None
    archived: bool = False


class FacetValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a facet, its board, and how many owners have an entry there."""

    value: str
    board: str
    entries: int = 0


class BoardResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a post on one of its boards."""

    board: str
    status: Status
    updated_at: datetime | None = None
    stats: Stats = {}
    positions: list[OwnerPosition] = []  # if the post asked for them
    error: Problem | None = None


class VoidedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """One board of a post that was taken back: `stats` without it (None if no other post remains), or an `error`."""

    board: str
    status: str | None = None
    stats: Stats | None = None
    error: Problem | None = None


class HeldPost(msgspec.Struct, frozen=True, kw_only=True):
    """A post that waits for a verdict. `at` is its time, `reason` says why it is held."""

    post_id: str
    owner: str
    held_at: datetime
    at: datetime
    stats: Stats
    set: Stats = {}
    reason: str


class MergedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """One board on which a merged owner had an entry: `stats` of the entry that the merge made, or an `error`."""

    board: str
    status: str | None = None
    stats: Stats | None = None
    error: Problem | None = None


class PostResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a post. `stats` has the stored values; a post to several boards has `boards` instead.

    `status` is `applied`, `unchanged` (nothing was better), `duplicate` (its id was applied before), `held` (it waits
    for a verdict; with `post_id`), `rejected` (with `error`), or `accepted` for a queued post.
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
    """The next better place. `points` is None if no value in the column's range is better than that place's value."""

    rank: int
    low: int
    high: int
    exact: bool
    value: Value
    points: Value | None = None
    as_of: datetime | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A rank with its bracket: the true rank as of `as_of` lies between `low` and `high`, both included.

    `tier` is the tier of `rank`: None if no tier fits, or if the column has none. If `tier_certain` is False, the ranks
    of the bracket have several tiers. `reached_at` is set for an owner if the earlier of two equal values is better.
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
    """An owner's position, as `Position`. Where the owner has no value, `value`, `rank` and what follows are None.

    `board` is set if several boards were asked for, `next` and `previous` if the request asked for them. `rank_before`
    is set if the post asked for it; it is None for a first value and for a duplicate.
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
    """A comparison with the period before. Members are None if the owner had no value then."""

    board: str
    position: Position | None = None
    value_position: Position | None = None


class PastPosition(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's final position in a closed period; None if the owner had no value then."""

    board: str
    period: Period | None = None
    position: Position | None = None


class CohortEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An owner in a cohort of a league. `zone` is `promotion`, `safe` or `relegation`; `rank` is exact."""

    owner: str
    rank: int | None = None
    value: Value | None = None
    zone: str = "safe"
    updated_at: datetime
    stats: Stats = {}
    profile: Record | None = None


class Cohort(msgspec.Struct, frozen=True, kw_only=True):
    """A cohort of a period of a league, with all its owners, best first. `settled`: its owners have moved."""

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
    """An owner in the current period of a league, with all owners of its cohort.

    `cohort` is None before its first post. `waiting`: the owner has posted, and its last result is not in yet.
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
    """A division of a league: how many owners have seats in it, and in how many cohorts."""

    name: str
    owners: int = 0
    cohorts: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One owner's stats. `hidden` is `"shadow"` for operators if the owner is shadowed."""

    owner: str
    updated_at: datetime
    stats: Stats
    hidden: bool | Literal["shadow"] = False
    profile: Record | None = None


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new player token. Its `id` begins the ids of its posts."""

    token: str
    id: str
    expires_at: datetime


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """An owner who takes part in a board with entry rules."""

    board: str
    owner: str
    joined_at: datetime | None = None  # None: the owner came by posting
    posts: int = 0  # how many posts were accepted
    posts_left: int | None = None  # None: any number


class FoundEntry(Entry, frozen=True, kw_only=True):
    """An entry of a lookup. `place` is the owner's rank among the owners asked for. All of this needs a column."""

    position: Position | None = None
    place: int | None = None
    reached_at: datetime | None = None


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """The entries in the order of the request, and the owners who have none."""

    entries: list[FoundEntry]
    missing: list[str]


class RankedEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of a ranking. `sent_tier` is `tier` as it was sent: UNSET if the column has no tiers.

    `reached_at` is set if the earlier of two equal values ranks better.
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
        """The tier of `rank`: None if no tier fits, or if the column has none."""
        return self.sent_tier or None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a ranking, best to worst. `next` and `prev` are cursors of other pages, None at the ends."""

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
    """A value with its exact rank, and how many entries have it. `reached_at` counts if the earliest is better."""

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
    """A column that orders equal values of a curve. Entries without a value in it come last."""

    column: str
    best: str
    scale: int
    min: Value
    max: Value


class Curve(CurveSegment, frozen=True, kw_only=True):
    """A curve as the service sends it; `OfflineCurve` ranks with it. The sum of `segments` has no knots of its own."""

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
    """A line of the journal: a post, or a change of an owner or a board. `seq` continues a walk after this line."""

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
    """An owner's current position. `overtaken_by` has up to ten owners who overtook since the event before."""

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
    """An event of a stream. After `reset` (without data), events may have been missed."""

    event: str
    id: str
    data: TopEvent | OwnerEvent | Cohort | None = None


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a key, as the service sends it."""

    resource: str
    key: str
    region: str
    version: int
    lease_expires: datetime
    expires_in: Annotated[float, msgspec.Meta(le=LEASE_S_MAX)]
    acquired: bool


def decode(content: bytes, type: type[T]) -> T:
    """Decode `content` with exact decimals. Raises UnexpectedAnswerError."""
    try:
        hashable: Any = type
        answer: T = _decoder(hashable)(content)
        return answer
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError) as cause:
        raise UnexpectedAnswerError(f"the answer does not come from rankcurve: {one_line(str(cause))}") from cause


def check_name(answered: str, asked: str) -> None:
    """Raise UnexpectedAnswerError if an answer names another owner or key than the request, so is another's answer."""
    if answered != asked and answered != unicodedata.normalize("NFC", asked):
        raise UnexpectedAnswerError(f"the answer is about {answered!r}, and {asked!r} was asked for")


@lru_cache(maxsize=256)
def _decoder(type: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(type, float_hook=Decimal).decode


ENCODER = msgspec.json.Encoder(decimal_format="number")

"""The types of the bodies that callers send. The parser uses them, and the OpenAPI document is generated from them.

Because both come from the same types, the reference can't promise what the parser refuses. A body (other than a
profile) with a field that its type lacks is refused. The strings below fields are their descriptions in the OpenAPI
document.
"""

import unicodedata
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from storage.boards.family_ids import FACET_PATTERN, FACET_VALUE_PATTERN, FACETS_TOGETHER_MAX, FAMILY_PATTERN
from storage.periods import EVERY_PATTERN, PERIOD_NAME_PATTERN, PeriodKind
from storage.records import Best, ColumnKind, Each, Merge, RefreshMethod, TableSharing, Ties

from .values import (
    ALIASES_DESCRIPTION,
    ANY_BOARD_PATTERN,
    COLUMN_PATTERN,
    DECIMAL_PATTERN,
    INT64_MAX,
    NO_CONTROL_PATTERN,
    NO_NUL_PATTERN,
    OWNER_CHARS_MAX,
    POST_ID_CHARS_MAX,
    SCALE_MAX,
    SEARCH_PATTERN,
    TIER_PATTERN,
    matching,
    to_micros,
)

COLUMNS_MAX = 64
TIERS_MAX = 32
TIE_COLUMNS_MAX = 3
TO_RANK_MAX = 10**15
RULE_NUMBER_MAX = 10**15
FROM_MAX = 10**15
TO_PERCENT_MIN = 0.0001  # one entry in a million
SAMPLES_MAX = 100_000
EXACT_TOP_MAX = 1_000_000
REFRESH_SECONDS_MAX = 30 * 86_400
GRACE_SECONDS = 3600
GRACE_SECONDS_MAX = 10**12  # over 30,000 years, more than any calendar covers; in microseconds it still fits 64 bits
KEEP_SECONDS_MAX = 100 * 366 * 86_400
REASON_CHARS_MAX = 500
REWARDS_MAX = 16
REWARD_DATA_BYTES_MAX = 1_000

_UNIQUE = {"uniqueItems": True}
FACETS_SCHEMA = {
    "propertyNames": {"pattern": FACET_PATTERN},
    "additionalProperties": {"type": "string", "pattern": FACET_VALUE_PATTERN},
}


def at_most(setting: str) -> Meta:
    """Bound a list field: in the OpenAPI document, the value of `setting` is its `maxItems`."""
    return Meta(extra_json_schema={"maxItems": setting})


def normalised(chars_max: int) -> Meta:
    """Declare a text field that the service normalises to NFC, with 1 to `chars_max` characters."""
    return Meta(
        description=f"1 to {chars_max} Unicode characters after normalisation to NFC, which the service does; no "
        "control characters, no surrogates.",
        extra_json_schema={"minLength": 1, "maxLength": chars_max, "pattern": NO_CONTROL_PATTERN},
    )


Scalar = Annotated[
    Raw,
    Meta(
        description="A fixed-point decimal with the column's scale, as a JSON number or a string of ASCII digits "
        "`-?\\d+(\\.\\d+)?`, each with or without an exponent such as `E-9`; for a column of type `text`, a string. "
        "Never rounded: too many digits is 422.",
        extra_json_schema={"type": ["number", "string"]},
    ),
]
ScalarOrNull = Annotated[Raw, Meta(extra_json_schema={"type": ["number", "string", "null"]})]
Decimal = Annotated[
    Raw,
    Meta(
        description="A fixed-point decimal with the column's scale, as a JSON number or a string.",
        extra_json_schema={"type": ["number", "string"], "pattern": DECIMAL_PATTERN},
    ),
]
OwnerName = Annotated[str, normalised(OWNER_CHARS_MAX)]
PostId = Annotated[
    str,
    Meta(
        description="A retry with the same id and owner is never applied twice. NUL is refused.",
        extra_json_schema={"minLength": 1, "maxLength": POST_ID_CHARS_MAX, "pattern": NO_NUL_PATTERN},
    ),
]
Instant = Annotated[
    datetime,
    Meta(
        tz=True,
        description="A time with a zone, kept to the microsecond, not before 1970.",
        extra_json_schema={"pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-"},
    ),
]
BoardId = Annotated[str, matching(ANY_BOARD_PATTERN)]
ColumnName = Annotated[str, matching(COLUMN_PATTERN)]
FacetName = Annotated[str, matching(FACET_PATTERN)]
PeriodName = Annotated[str, matching(PERIOD_NAME_PATTERN)]  # a kind of calendar periods, or a family's own
GraceSeconds = Annotated[int, Meta(ge=0, le=GRACE_SECONDS_MAX)]
Reason = Annotated[
    str,
    Meta(max_length=REASON_CHARS_MAX, description="Why an operator does this, for the list of acts."),
    matching(SEARCH_PATTERN),
]
_COLUMNS_NAMED = Meta(extra_json_schema={"propertyNames": {"pattern": COLUMN_PATTERN}})
StatsSent = Annotated[dict[str, Scalar], _COLUMNS_NAMED]
_TieNames = Annotated[list[ColumnName], Meta(min_length=1, max_length=TIE_COLUMNS_MAX + 1, extra_json_schema=_UNIQUE)]
TiesSent = Ties | _TieNames


class TierBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tier: a named band of a ranking. It has exactly one of `to_rank`, `to_percent` and `value`."""

    name: Annotated[str, matching(TIER_PATTERN)]
    """No other tier of the column has the same name."""
    to_rank: Annotated[int, Meta(ge=1, le=TO_RANK_MAX)] | UnsetType = UNSET
    """The worst rank that fits."""
    to_percent: Annotated[float, Meta(ge=TO_PERCENT_MIN, le=100)] | UnsetType = UNSET
    """The worst rank that fits, in percent of all ranked entries, rounded up: 5 % of 41 entries are three."""
    value: Decimal | UnsetType = UNSET
    """The worst value that fits."""


OnBreach = Literal["reject", "hold"]


class ColumnBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"from_": "from"}):
    """A column of a leaderboard.

    `min` and `max` default to -1e15 and 1e15. If the column has too many decimal digits (`scale`) for these numbers to
    fit into 64 bits, the defaults are the widest range that fits.
    """

    name: ColumnName
    sorted: bool | UnsetType = UNSET
    """True if entries are ranked by the column. Default: true for numbers, unless `merge` is `with`; false for text."""
    merge: Merge
    best: Best | UnsetType = UNSET
    """The values that rank first. Default: `low` if `merge` is `min`, otherwise `high`."""
    scale: Annotated[int, Meta(ge=0, le=SCALE_MAX)] = 0
    min: Decimal | UnsetType = UNSET
    max: Decimal | UnsetType = UNSET
    type: ColumnKind = ColumnKind.NUMBER
    of: ColumnName | UnsetType = UNSET
    """With `merge` `with`: the column that it follows. Its value comes from the post that last improved that column (if
    that is merged by `max` or `min`) or changed it, and is null if this post did not name it. With `merge` `quotient`:
    the column that is divided."""
    per: ColumnName | UnsetType = UNSET
    """With `merge` `quotient`: the column that divides `of`. The quotient is computed with each post, from the entry
    after it, and rounded half to even. It can be neither posted nor set. Both are other columns of numbers."""
    from_: Annotated[int, Meta(ge=1, le=FROM_MAX)] | UnsetType = UNSET
    """With `merge` `quotient`: the least value of `per` with which there is a quotient. Default: 1."""
    tiers: Annotated[list[TierBody], Meta(max_length=TIERS_MAX)] = []
    """The tiers of a ranked column, best first: an entry has the first one that fits. They can change at any time."""
    post_min: Decimal | UnsetType = UNSET
    """The least value that one post may bring to a column of numbers. This and the next three can change at any time.
    They do not bind `set`."""
    post_max: Decimal | UnsetType = UNSET
    """The greatest value that one post may bring."""
    gain_per_hour_max: Decimal | UnsetType = UNSET
    """With `merge` `sum`: the most that the posts of an owner add within an hour, by the times at which they are
    applied."""
    on_breach: OnBreach | UnsetType = UNSET
    """`reject`, the default: a post beyond one of these limits is rejected, `post_limit`. `hold`: it waits for the
    verdict of an operator."""


class PredictorBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a leaderboard's curves, and of the ranks counted by default. Every field has a default."""

    samples: Annotated[int, Meta(ge=2, le=SAMPLES_MAX)] | UnsetType = UNSET
    exact_top: Annotated[int, Meta(ge=0, le=EXACT_TOP_MAX)] | UnsetType = UNSET
    refresh_seconds: Annotated[int, Meta(ge=1, le=REFRESH_SECONDS_MAX)] | UnsetType = UNSET
    method: RefreshMethod | UnsetType = UNSET


class RewardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reward. It has exactly one of `to_rank`, `to_percent` and `to_value`."""

    name: Annotated[str, matching(TIER_PATTERN)]
    """No other reward of the leaderboard has the same name."""
    column: ColumnName
    """The ranked column that decides who gets it."""
    to_rank: Annotated[int, Meta(ge=1, le=TO_RANK_MAX)] | UnsetType = UNSET
    """The worst rank that gets it. Who shares this rank gets it, too."""
    to_percent: Annotated[float, Meta(ge=TO_PERCENT_MIN, le=100)] | UnsetType = UNSET
    """The worst rank that gets it, in percent of all visible entries with a value in the column, rounded up."""
    to_value: Decimal | UnsetType = UNSET
    """The worst value that gets it."""
    data: Annotated[Raw, Meta(extra_json_schema={"type": "object"})] | UnsetType = UNSET
    """A JSON object of at most 1,000 bytes, such as the item to hand out. Every grant carries it. Default: `{}`."""


RewardsSent = Annotated[list[RewardBody], Meta(max_length=REWARDS_MAX)]
SEGMENTS_MAX = 64
_RuleNumber = Annotated[int, Meta(ge=1, le=RULE_NUMBER_MAX)] | UnsetType


class EntryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rules by which a leaderboard accepts posts. Give at least one. They can change at any time.

    A limit below what has already been reached refuses only what is new.
    """

    join: bool = False
    """True: only owners who have joined may post. The others' posts are rejected, `not_joined`."""
    posts_max: _RuleNumber = UNSET
    """The most posts of an owner that are accepted, whatever they change. More are rejected, `no_posts_left`."""
    owners_max: _RuleNumber = UNSET
    """Maximum number of owners. Who comes later is refused, `board_full`."""


class BoardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    columns: Annotated[list[ColumnBody], Meta(min_length=1, max_length=COLUMNS_MAX)]
    ties: TiesSent = Ties.SHARED
    """Equal values share a rank (`shared`), or the one that was reached first ranks better (`earliest`). Or a list of
    up to three numeric columns that order equal values, the most important one first, and optionally `earliest` last.
    Entries without a value in such a column come after those with one. Whatever the order of arrival, `max` and `min`
    are reached with the earliest post or run of that value, `sum` with the latest post that changed it, and `quotient`
    when the later of its two columns was reached."""
    table: TableSharing = TableSharing.OWN
    partition: Annotated[int, Meta(ge=0)] | None = None
    """The partition of the store in which it is created. Default: the service chooses."""
    segments: Annotated[int, Meta(ge=1, le=SEGMENTS_MAX)] = 1
    """The number of parts over which its owners are spread, so that it can grow past one machine."""
    predictor: PredictorBody = PredictorBody()
    entry: EntryBody | None = None
    """The rules of entry. Each leaderboard of a family has them for itself. Without rules, everybody may post."""
    each: Each = Each.FIRST
    """The rewards that are granted to an owner, of those that fit: the first one, or all."""
    reason: Reason | None = None


class PutBoard(BoardBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The specification of a leaderboard.

    You can add `closes_at` later, but you can neither add nor remove `opens_at`.
    """

    opens_at: Instant | None = None
    """Posts before this time are rejected. It can be moved until it has passed."""
    closes_at: Instant | None = None
    """Posts at or after this time are rejected. It can be set or moved while posts still count."""
    grace_seconds: GraceSeconds = GRACE_SECONDS
    """The time after `closes_at` during which earlier posts still count."""
    keep_seconds: Annotated[int, Meta(ge=0, le=KEEP_SECONDS_MAX)] | None = None
    """The time for which the leaderboard keeps its rows after it was closed; null means forever."""
    rewards: RewardsSent = []
    """The prizes for owners when the leaderboard closes. They need `closes_at`, and can change until then."""


BOUNDS_MAX = 1_000
LocalTime = Annotated[str, Meta(min_length=10, max_length=26)]


class PeriodBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Periods other than those of the calendar, of one length or between bounds. Their ids end in 1, 2, 3 and so on.

    Times are in ISO 8601 without a zone, because they are in the family's zone.
    """

    name: PeriodName
    """The ids of leaderboards have it: `arena:season-3`. `this-season` and `last-season` are aliases."""
    starts_at: LocalTime | UnsetType = UNSET
    """The start of the first period: `2027-01-04T05:00:00`."""
    every: Annotated[str, matching(EVERY_PATTERN)] | UnsetType = UNSET
    """The length of a period in months, weeks, days or hours: `P1M`, `P6W`, `P1D`, `PT12H`."""
    bounds: Annotated[list[LocalTime], Meta(min_length=2, max_length=BOUNDS_MAX)] | UnsetType = UNSET
    """Instead: when each period starts and the one before it ends. You can append bounds later."""


class PutFamily(BoardBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The specification of a family: its periods and facets, and the settings that all its leaderboards share."""

    table: TableSharing = TableSharing.SHARED
    periods: Annotated[list[PeriodKind | PeriodBody], Meta(min_length=1, extra_json_schema=_UNIQUE)]
    time_zone: str = "UTC"
    """An IANA name: `Europe/Berlin`."""
    facets: Annotated[
        list[Annotated[list[FacetName], Meta(extra_json_schema={"maxItems": FACETS_TOGETHER_MAX, **_UNIQUE})]],
        Meta(min_length=1, extra_json_schema=_UNIQUE),
    ] = msgspec.field(default_factory=lambda: [[]])
    """Lists of facets by which boards are split. The empty list makes the board for everybody."""
    grace_seconds: GraceSeconds | UnsetType = UNSET
    """The time after the end of a period during which late posts still reach it. Default: 3600 for a new family; one
    that exists keeps its own. It can only be shortened, and then periods close whose new end has passed."""
    keep: Annotated[
        dict[str, Annotated[int, Meta(ge=1)]],
        Meta(extra_json_schema={"propertyNames": {"pattern": PERIOD_NAME_PATTERN}}),
    ] = {}
    """The number of closed periods of each kind that keep their rows. All periods of a missing kind keep their rows."""
    rewards: Annotated[
        dict[str, RewardsSent], Meta(extra_json_schema={"propertyNames": {"pattern": PERIOD_NAME_PATTERN}})
    ] = {}
    """The prizes for owners when a leaderboard of the family closes, by the kind of its period."""


class ResetFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kind of period whose current leaderboards are emptied."""

    period: PeriodName
    reason: Reason | None = None


class JoinBoard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The owner who joins."""

    owner: OwnerName


class JudgePost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verdict on a held post."""

    verdict: Literal["accept", "refuse"]
    reason: Reason | None = None


class IssueToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The owner who is to have a player token, and what it allows."""

    owner: OwnerName
    boards: list[BoardId] = []
    """The leaderboards to which the token may post, and which it may join."""
    families: list[Annotated[str, matching(FAMILY_PATTERN)]] = []
    """The families to which the token may post, and whose leaderboards it may join."""
    posts: Annotated[int, Meta(ge=1)] = 1
    """The largest number of posts to each of the leaderboards and families."""
    expires_in: Annotated[int, Meta(ge=1)] = 900
    """The time in seconds after which the token is no longer valid."""
    limits: Annotated[dict[str, Decimal], _COLUMNS_NAMED] = {}
    """The best value that one post may bring, by column: the greatest, or if low values are the better ones, the
    least. In a column that merges by `sum`, a post may not take more than this away either."""


class HideOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hides an owner, openly or as a shadow. The reason is stored with the act."""

    shadow: bool = False
    """Answers about the owner continue as if the owner were ranked, so that the owner does not notice."""
    reason: Reason | None = None


class MergeOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The owner who gets the entries, and what they are made of."""

    into: OwnerName
    from_: Literal["journal", "entries"] = "journal"
    """`journal`: the posts of both owners, in the order of the journal. `entries`: the stored values of both, each
    combined by the rule of its column: sums add, the better value of `max` and `min` stays, and of `last` the newer."""
    reason: Reason | None = None


class PostBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A post: one contribution of stats for one owner.

    `stats` and `set` together name at least one column. No column may be in both.
    """

    owner: OwnerName
    stats: StatsSent = {}
    set: Annotated[dict[str, ScalarOrNull], _COLUMNS_NAMED] = {}
    """Values that overwrite instead of merging, and null for a value to clear; needs the role `ops`."""
    post_id: PostId | UnsetType | None = UNSET
    at: Instant | UnsetType | None = UNSET
    """The time of the posted event, with a zone, kept to the microsecond. Default: the time of arrival. A
    retry sends the same time, or again no time. Another time with the same `post_id` is a `post_id_conflict`."""
    reason: Reason | None = None
    """The reason for which an operator overwrites values, for the list of acts. It belongs to `set`."""
    hold: bool | UnsetType = UNSET
    """True: hold the post until an operator accepts or refuses it. Default: false."""
    n: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """The number of a post with a player token: 0 to the `posts` of the token, less 1. Default: 0. It takes the place
    of `post_id`, so a repeated post has the same number."""

    @property
    def at_us(self) -> int | None:
        """The post's time in microseconds since 1970, or None for the time when the post arrives."""
        return to_micros(self.at) if isinstance(self.at, datetime) else None


class FanPostBody(PostBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A post to all or none of the leaderboards that it names, apart from those that are closed or not open yet."""

    boards: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"pattern": ANY_BOARD_PATTERN})]],
        Meta(min_length=1, extra_json_schema={"maxItems": "boards_per_post_max", **_UNIQUE}),
    ]


class FacetedPostBody(PostBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A post to a family. It reaches leaderboards of every period that contains the time of the post.

    In each of these periods, it reaches the leaderboard for everybody, if the family has one, and those for the post's
    facet values.
    """

    facets: Annotated[dict[str, str], Meta(extra_json_schema=FACETS_SCHEMA)] = {}
    """The value of each facet. If a facet has no value here, the boards of the lists with this facet are skipped."""


LIST_BOUNDS = {"minItems": 1, "maxItems": "posts_per_request_max"}
_POSTS = Meta(extra_json_schema=LIST_BOUNDS)


class FacetedPostList(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Many posts to a family. The answer has their results in the same order."""

    posts: Annotated[list[FacetedPostBody], _POSTS]


class PostList(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Many posts. The answer has their results in the same order."""

    posts: Annotated[list[PostBody], _POSTS]


class FanPostList(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Many posts that name their leaderboards. The answer has their results in the same order."""

    posts: Annotated[list[FanPostBody], _POSTS]


class Lookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The owners whose entries you want. If you send `column`, the answer also has their positions in this column."""

    owners: Annotated[list[OwnerName], at_most("lookup_owners_max")]
    column: ColumnName | None = None


class EraseEntries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entries to erase: those of `owners`, or those of a ranking from a row on, or those worse than a value.

    It has exactly one of `owners`, `from_rank` and `worse_than`.
    """

    owners: Annotated[list[OwnerName], at_most("lookup_owners_max")] | UnsetType = UNSET
    column: ColumnName | UnsetType = UNSET
    """The ranked column of `from_rank` or `worse_than`. Default: the only ranked column."""
    from_rank: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": INT64_MAX})] | UnsetType = UNSET
    """The number of the first row to erase, as for a page: it may be inside a tie."""
    worse_than: Decimal | UnsetType = UNSET
    """Entries with this value stay."""
    reason: Reason | None = None


class ManyBoards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The leaderboards on which you want the owner's position in `column`, or in the only ranked column of each."""

    boards: Annotated[list[BoardId], Meta(description=ALIASES_DESCRIPTION), at_most("query_values_max")]
    column: ColumnName | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "boards", [unicodedata.normalize("NFC", each) for each in self.boards])


class ProfileBody(msgspec.Struct, frozen=True):
    """The profile of an owner: a small JSON object with any fields, such as a name or an avatar."""

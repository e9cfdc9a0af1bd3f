"""Defines the values that rooms pass to each other: boards, families, columns, entries, posts and their outcomes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import msgspec

from .errors import PostError
from .periods import Calendar, Period, PeriodSpec, calendar_of

INT64_MAX = 2**63 - 1
# In the catalog, the id of a segment is formatted `board#key`, such as `arena#7`; no other id contains `#`.
SEGMENT_SIGN = "#"


class Merge(StrEnum):
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    LAST = "last"
    WITH = "with"  # the value comes from the post that last improved another column, `ColumnSpec.of`
    QUOTIENT = "quotient"  # the value is computed from two other columns, `ColumnSpec.of` and `ColumnSpec.per`


class Best(StrEnum):
    """The better end of a ranked column: its high values or its low values."""

    HIGH = "high"
    LOW = "low"


class Ties(StrEnum):
    """The rules for equal values: they share a rank, or the value that was reached first has the better rank."""

    SHARED = "shared"
    EARLIEST = "earliest"


class RefreshMethod(StrEnum):
    """The methods by which a refresh reads a column to make its curve. See `jobs.curves.fitting`."""

    SKIP = "skip"
    SCAN = "scan"
    AUTO = "auto"


class TableSharing(StrEnum):
    OWN = "own"  # the rows are in a table of the board's own: for few large boards
    SHARED = "shared"  # the rows are in a table with the rows of other boards: for many small boards


class Each(StrEnum):
    """The rules for an owner whom several rewards of a board fit: the first of them, or all of them, are granted."""

    FIRST = "first"
    ALL = "all"


class ColumnKind(StrEnum):
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class TierSpec:
    """A tier (a named band of ranks) of a ranked column. Exactly one of its three limits is set."""

    name: str
    to_rank: int | None = None  # the worst rank that fits
    to_percent: float | None = None  # the worst rank that fits, in percent of all ranked entries, rounded up
    value_scaled: int | None = None  # the worst value that fits, times 10**scale of the column


@dataclass(frozen=True, slots=True)
class PostLimits:
    """Limits on the scaled values that posts may add to a column of numbers. At least one limit is set."""

    least_scaled: int | None  # the least value of one post
    most_scaled: int | None  # the greatest value of one post
    gain_scaled: int | None  # how much the posts of an owner may add within an hour, see `storage.limits.gains`
    holds: bool  # whether a post beyond a limit is held for an operator's verdict, instead of being refused

    def __str__(self) -> str:
        limits = self.least_scaled, self.most_scaled, self.gain_scaled
        return ",".join("" if each is None else str(each) for each in (*limits, int(self.holds)))


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A board's column (a named stat), as the client described it."""

    name: str
    sorted: bool
    merge: Merge
    best: Best
    kind: ColumnKind
    scale: int  # how many digits a value has after the decimal point, 0 to 9
    min_scaled: int  # the smallest allowed value times 10**scale
    max_scaled: int  # the largest allowed value times 10**scale
    of: str | None = None  # merged by `with`: the column that this one follows; by `quotient`: the dividend
    tiers: tuple[TierSpec, ...] = ()  # an entry has the first tier that fits
    per: str | None = None  # merged by `quotient`: the name of the column that is the divisor
    per_least: int = 0  # the least divisor that gives a quotient, a whole number; 0: the column is no quotient
    keeps_time: bool = False  # not ranked, but cells have the time, because the time of a quotient depends on it
    limits: PostLimits | None = None  # of a column of numbers that posts name; None: there are none


def format_decimal(value: int, scale: int) -> str:
    """Format a scaled value with `scale` digits after the point: `60250` with scale 3 becomes `60.250`."""
    if scale == 0:
        return str(value)
    whole, fraction = divmod(abs(value), 10**scale)
    return f"{'-' if value < 0 else ''}{whole}.{fraction:0{scale}d}"


def describe_range(column: ColumnSpec) -> str:
    """Describe a column's exact range for a message, and how to get a wider one."""
    low, high = (format_decimal(bound, column.scale) for bound in (column.min_scaled, column.max_scaled))
    return f'{low} to {high}, its "min" and "max", which can be wider when the column is made'


@dataclass(frozen=True, slots=True)
class PredictorSpec:
    """The settings of a board's curves and of its exact ranks, as its creator chose them."""

    samples: int  # about how many knots a curve gets
    exact_top: int  # ranks from 1 to this one are always counted exactly
    refresh_seconds: int  # the interval of the refresh job
    method: RefreshMethod


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """A board's reward, as the client described it. As for a tier, exactly one of its three limits is set."""

    name: str
    column: str  # the ranked column that decides who gets it
    to_rank: int | None = None
    to_percent: float | None = None
    value_scaled: int | None = None
    data: str = "{}"  # a JSON object
    division: int | None = None  # in a league, whose ranks are those in cohorts; None: owners of all divisions get it


@dataclass(frozen=True, slots=True)
class Rewards:
    """The rewards that owners get when a board closes. See `storage.rewards`."""

    listed: tuple[RewardSpec, ...]
    each: Each


@dataclass(frozen=True, slots=True)
class Season:
    """The time during which a board outside a family accepts posts, and how long it then keeps its rows."""

    opens_us: int | None  # posts with an earlier time do not count; None: there is no earliest time
    ends_us: int | None  # posts with this time or a later one do not count; None: the season has no end
    grace_seconds: int  # how long after the end the board still takes late posts
    keep_seconds: int | None  # how long the rows stay after the board closes, before they are archived; None: forever

    @property
    def closes_us(self) -> int | None:
        """The time at which the board stops accepting posts, or None if the season has no end."""
        return None if self.ends_us is None else self.ends_us + self.grace_seconds * 1_000_000


@dataclass(frozen=True, slots=True)
class EntryRules:
    """The rules by which a board accepts posts. The counts that they limit are kept by `storage.leaves.entrants`."""

    join: bool  # whether only owners who have joined may post
    posts_max: int | None  # the most posts of an owner that are accepted; None: any number
    owners_max: int | None  # the most owners; None: any number

    def __str__(self) -> str:
        return f"{self.join:d},{self.posts_max or ''},{self.owners_max or ''}"


class Absent(StrEnum):
    """The rules for owners of a league without a post in a period: they stay, fall by one division, or leave."""

    STAY = "stay"
    RELEGATE = "relegate"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class DivisionSpec:
    name: str
    promote: int = 0  # how many owners of a cohort rise to the next division
    relegate: int = 0  # how many fall to the one before


@dataclass(frozen=True, slots=True)
class LeagueSpec:
    """The rules of a league, a family whose boards have cohorts. `storage.leagues` explains them."""

    column: str  # the ranked column that decides
    cohort_size: int
    divisions: tuple[DivisionSpec, ...]  # the best one last
    absent: Absent
    period: str  # the only kind of period of the family
    time_zone: str
    declared: tuple[PeriodSpec, ...] = ()  # as in the family

    def __str__(self) -> str:
        bounds = sum(len(each.bounds) for each in self.declared)
        return f"{self.cohort_size},{len(self.divisions)},{self.absent.value},{bounds}"


@dataclass(frozen=True, slots=True)
class BoardSpec:
    """Everything that a client chose for a board."""

    columns: tuple[ColumnSpec, ...]
    ties: Ties
    predictor: PredictorSpec
    table: TableSharing = TableSharing.OWN
    season: Season | None = None
    segments: int = 1  # the number of parts over which the owners are spread; each has rows, totals and curves
    tie_columns: tuple[str, ...] = ()  # the columns by which equal values are ordered, before `ties` decides
    # How often the tiers, limits, predictor, season, rewards, or the rules of entry or of a league changed. By this
    # number, processes notice outdated copies.
    settings_version: int = 0
    entry: EntryRules | None = None  # None: every owner may post, any number of times
    rewards: Rewards | None = None  # of a board outside families; None: nobody gets any
    league: LeagueSpec | None = None  # of a board of a league


class Place(NamedTuple):
    partition: int  # the partition that holds the leaf's rows, totals, log and curves
    table_key: int | None = None  # the shared table with the rows; None: the leaf has a table of its own
    # In a shared table: the key that identifies the leaf's rows; emptying a board outside a family changes this key.
    # In a table of the leaf's own: how often the table was renamed or moved; the table's name depends on this number.
    rows_key: int = 0


class Gate(NamedTuple):
    """Says which times a leaf's posts may have, and when it closes. `storage.leaves.gates` reads and locks gates."""

    epoch: int = 1  # grows whenever the leaf is emptied; a curve from an earlier epoch is invalid
    opens_us: int | None = None  # posts with an earlier time are refused; None: no time is too early
    ends_us: int | None = None  # when the board's period (in a family) or season (outside families) ends; None: no end
    closes_us: int | None = None  # when the leaf stops taking posts, even late posts; None: never
    closed_us: int | None = None  # when the leaf was shut; None: it is not shut
    archived_us: int | None = None  # when an archive replaced the rows; None: the leaf still has rows
    reset_us: int | None = None  # when the leaf was last emptied; posts with an earlier time of their own are refused

    def is_shut(self, now_us: int) -> bool:
        """Return whether the leaf rejects all posts, whatever their times."""
        return self.closed_us is not None or (self.closes_us is not None and self.closes_us <= now_us)


OPEN = Gate()


@dataclass(frozen=True)
class Leaf:
    """A table, or a key in a shared table, that holds entries, with their totals, log, curves and gate.

    `key` identifies the leaf in other tables and is never reused. An archive may have replaced the rows.
    """

    key: int
    id: str  # the id of the leaf's board; all segments of a board have this same id
    spec: BoardSpec
    place: Place
    gate: Gate = OPEN  # the gate when it was last read; it may be outdated
    family_key: int | None = None  # the board's family; the row of the family is a second gate; None: no family
    segment: int = 0  # the 0-based number of this leaf among the leaves of its board
    whole: tuple[int, int] | None = None  # of a segment of a board with entry rules: the board's home and key

    @cached_property
    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @cached_property
    def partition(self) -> int:
        return self.place.partition

    @cached_property
    def table_key(self) -> int | None:
        return self.place.table_key

    @cached_property
    def rows_key(self) -> int:
        return self.place.rows_key

    @cached_property
    def epoch(self) -> int:
        return self.gate.epoch

    @cached_property
    def edition(self) -> str:
        """A text that changes whenever the leaf is reset, gets columns or other settings, or is archived."""
        rows = "rows" if self.archived_us is None else "archive"
        demands = f".{self.demands}" if self.demands else ""
        return f"{self.epoch}.{len(self.spec.columns)}.{self.spec.settings_version}.{rows}{demands}"

    @cached_property
    def demands(self) -> str:
        """Everything that a post must know of the leaf: computed columns, limits, and rules of entry or of a league.

        This is nearly always empty. A post based on a copy that knows fewer columns would leave the missing ones
        unchanged.
        """
        computed = sum(column.merge is Merge.QUOTIENT for column in self.spec.columns)
        entry, league = self.spec.entry, self.spec.league
        rules = f"{'' if entry is None else f'/{entry}'}{'' if league is None else f'~{league}'}"
        limits = "".join(f"#{index}:{column.limits}" for index, column in self.limited)
        return f"{computed or ''}{rules}{limits}"

    @cached_property
    def limited(self) -> tuple[tuple[int, ColumnSpec], ...]:
        return tuple((index, column) for index, column in enumerate(self.spec.columns) if column.limits is not None)

    @cached_property
    def holds(self) -> bool:
        """True if posts beyond a limit are held, in which case each post needs an id."""
        return any(column.limits is not None and column.limits.holds for _, column in self.limited)

    @property
    def entrants_place(self) -> tuple[int, int]:
        """The partition and key under which the whole board's owners are counted, see `entrants`."""
        return self.whole or (self.partition, self.key)

    @cached_property
    def closed_us(self) -> int | None:
        return self.gate.closed_us

    @cached_property
    def archived_us(self) -> int | None:
        return self.gate.archived_us

    @cached_property
    def shape(self) -> tuple[int, Gate, str]:
        """The properties that reads must share to be answered by one statement, so that outdated copies fail alone."""
        return self.key, self.gate, self.edition

    @cached_property
    def is_unreached(self) -> bool:
        """True if no post has reached this leaf of a family's board. The store has no row for such a leaf."""
        return self.key == self.family_key

    @cached_property
    def sorted_indexes(self) -> tuple[int, ...]:
        return tuple(index for index, column in enumerate(self.spec.columns) if column.sorted)


@dataclass(frozen=True)
class Board:
    """A leaderboard, which maps each owner to the leaf with the owner's entry: its only leaf, or one of several."""

    key: int  # never reused; also the key of the board's leaf, unless the board has segments
    id: str
    spec: BoardSpec
    created_at_us: int
    leaves: tuple[Leaf, ...]  # in a fixed order
    family_key: int | None = None  # the family that the board belongs to; None: no family
    home: int = 0  # partition of the only leaf; with segments: partition of the archive and of the log until the split

    @cached_property
    def version(self) -> tuple[int, ...]:
        """A tuple that compares greater for a later stored state of the board."""
        # A split makes leaves with greater keys. A board that is created again has a greater key.
        leaf = self.leaves[-1]
        ended = leaf.archived_us is not None, leaf.closed_us is not None
        return self.key, ended[0], leaf.key, leaf.epoch, ended[1], self.spec.settings_version, len(self.spec.columns)

    @cached_property
    def is_spread(self) -> bool:
        """True if the board has segments: leaves with their own keys, each with some of the owners."""
        return self.leaves[0].key != self.key

    @cached_property
    def leaf(self) -> Leaf:
        """The leaf that holds all entries. Raises ValueError if the board has several leaves."""
        [leaf] = self.leaves
        return leaf

    @cached_property
    def gate(self) -> Gate:
        """The gate of the leaves, which is the same for all of them."""
        return self.leaves[0].gate

    @cached_property
    def edition(self) -> str:
        """The edition of the leaves, which is the same for all of them."""
        return self.leaves[0].edition

    @cached_property
    def partition(self) -> int:
        """The partition of the only leaf. Raises ValueError if the board has several leaves."""
        return self.leaf.partition

    @cached_property
    def reading_partition(self) -> int:
        """The partition in which to run programs that read the board. They read each other segment in its own one."""
        return self.leaves[0].partition

    def leaf_of(self, owner: str) -> Leaf:
        leaves = self.leaves
        return leaves[0] if len(leaves) == 1 else leaves[segment_of(owner, len(leaves))]

    @cached_property
    def is_unreached(self) -> bool:
        """True if no post has reached this board of a family. The store has no row for such a board."""
        return self.key == self.family_key

    @cached_property
    def column_index(self) -> dict[str, int]:
        return {column.name: index for index, column in enumerate(self.spec.columns)}

    @cached_property
    def posted_index(self) -> dict[str, int]:
        """The part of `column_index` with the columns that posts may name, which are all but the computed ones."""
        columns = enumerate(self.spec.columns)
        return {column.name: index for index, column in columns if column.merge is not Merge.QUOTIENT}

    @cached_property
    def sorted_indexes(self) -> tuple[int, ...]:
        return self.leaves[0].sorted_indexes


def segment_of(owner: str, segments: int) -> int:
    """Choose the 0-based number of the segment that holds an owner's entry.

    This function must never change, because every stored entry relies on it.
    """
    return int.from_bytes(blake2b(owner.encode(), digest_size=8).digest()) % segments


@dataclass(frozen=True, slots=True)
class FamilySpec:
    """Everything that a client chose for a family: what its boards have in common, and which boards it has."""

    board: BoardSpec
    periods: tuple[str, ...]  # kinds of calendar periods, and names of `declared` ones
    time_zone: str  # an IANA name that was checked
    facets: tuple[tuple[str, ...], ...]  # sorted lists; ((), (clan,)): in each period, a board for all and one per clan
    grace_seconds: int  # how long after a period's end its boards still take late posts
    keep: tuple[tuple[str, int], ...]  # for each kind, how many closed periods keep the rows of their boards
    first_grace_seconds: int | None = None  # the first grace, if it was shortened later; None: it never was
    declared: tuple[PeriodSpec, ...] = ()  # the periods that are not those of the calendar
    rewards: tuple[tuple[str, Rewards], ...] = ()  # of the boards of each kind of period

    def ends_us(self, period: Period) -> int | None:
        bounds = self.calendar.bounds_us(period)
        return None if bounds is None else bounds[1]

    @property
    def calendar(self) -> Calendar:
        return calendar_of(self.time_zone, self.declared)

    def may_have_grown(self, at_us: int) -> bool:
        """Return whether an instant is past all bounds of some periods, so that a later version may have more."""
        return any(each.bounds and self.calendar.to_instant_us(each.bounds[-1]) <= at_us for each in self.declared)

    @property
    def grace_us(self) -> int:
        return self.grace_seconds * 1_000_000

    @property
    def longest_grace_us(self) -> int:
        """Return the longest grace (time for late posts) that the family has ever had, in microseconds."""
        longest_s = self.grace_seconds if self.first_grace_seconds is None else self.first_grace_seconds
        return longest_s * 1_000_000


@dataclass(frozen=True)
class Family:
    """A family in the catalog. `key` comes from the sequence of board keys, so no board has the same key."""

    key: int
    id: str
    spec: FamilySpec
    created_at_us: int
    closed_through_us: int = 0  # periods that close at this time or earlier stay closed, even if the clock steps back
    partition: int = 0  # the partition of all boards of the family

    @cached_property
    def version(self) -> tuple[int, ...]:
        """A tuple that compares greater for a later stored state of the family."""
        board, bounds = self.spec.board, sum(len(each.bounds) for each in self.spec.declared)
        return self.key, self.closed_through_us, board.settings_version, len(board.columns), bounds

    def shut_through_us(self, now_us: int) -> int:
        """Compute the time up to which periods are shut: a period that ends at or before it accepts no more posts."""
        return max(now_us, self.closed_through_us) - self.spec.grace_us

    def list_closed_periods(self, newest: Period | None, limit: int) -> list[Period]:
        """List up to `limit` periods, starting at the closed period `newest` and going back in time.

        Leave out periods that were already shut when the family was created.
        """
        found: list[Period] = []
        while newest is not None and len(found) < limit:
            ends_us = self.spec.ends_us(newest)
            if ends_us is None or ends_us + self.spec.longest_grace_us <= self.created_at_us:
                break
            found.append(newest)
            newest = self.spec.calendar.find_previous(newest)
        return found

    @property
    def shares_table(self) -> bool:
        """True if the family's boards share one table, which no board outside the family uses."""
        return self.spec.board.table is TableSharing.SHARED

    @cached_property
    def scope(self) -> "PostScope":
        return PostScope(self.key, self.partition)

    @cached_property
    def facet_names(self) -> frozenset[str]:
        return frozenset(name for names in self.spec.facets for name in names)

    def unreached_board(self, board_id: str, ends_us: int | None = None) -> Board:
        """Build a board that no post has reached. Its key is the family's key, under which no rows are ever stored."""
        shared = self.shares_table
        place = Place(self.partition, self.key if shared else None, self.key if shared else 0)
        leaf = Leaf(self.key, board_id, self.spec.board, place, Gate(ends_us=ends_us), self.key)
        return Board(self.key, board_id, self.spec.board, self.created_at_us, (leaf,), self.key, self.partition)

    @cached_property
    def template_board(self) -> Board:
        """A board with the family's id, and with the columns and rules that all boards of the family share.

        If the boards share a table, the template uses it, too. Otherwise it has its own table, which stays empty.
        """
        return self.unreached_board(self.id)


Placed = TypeVar("Placed", bound=Leaf | Board)


def by_partition(placed: Iterable[Placed]) -> list[tuple[int, list[Placed]]]:
    """Group leaves or boards by partition, lowest number first: the order in which transactions write to partitions."""
    found: dict[int, list[Placed]] = {}
    for each in placed:
        found.setdefault(each.partition, []).append(each)
    return sorted(found.items())


class Entry(msgspec.Struct):
    """An owner's row on a board. `cells` has one value per column: padded text if ranked, int, text or None."""

    owner: str
    updated_at_us: int  # time of the last write; it grows with every write, so conditional writes use it as a version
    cells: list[str | int | None]


class ShadowEntry(Entry):
    """A shadowed owner's entry. No ranking has its row, but answers about the owner look as if one had."""


class PostStatus(StrEnum):
    """The outcomes of a post, from the best to the worst."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    DUPLICATE = "duplicate"
    HELD = "held"  # the post waits for the verdict of an operator, see `storage.limits.held_posts`
    REJECTED = "rejected"
    VOIDED = "voided"  # the post was taken back, or an operator has refused it; no result of a post has this outcome


StatValue = int | str  # a scaled integer, or text for `type: text` columns


class ColumnChange(msgspec.Struct, array_like=True, gc=False):
    """A post's change to one column. A number in `value` is already multiplied by 10**scale of the column."""

    index: int
    value: StatValue | None  # None clears the stored value, and only overwrites
    overwrite: bool  # whether `value` replaces the stored value (`set`) instead of being merged with it


class BoardPost(msgspec.Struct, gc=False):
    """The part of a post that changes a single leaf."""

    leaf: Leaf
    changes: Sequence[ColumnChange]


class PostScope(NamedTuple):
    """The family that a caller posted to. The post's id is stored once for the family instead of for each board."""

    key: int  # the family's key
    partition: int  # the partition of all boards of the family


class PostAct(msgspec.Struct, array_like=True):
    """Records who overwrites values with `set` or accepts a held post, and why.

    `key` and `reason` are as in `boards.acts.Act`.
    """

    key: str | None
    reason: str | None
    detail: str


class PostTerms(msgspec.Struct, array_like=True):
    """The terms of a post that changes one column of numbers. If the stored value does not meet them, nothing happens.

    A post with terms goes to one board and has no id. If the terms are not met, its outcome has no `stats`.
    """

    adds: bool = False  # whether the change adds to the stored value, whatever the merge rule of the column
    absent: bool = False  # whether the owner may have no value
    present: bool = False  # whether the owner must have a value
    above: bool = False  # whether the new value must be greater than a stored one
    below: bool = False  # whether it must be less
    equals: StatValue | None = None  # the value that the owner must have; None: any


class Post(msgspec.Struct):
    """A caller's contribution of stats, after parsing. Its boards and columns were found in the catalog."""

    owner: str
    parts: Sequence[BoardPost]
    post_hash: str | None  # a keyed hash of the post id; None: the post has no id
    at_us: int | None  # the time of the post; None: the time of its arrival
    fingerprint: str  # a hash of what was posted, to distinguish a retry from a conflict; empty if the post has no id
    scope: PostScope | None = None  # None: the caller did not post to a family
    post_id: str | None = None  # the post id as received, for the journal
    accepted_us: int | None = None  # when a queued post was accepted; None: now
    tells_before: bool = False  # whether the outcomes are `TracedOutcome`s. All posts of a request are alike in this
    act: PostAct | None = None  # None: the post overwrites nothing
    division: int | None = None  # in a league: where a newcomer begins; None: in the first division
    asks_hold: bool = False  # whether the caller wants the post to be held
    is_accepted: bool = False  # whether an operator has accepted the post, which was held
    terms: PostTerms | None = None  # None: the post is applied whatever the stored value is


class PartOutcome(msgspec.Struct, array_like=True):
    """The outcome of a post on one board. `stats` holds the stored values in column order."""

    status: PostStatus
    updated_at_us: int | None = None
    stats: list[StatValue | None] | None = None
    error: PostError | None = None
    leaf_key: int | None = None  # the board's key; needed where outcomes are not in the order of the post's parts


class TracedOutcome(PartOutcome, array_like=True):
    """The outcome of a post that was applied or changed nothing, with the cells of the entry before the post."""

    before: list[str | int | None] | None = None  # None: the post did not ask for them, or is not decided here

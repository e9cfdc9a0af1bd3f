"""The values that rooms pass to each other: boards, columns, posts and their outcomes.

The rule: they know no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import msgspec

from .errors import StorageError
from .periods import Period, PeriodKind, calendar_of

INT64_MAX = 2**63 - 1


class Merge(StrEnum):
    """How a post changes a stored value."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    LAST = "last"


class Best(StrEnum):
    """Which end of a column ranks first."""

    HIGH = "high"
    LOW = "low"


class Ties(StrEnum):
    """Whether equal values share a rank or the one reached first is better."""

    SHARED = "shared"
    EARLIEST = "earliest"


class Method(StrEnum):
    """How a column's curve is made."""

    SKIP = "skip"
    SCAN = "scan"
    AUTO = "auto"


class Table(StrEnum):
    """Where a board's rows live."""

    OWN = "own"  # in a table of their own: few large boards
    SHARED = "shared"  # with those of other small boards


class Kind(StrEnum):
    """What an unsorted column holds."""

    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One named stat of a board, as the client described it."""

    name: str
    sorted: bool
    merge: Merge
    best: Best
    kind: Kind
    scale: int  # digits after the point, 0 to 9
    min_scaled: int  # smallest value times 10**scale
    max_scaled: int  # largest value times 10**scale


@dataclass(frozen=True, slots=True)
class PredictorSpec:
    """How ranks of a board are estimated."""

    samples: int  # knots of a curve, K
    exact_top: int  # ranks that are always counted
    refresh_seconds: int  # the schedule of the refresh job
    method: Method


@dataclass(frozen=True, slots=True)
class Season:
    """When a board that stands alone takes posts, and what becomes of it afterwards."""

    opens_us: int | None  # the first time of a post that counts
    ends_us: int | None  # the first one that counts no longer; None: never
    grace_seconds: int  # after the end, while late posts still count
    keep_seconds: int | None  # after closing, before its rows go to an archive; None: they stay

    @property
    def closes_us(self) -> int | None:
        """From when on nothing counts any more."""
        return None if self.ends_us is None else self.ends_us + self.grace_seconds * 1_000_000


@dataclass(frozen=True, slots=True)
class BoardSpec:
    """All that a client chose about a board."""

    columns: tuple[ColumnSpec, ...]
    ties: Ties
    predictor: PredictorSpec
    table: Table = Table.OWN
    season: Season | None = None


@dataclass(frozen=True)
class Board:
    """A board in the catalog. `key` is small, never reused, and names what belongs to the board."""

    key: int
    id: str
    spec: BoardSpec
    created_at_us: int
    epoch: int  # counts resets: what was fitted in another epoch is void
    table_key: int | None = None  # of the table that its rows share with other boards'; None: a table of its own
    rows_key: int = 0  # tells its rows from theirs; another one after every reset
    family_key: int | None = None  # of the family that it belongs to; None: it stands alone
    closes_us: int | None = None  # from when on it takes no posts; of one that stands alone the store may know better
    closed_us: int | None = None  # when it was closed
    archived_us: int | None = None  # when it gave up its rows

    @property
    def is_guest(self) -> bool:
        """Whether its rows may leave the table that they are in: those of a family go with the table."""
        return self.table_key is not None and self.family_key is None

    @property
    def may_close(self) -> bool:
        """Whether there may be a time when it takes no posts."""
        return self.closes_us is not None or self.spec.season is not None

    @property
    def is_unreached(self) -> bool:
        """Whether it is a family's that no post has reached: the store has no row of it."""
        return self.key == self.family_key

    @cached_property
    def column_index(self) -> dict[str, int]:
        """Column name to its position in the spec; the physical column is `c{index + 1}`."""
        return {column.name: index for index, column in enumerate(self.spec.columns)}

    @cached_property
    def sorted_indexes(self) -> tuple[int, ...]:
        """Positions of the ranked columns."""
        return tuple(index for index, column in enumerate(self.spec.columns) if column.sorted)


@dataclass(frozen=True, slots=True)
class FamilySpec:
    """All that a client chose about a family: what its boards have in common, and which there are."""

    board: BoardSpec
    periods: tuple[PeriodKind, ...]
    time_zone: str  # an IANA name, known
    facets: tuple[tuple[str, ...], ...]  # each sorted; a board for each, in each period
    grace_seconds: int  # after a period's end, while late posts still count
    keep: tuple[tuple[PeriodKind, int], ...]  # closed periods of a kind whose boards keep their rows
    first_grace_seconds: int | None = None  # what it was when the family was made, where it was shortened since

    def closes_us(self, period: Period) -> int | None:
        """Return when the boards of a period close; None of all time."""
        bounds = calendar_of(self.time_zone).bounds_us(period)
        return None if bounds is None else bounds[1] + self.grace_seconds * 1_000_000

    @property
    def longest_grace_us(self) -> int:
        """For how long after its end a period took posts, at most."""
        longest_s = self.grace_seconds if self.first_grace_seconds is None else self.first_grace_seconds
        return longest_s * 1_000_000


@dataclass(frozen=True)
class Family:
    """A family in the catalog. `key` comes from the boards' sequence: no board has it."""

    key: int
    id: str
    spec: FamilySpec
    created_at_us: int
    closed_through_us: int = 0  # periods that close until then are closed, even if the clock steps back

    def is_closed(self, period: Period, now_us: int) -> bool:
        """Return whether a period takes no more posts; never that of all time."""
        closes_us = self.spec.closes_us(period)
        return closes_us is not None and closes_us <= max(now_us, self.closed_through_us)

    @property
    def shares_table(self) -> bool:
        """Whether its boards share a table, which is the family's own."""
        return self.spec.board.table is Table.SHARED

    @cached_property
    def facet_names(self) -> frozenset[str]:
        """Every facet of some list."""
        return frozenset(name for names in self.spec.facets for name in names)

    def unreached(self, board_id: str) -> Board:
        """A board that no post has reached: under the family's own key there are never any rows."""
        return Board(
            key=self.key,
            id=board_id,
            spec=self.spec.board,
            created_at_us=self.created_at_us,
            epoch=1,
            table_key=self.key if self.shares_table else None,
            rows_key=self.key,
            family_key=self.key,
        )

    @cached_property
    def any_board(self) -> Board:
        """What all boards have in common, as a board called like the family."""
        return self.unreached(self.id)


@dataclass(slots=True)
class Entry:
    """One owner's row: `cells` are as stored (padded text, int, text or None), one a column."""

    owner: str
    updated_at_us: int  # strictly growing: the version that conditional writes test
    cells: list[str | int | None]


class Status(StrEnum):
    """What became of a post, best first."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


StatValue = int | str  # a scaled integer, or text for `type: text` columns


class Change(msgspec.Struct, array_like=True, gc=False):
    """One column of a post, already in the column's own units."""

    index: int
    value: StatValue
    overwrite: bool  # `set` instead of merge


@dataclass(slots=True)
class BoardPost:
    """A post's part for one board."""

    board: Board
    changes: Sequence[Change]


@dataclass(slots=True)
class Post:
    """One contribution of stats by a job-processor, parsed and resolved against the catalog."""

    owner: str
    parts: Sequence[BoardPost]
    post_hash: str | None  # of the post id
    at_us: int | None  # None: arrival
    fingerprint: str  # of owner, stats and `at`: tells a retry from a conflict
    family: Family | None = None  # where boards get it as a family's, its id is remembered once for all of them
    post_id: str | None = None  # as it came in, for the journal


@dataclass(slots=True)
class PartOutcome:
    """What became of a post on one board. `stats` are stored values in column order."""

    status: Status
    updated_at_us: int | None = None
    stats: list[StatValue | None] | None = None
    error: StorageError | None = None
    board_key: int | None = None  # of the board, where it need not be the post's part at the same place

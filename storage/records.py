"""The values that rooms pass to each other: boards, columns, posts and their outcomes.

The rule: they know no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from .errors import StorageError

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
class BoardSpec:
    """All that a client chose about a board."""

    columns: tuple[ColumnSpec, ...]
    ties: Ties
    predictor: PredictorSpec


@dataclass(frozen=True)
class Board:
    """A board in the catalog. `key` is small, never reused, and names its table and columns."""

    key: int
    id: str
    spec: BoardSpec
    created_at_us: int
    epoch: int  # counts resets: what was fitted in another epoch is void

    @cached_property
    def column_index(self) -> dict[str, int]:
        """Column name to its position in the spec; the physical column is `c{index + 1}`."""
        return {column.name: index for index, column in enumerate(self.spec.columns)}

    @cached_property
    def sorted_indexes(self) -> tuple[int, ...]:
        """Positions of the ranked columns."""
        return tuple(index for index, column in enumerate(self.spec.columns) if column.sorted)


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


@dataclass(slots=True)
class Change:
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
    post_id: str | None = None  # as it came in, for the journal


@dataclass(slots=True)
class PartOutcome:
    """What became of a post on one board. `stats` are stored values in column order."""

    status: Status
    updated_at_us: int | None = None
    stats: list[StatValue | None] | None = None
    error: StorageError | None = None

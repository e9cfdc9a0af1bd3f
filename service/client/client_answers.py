"""The types of a service's responses, for the command line. They are less strict than `service.contract.responses`.

A type names only the members that a command uses, and decoding ignores all others. Therefore an older command line
keeps working with a newer service. A decimal in a field of type `Any` is an exact `decimal.Decimal`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec


def one_line(text: str) -> str:
    """Return `text` with `?` in place of each unprintable character, because a terminal obeys control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class FieldProblem(msgspec.Struct, frozen=True):
    pointer: str = ""
    detail: str = ""


class Problem(msgspec.Struct, frozen=True):
    """The part of a problem document (RFC 9457) that a person needs."""

    title: str = ""
    detail: str = ""
    code: str = ""
    errors: list[FieldProblem] = []

    def one_line_text(self) -> str:
        """Return the code, the detail and the first pointers of the problem on one line, without control characters."""
        text = f"{self.code or 'error'}: {self.detail or self.title or 'no detail given'}"
        shown = [f"{error.pointer or '/'} {self._added_detail(error.detail)}".strip() for error in self.errors[:3]]
        more = len(self.errors) - len(shown)
        if shown:
            text += f" ({'; '.join(shown)}{f'; and {more} more' if more > 0 else ''})"
        return one_line(text)

    def _added_detail(self, detail: str) -> str:
        """Return the detail of a fault, or an empty text if the problem's own detail already ends with it."""
        return "" if self.detail.endswith(detail) else detail


class Column(msgspec.Struct, frozen=True):
    """A column of a board's spec; `ranked` is what the wire calls `sorted`."""

    name: str
    ranked: bool = msgspec.field(name="sorted", default=False)
    merge: str = ""
    scale: int = 0
    type: str = "decimal"


class CurveState(msgspec.Struct, frozen=True):
    """A curve of a board. `bound` is the largest relative error of an estimated rank, or None if it is unknown."""

    total: int = 0
    bound: float | None = None


class Predictor(msgspec.Struct, frozen=True):
    """The settings of a board for estimated ranks. Ranks up to `exact_top` are counted, not estimated."""

    exact_top: int = 0


class Board(msgspec.Struct, frozen=True):
    columns: list[Column]
    ties: str = "shared"
    entries: int | None = None
    predictor: Predictor = Predictor()
    curves: dict[str, CurveState | None] = {}

    def ranked_columns(self) -> list[str]:
        return [column.name for column in self.columns if column.ranked]


class ListEnd(msgspec.Struct, frozen=True):
    """The member of every list in pages that names the next page."""

    next: str | None = None


class QueueShard(msgspec.Struct, frozen=True):
    shard: int
    posts: int
    age_seconds: Decimal | int
    applied: int
    worker: str | None = None
    partition: int | None = 0  # None: posts to boards of several partitions


class QueueState(msgspec.Struct, frozen=True):
    posts: int
    age_seconds: Decimal | int
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[QueueShard]


class PostResult(msgspec.Struct, frozen=True):
    """The outcome of one post; `error` is set if it was rejected."""

    status: str
    error: Problem | None = None


class PostResults(msgspec.Struct, frozen=True):
    results: list[PostResult]


class RankedEntry(msgspec.Struct, frozen=True):
    owner: str
    rank: int
    value: Any = None
    exact: bool = True
    updated_at: str = ""
    stats: dict[str, Any] = {}


class Page(msgspec.Struct, frozen=True):
    entries: list[RankedEntry]
    total: int | None = None
    next: str | None = None


class NextPlace(msgspec.Struct, frozen=True):
    """The next better place. `points` is None if no value in the column's range is better than that place's value."""

    rank: int
    value: Any = None
    points: Any = None


class Previous(msgspec.Struct, frozen=True):
    """An owner's positions in the previous period. Positions and moves are None if the owner had no value then."""

    board: str
    position: Position | None = None
    value_position: Position | None = None
    moved: int | None = None
    field_moved: int | None = None


class Position(msgspec.Struct, frozen=True):
    """A rank with its bracket. `rank` is None if the owner has no value in the column."""

    column: str
    value: Any = None
    rank: int | None = None
    low: int | None = None
    high: int | None = None
    exact: bool = False
    method: str = ""
    total: int | None = None
    percentile: Any = None
    as_of: str | None = None
    next: NextPlace | None = None
    previous: Previous | None = None


class PastPosition(msgspec.Struct, frozen=True):
    """An owner's final position in a period. `position` is None if the owner had no value then."""

    board: str
    position: Position | None = None


class RefreshDone(msgspec.Struct, frozen=True):
    """The result of a refresh. `seconds` is how long the fit of the new curve took."""

    column: str = ""
    method: str = ""
    total: int = 0
    as_of: str = ""
    seconds: float = 0.0
    certificate: float | None = None


class Knot(msgspec.Struct, frozen=True):
    value: Any
    rank: int
    ties: int = 1


class CurveDocument(msgspec.Struct, frozen=True):
    column: str
    method: str
    total: int
    as_of: str
    knots: list[Knot]
    best: str = "high"


class ValueFor(msgspec.Struct, frozen=True):
    """The worst value that still has the wanted rank or percentile."""

    rank: int | None = None
    percentile: Any = None
    value: Any = None
    low: Any = None
    high: Any = None
    exact: bool = False


class BrokenBracket(msgspec.Struct, frozen=True):
    """A value whose true rank is outside its bracket."""

    value: Any
    true_rank: int
    rank: int
    low: int
    high: int


class AuditDone(msgspec.Struct, frozen=True):
    """The result of an audit. Errors are relative to the true rank; they are None if nothing was compared."""

    column: str
    outcome: str
    owners: int = 0
    certificate: float | None = None
    mean_error: float | None = None
    p99_error: float | None = None
    worst_error: float | None = None
    brackets_broken: int = 0
    certificates_broken: int = 0
    broken: list[BrokenBracket] = []
    as_of: str = ""

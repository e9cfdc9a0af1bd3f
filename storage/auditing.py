"""Curves held against the rows: the entries of random places are counted exactly, as of the curve's own moment.

    a curve and its moment ──> one snapshot ─┬─ random rows, counted one by one from the best
                                             └─ what has changed since that moment, taken back from the counts

The rule: a false alarm is a fault. A count is of the snapshot, a bracket of the curve's moment, so they are compared
only where everything that happened in between is known: the board has not changed, or the change log still has it.
The counts use no knot and no skip: what a walk got wrong would else be confirmed by another one.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from predictor import Curve, RankCurve
from querybuilder import Dialect, Statement, col, length, param, select

from .change_log import Mark, change_log
from .curve_marks import curve_marks
from .entries import Entries, live_epochs
from .errors import UnknownBoard
from .leaderboards import CHANGES, check_copy, count_entries
from .migrate import CHANGE_LOG
from .padding import Padding
from .ranked_cells import RankedCells
from .rankings import Ranking
from .records import Board
from .store import Program

AuditOutcome = Literal["compared", "changed", "empty"]
_PIECE = "m"


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """The bounds of one audit; each is a setting of the same name."""

    audit_owners_max: int
    audit_rows_max: int  # passed over and counted, together
    audit_changes_max: int  # since the curve's moment
    audit_s_max: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A curve, and what it is as of."""

    curve: RankCurve
    mark: Mark | None  # which changes it counts; None: not known
    version: int  # of its fit, as it is stored


@dataclass(frozen=True, slots=True)
class Compared:
    """One entry's rank at the curve's moment, and what the curve says of it."""

    cell: str
    true_rank: int
    rank: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """Relative to the true rank."""
        return abs(self.rank - self.true_rank) / self.true_rank

    @property
    def broken(self) -> bool:
        """Whether the true rank lies outside the bracket: never, or a curve or a count is wrong."""
        return not self.low <= self.true_rank <= self.high


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found. `changed`: too much happened since the curve's moment, nothing was compared."""

    outcome: AuditOutcome
    curve: RankCurve
    compared: list[Compared] = field(default_factory=list)

    @property
    def broken(self) -> list[Compared]:
        """Those whose bracket was wrong."""
        return [each for each in self.compared if each.broken]

    @property
    def beyond_certificate(self) -> list[Compared]:
        """Those whose error is larger than the certificate says that any can be."""
        certificate = self.curve.certificate
        if certificate is None:
            return []
        # A certificate is a quotient of floats; rounding is no fault.
        return [each for each in self.compared if each.error > certificate * (1 + 1e-9)]


def audit(
    dialect: Dialect,
    entries: Entries,
    column_index: int,
    moment: Moment,
    limits: AuditLimits,
    *,
    rng: random.Random,
    monotonic: Callable[[], float],
) -> Program[Audit]:
    """Compare up to `audit_owners_max` random entries with a curve of the column, in one snapshot.

    Raises:
        UnknownBoard: the board is gone.
        BoardChanged: it is another one than this process knows.
    """
    ends_s = monotonic() + limits.audit_s_max
    board = entries.board
    totals = (yield from count_entries(dialect, [board.key]))[board.key]
    if not totals and board.key not in (yield from live_epochs(dialect, [board.key])):
        raise UnknownBoard(f"no leaderboard {board.id!r}")
    check_copy(board, totals)
    since = yield from _since(dialect, board, column_index, moment, totals.get(CHANGES, 0), limits)
    total = totals.get(column_index, 0)
    if since is None:
        return Audit("changed", moment.curve)
    if not total:
        return Audit("empty", moment.curve)
    ranking = entries.rankings[column_index]
    # Every row is passed twice: to land on it, and to count it.
    rows = min(total, limits.audit_rows_max // 2)
    row_numbers = sorted(rng.sample(range(rows), min(rows, limits.audit_owners_max)))
    compared: list[Compared] = []
    counted = Counted(ranking)
    cells = _Landings(ranking)
    for row_number in row_numbers:
        if monotonic() > ends_s:
            break
        cell = yield from cells.at(row_number)
        if cell is None:
            break
        better_count = (yield from counted.better_than(cell)) - since.better_than(ranking.padding.key(cell))
        bracket = moment.curve.locate(ranking.padding.key(cell))
        compared.append(Compared(cell, 1 + better_count, bracket.rank, bracket.low, bracket.high))
    return Audit("compared", moment.curve, compared)


class _Landings:
    """Cells by row number, asked for in ascending order: each skips what lies between it and the one before."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._cell: str | None = None
        self._past = 0  # rows up to the end of that cell's run

    def at(self, row_number: int) -> Program[str | None]:
        """The cell of the row (0-based); None past the end."""
        if self._cell is None or row_number >= self._past:
            found = yield from self._ranking.sample(row_number - self._past, self._cell)
            if found is None:
                return None
            self._cell, self._past = found.cell, row_number - found.ties_before + found.ties
        return self._cell


class Counted:
    """How many entries are strictly better than a cell, asked for from the best on: counts what is new each time."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking, self._high = ranking, ranking.padding.high
        self._cell: str | None = None
        self._better_count = 0  # than that cell

    def better_than(self, cell: str) -> Program[int]:
        """The count, of a cell no better than the one before."""
        if cell != self._cell:
            before = self._cell
            # From the cell before, its ties included, to this one, excluded. A longer text stands before any larger.
            if self._high:
                least, past = cell + "0", ":" if before is None else before + "0"
            else:
                least, past = before or "", cell
            self._better_count += yield from self._ranking.count_range(least=least, past=past)
            self._cell = cell
        return self._better_count


class _Since:
    """What changes have added to the count of entries better than a key."""

    def __init__(self, came: Iterable[int], went: Iterable[int]) -> None:
        self._came, self._went = sorted(came), sorted(went)

    def better_than(self, key: int) -> int:
        """Those that came, less those that went."""
        return bisect_left(self._came, key) - bisect_left(self._went, key)


def _since(
    dialect: Dialect, board: Board, column_index: int, moment: Moment, changes: int, limits: AuditLimits
) -> Program[_Since | None]:
    """What has happened since the curve's moment; None where it is not known, or is too much."""
    if isinstance(moment.curve, Curve):
        stored = (yield from curve_marks(dialect, [board.key])).get((board.key, column_index))
        if stored is not None and (stored.version, stored.changes) == (moment.version, changes):
            return _Since((), ())
    if moment.mark is None:
        return None
    log = change_log(dialect)
    pruned_before = yield from log.pruned()
    if not pruned_before <= moment.mark.position <= (yield from log.horizon()):
        return None  # no longer there, or numbered by another database: this one was restored
    rows = yield _changes_after(dialect).bind(
        key=board.key, limit=limits.audit_changes_max + 1, **log.mark_parameters(moment.mark)
    )
    if len(rows) > limits.audit_changes_max:
        return None
    pieces = [(piece, len(piece) >> 1) for (piece,) in rows]
    came, went = [piece[half:] for piece, half in pieces], [piece[:half] for piece, half in pieces]
    return _Since(_keys(board, column_index, came), _keys(board, column_index, went))


def _keys(board: Board, column_index: int, texts: Iterable[str]) -> list[int]:
    cells, padding = RankedCells(board), Padding.of(board.spec, board.spec.columns[column_index])
    found = (cells.cell(text, column_index) for text in texts)
    return [padding.key(cell) for cell in found if cell is not None]


@lru_cache
def _changes_after(dialect: Dialect) -> Statement:
    return (
        select(col("value", _PIECE))
        .from_(CHANGE_LOG)
        .each_piece(col("cells"), _PIECE)
        .where(col("board_key").eq(param("key")), change_log(dialect).after(), length(col("value", _PIECE)).gt(0))
        .limit(param("limit"))
        .packed()
        .compile(dialect)
    )

"""Exact ranks anywhere: what a curve counts up to a rung, what the log says has changed since, and one count in a gap.

    better than a cell = rung's count (as of the curve's mark)
                       + changes past the mark: (next at the rung or better) - (previous at the rung or better)
                       + entries strictly between the rung and the cell

or, where the next knot is nearer, from below: what is better than that knot, less what stands before it from the cell
on.

The rule: all of it is read in one statement with the board's totals, and where the log can't vouch for the rung's count
there is no answer: a mark that is older than the log, or newer (a store that was restored, a replica), or so far back
that counting in full costs no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

from predictor import Bracket, KeyBracket, Rung
from querybuilder import (
    INTEGER,
    Built,
    Dialect,
    Statement,
    Term,
    coalesce,
    col,
    count,
    count_if,
    lit,
    minus,
    null,
    param,
    select,
    union_all,
)

from .change_log import Mark, change_log
from .layouts import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from .migrate import CHANGE_LOG, TOTALS
from .padding import Padding
from .ranked_cells import Place, RankedCells
from .records import Best, Board
from .store import Rows
from .total_shares import summed

_COUNT_ROW = -10  # no column index
_PIECE = "m"
_BETTER_THAN_ANY = {True: ":", False: ""}  # after and before every digit, by whether high is best


class Rungs(Protocol):
    """A curve, as far as counting from it goes."""

    def rung_for(self, key: int) -> Rung:
        """See `KnotRanks.rung_for`."""
        ...

    def rung_below(self, key: int) -> Rung:
        """See `KnotRanks.rung_below`."""
        ...

    def locate(self, key: int) -> Bracket:
        """See `KnotRanks.locate`."""
        ...

    def key_at(self, rank: int) -> KeyBracket | None:
        """See `KnotRanks.key_at`."""
        ...


class Footing(NamedTuple):
    """What exact ranks of one column start from: a curve and what its counts are as of, taken together."""

    curve: Rungs
    mark: Mark
    changes_max: int  # past the mark: more are not summed up


class GapCount(NamedTuple):
    """How many entries are better than a cell, in one snapshot with the totals of the board."""

    better_count: int
    ties_before: int  # entries with the cell that stand before the owner asked for
    totals: dict[int, int]
    rung: bool  # whether it starts from a rung; otherwise from the top


@dataclass(frozen=True, slots=True)
class GapQuestion:
    """One count, bound; `answer` reads its rows."""

    query: Built
    mark: Mark
    rung: Rung
    changes_max: int
    from_below: bool

    def answer(self, rows: Rows) -> GapCount | None:
        """The count, None where the log can't vouch for it."""
        stored: list[tuple[int, int]] = []
        found: GapCount | None = None
        for kind, number, changes, between, ties, horizon, seen, pruned_before in rows:
            if kind != _COUNT_ROW:
                stored.append((kind, number))
            elif (
                changes <= self.changes_max
                and pruned_before <= self.mark.position <= horizon
                and seen == len(self.mark.seen)
            ):
                further = -between if self.from_below else between
                found = GapCount(self.rung.counted + number + further, ties, {}, self.rung.key is not None)
        return None if found is None else found._replace(totals=summed(stored))


class GapCounts:
    """The statement of one ranked column."""

    def __init__(self, dialect: Dialect, board: Board, index: int) -> None:
        self._dialect, self._board, self._index = dialect, board, index
        self._padding = Padding.of(board.spec, board.spec.columns[index])
        self._high = board.spec.columns[index].best is Best.HIGH

    def question(self, footing: Footing, cell: str, *, owner: str = "") -> GapQuestion:
        """How many are better than a cell, from the knot that is likely nearer."""
        key, curve = self._padding.key(cell), footing.curve
        rung, below = curve.rung_for(key), curve.rung_below(key)
        from_below = below.key is not None and 2 * (curve.locate(key).rank - 1 - rung.counted) > rung.gap_rows
        if from_below:
            return self._bound(below, footing, cell, owner, from_below=True)
        return self._bound(rung, footing, cell, owner, from_below=False)

    def question_of_rung(self, rung: Rung, footing: Footing) -> GapQuestion:
        """How many are better than a rung or tied with it."""
        return self._bound(rung, footing, None, "", from_below=False)

    def _bound(self, rung: Rung, footing: Footing, cell: str | None, owner: str, *, from_below: bool) -> GapQuestion:
        start = _BETTER_THAN_ANY[self._high] if rung.key is None else self._padding.cell_of_key(rung.key)
        query = (self._from_below if from_below else self._from_above).bind(
            rung=start,
            cell=start if cell is None else cell,
            owner=owner,
            changes=footing.changes_max + 1,
            totals_key=self._board.key,
            **scope_of(self._board),
            **change_log(self._dialect).mark_parameters(footing.mark),
        )
        return GapQuestion(query, footing.mark, rung, footing.changes_max, from_below)

    @cached_property
    def _from_above(self) -> Statement:
        return self._statement(from_below=False)

    @cached_property
    def _from_below(self) -> Statement:
        return self._statement(from_below=True)

    def _statement(self, *, from_below: bool) -> Statement:
        make = _compiled if self._board.table_key is None else _shared_statement
        place = RankedCells(self._board).place(self._index)
        return make(self._dialect, layout_of(self._board), self._index, place, from_below=from_below)


def _compiled(dialect: Dialect, layout: Layout, index: int, place: Place, *, from_below: bool) -> Statement:
    log, high = change_log(dialect), place.high
    own, rung, cell = col(layout.columns[index].name), param("rung"), param("cell")
    entries = select(count()).from_(layout.table).where(*layout.scope())
    if from_below:
        between = (own.le(cell), own.gt(rung)) if high else (own.ge(cell), own.lt(rung))
        entered, left = (place.better(name, rung) for name in ("next", "previous"))
    else:
        between = (own.lt(rung), own.gt(cell)) if high else (own.gt(rung), own.lt(cell))
        entered, left = (place.at_least(name, rung) for name in ("next", "previous"))
    of_board = col("board_key").eq(param("totals_key", INTEGER))
    # The order keeps PostgreSQL from reading the log from its start, in the hope to meet so many rows early.
    piece = col("value", _PIECE)
    past = select(*place.moved(piece)).from_(CHANGE_LOG).each_piece(col("cells"), _PIECE)
    past = past.where(of_board, log.after(), place.wide(piece))
    counted = select(
        lit(_COUNT_ROW),
        minus(count_if(entered), count_if(left)),
        count(),
        entries.where(*between).scalar(),
        entries.where(own.eq(cell), col("owner").lt(param("owner"))).scalar(),
        log.horizon_now.scalar(),
        _seen(dialect),
        coalesce(log.pruned_before.scalar(), 0),
    ).from_(past.order_by(log.position).limit(param("changes")))
    totals = select(col("column_index"), col("entries"), *[null(INTEGER)] * 6).from_(TOTALS)
    return union_all(counted, totals.where(of_board)).packed().compile(dialect)


_shared_statement = lru_cache(maxsize=SHARED_STATEMENTS_MAX)(_compiled)


def _seen(dialect: Dialect) -> Term:
    """How many of the mark's later transactions are in this snapshot."""
    log = change_log(dialect)
    if not dialect.transaction:
        return lit(0)
    seen = select(log.position).from_(CHANGE_LOG).where(log.position.in_(param("mark_seen")))
    return select(count()).from_(seen.group_by(log.position)).scalar()

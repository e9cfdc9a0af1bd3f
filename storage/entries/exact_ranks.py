"""Exact ranks: the sum of a knot's count from the curve, the changes logged since that count, and a count in one gap.

    entries better than a cell
        = the knot's count, which includes the changes that the curve's mark covers
        + changes after the mark: (new cell at the knot or better) - (old cell at the knot or better)
        + entries strictly between the knot and the cell

If the knot below the cell is nearer, the count starts at that knot. The result is then the number of entries better
than the knot, minus the number of those among them that are not better than the cell.

The most important rule: one statement reads all of this together with the board's totals. If the log cannot confirm the
knot's count, there is no result. The log cannot confirm it in three cases:

- Changes after the mark were already removed from the log.
- The mark is newer than this snapshot of the log, after a restore or on a replica.
- So many changes follow the mark that a full count costs no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

from predictor import AnchorKnot, Bracket, KeyBracket
from querybuilder import (
    INTEGER,
    Bound,
    Prepared,
    coalesce,
    col,
    count,
    count_if,
    if_dialect,
    lit,
    minus,
    null,
    param,
    select,
    union_all,
)
from storage.boards.row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.boards.total_shares import add_up_shares
from storage.log.cells import CellSpan, Padding, RankedCells
from storage.log.change_log import AFTER_MARK, HORIZON, POSITION, PRUNED_BEFORE, LogMark, mark_parameters
from storage.records import Best, Board
from storage.schema.tables import CHANGE_LOG, TOTALS
from storage.store import Program, Rows

_COUNT_ROW = -10  # marks the row with the count; no column has this index
_PIECE = "m"
_BETTER_THAN_ANY = {True: ":", False: ""}  # by whether high values win; ":" sorts after all digits, and "" before them


class AnchorCurve(Protocol):
    """The methods of `KnotRanks` that exact counts need."""

    def find_anchor_above(self, key: int) -> AnchorKnot: ...

    def find_anchor_below(self, key: int) -> AnchorKnot: ...

    def locate(self, key: int) -> Bracket: ...

    def key_at(self, rank: int) -> KeyBracket | None: ...


class CountStart(NamedTuple):
    """The start of a count in one column."""

    curve: AnchorCurve
    mark: LogMark  # covers the changes that the counts of the curve include
    changes_max: int  # most changes after the mark that are summed up; if there are more, there is no result


class GapCount(NamedTuple):
    """The number of entries better than a cell, and the totals of the board from the same snapshot."""

    better_count: int
    ties_before: int  # entries with the cell that stand before the given owner
    totals: dict[int, int]
    from_anchor: bool  # True: the count started at a knot; False: at the top


@dataclass(frozen=True, slots=True)
class _GapCountQuery:
    query: Bound
    mark: LogMark
    anchor: AnchorKnot
    changes_max: int
    from_below: bool

    def parse_count(self, rows: Rows) -> GapCount | None:
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
                found = GapCount(self.anchor.counted + number + further, ties, {}, self.anchor.key is not None)
        return None if found is None else found._replace(totals=add_up_shares(stored))


class GapCounts:
    """Programs that count in one ranked column of a board, each with one statement."""

    def __init__(self, board: Board, index: int) -> None:
        self._board, self._index = board, index
        self._padding = Padding(board.spec, board.spec.columns[index])
        self._high = board.spec.columns[index].best is Best.HIGH

    def count_better(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        """Count the entries better than a cell, and the entries with this cell that stand before `owner`.

        The count starts at the knot that is probably nearer. Return None if the log cannot confirm the knot's count.
        """
        asked = self._query(start, cell, owner)
        return asked.parse_count((yield asked.query))

    def count_up_to_anchor(self, anchor: AnchorKnot, start: CountStart) -> Program[GapCount | None]:
        """Count the entries that are better than a knot or tied with it, or return None as `count_better` does."""
        asked = self._bound(anchor, start, None, "", from_below=False)
        return asked.parse_count((yield asked.query))

    def _query(self, start: CountStart, cell: str, owner: str) -> _GapCountQuery:
        key, curve = self._padding.key_of_cell(cell), start.curve
        anchor, below = curve.find_anchor_above(key), curve.find_anchor_below(key)
        from_below = below.key is not None and 2 * (curve.locate(key).rank - 1 - anchor.counted) > anchor.gap_rows
        if from_below:
            return self._bound(below, start, cell, owner, from_below=True)
        return self._bound(anchor, start, cell, owner, from_below=False)

    def _bound(
        self, anchor: AnchorKnot, start: CountStart, cell: str | None, owner: str, *, from_below: bool
    ) -> _GapCountQuery:
        edge = _BETTER_THAN_ANY[self._high] if anchor.key is None else self._padding.cell_of_key(anchor.key)
        query = (self._from_below if from_below else self._from_above).bind(
            anchor=edge,
            cell=edge if cell is None else cell,
            owner=owner,
            changes=start.changes_max + 1,
            totals_key=self._board.key,
            **scope_of(self._board),
            **mark_parameters(start.mark),
        )
        return _GapCountQuery(query, start.mark, anchor, start.changes_max, from_below)

    @cached_property
    def _from_above(self) -> Prepared:
        return self._statement(from_below=False)

    @cached_property
    def _from_below(self) -> Prepared:
        return self._statement(from_below=True)

    def _statement(self, *, from_below: bool) -> Prepared:
        make = _prepare_count if self._board.table_key is None else _shared_statement
        place = RankedCells(self._board).find_span(self._index)
        return make(layout_of(self._board), self._index, place, from_below=from_below)


def _prepare_count(layout: Layout, index: int, place: CellSpan, *, from_below: bool) -> Prepared:
    high = place.high
    own, anchor, cell = col(layout.columns[index].name), param("anchor"), param("cell")
    entries = select(count()).from_(layout.table).where(*layout.scope())
    if from_below:
        between = (own.le(cell), own.gt(anchor)) if high else (own.ge(cell), own.lt(anchor))
        entered, left = (place.better(name, anchor) for name in ("next", "previous"))
    else:
        between = (own.lt(anchor), own.gt(cell)) if high else (own.gt(anchor), own.lt(cell))
        entered, left = (place.at_least(name, anchor) for name in ("next", "previous"))
    of_board = col("board_key").eq(param("totals_key", INTEGER))
    # Without ORDER BY, PostgreSQL may scan the log from its start, because it expects to find enough rows early.
    piece = col("value", _PIECE)
    past = select(*place.cells_before_and_after(piece)).from_(CHANGE_LOG).each_piece(col("cells"), _PIECE)
    past = past.where(of_board, AFTER_MARK, place.holds_column(piece))
    # The number of positions of `mark.seen` that the log holds in this snapshot.
    listed = select(POSITION).from_(CHANGE_LOG).where(POSITION.in_(param("mark_seen"))).group_by(POSITION)
    seen = select(count()).from_(listed)
    counted = select(
        lit(_COUNT_ROW),
        minus(count_if(entered), count_if(left)),
        count(),
        entries.where(*between).scalar(),
        entries.where(own.eq(cell), col("owner").lt(param("owner"))).scalar(),
        HORIZON,
        if_dialect("transaction", seen.scalar(), lit(0)),
        coalesce(PRUNED_BEFORE.scalar(), 0),
    ).from_(past.order_by(POSITION).limit(param("changes")))
    totals = select(col("column_index"), col("entries"), *[null(INTEGER)] * 6).from_(TOTALS)
    return union_all(counted, totals.where(of_board)).packed().prepared()


_shared_statement = lru_cache(maxsize=SHARED_STATEMENTS_MAX)(_prepare_count)

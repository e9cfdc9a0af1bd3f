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

from functools import lru_cache
from typing import NamedTuple

from predictor import AnchorKnot, KnotRanks
from querybuilder import (
    INTEGER,
    Prepared,
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
from storage.boards.row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.log.cells import CellSpan, Padding, RankedCells
from storage.log.change_log import AFTER_MARK, NEXT_POSITION, POSITION, PRUNED_BEFORE
from storage.records import Board
from storage.schema.tables import CHANGE_LOG, TOTALS
from storage.store import Program

_COUNT_ROW = -10  # marks the row with the count; no column has this index
_PIECE = "m"
BETTER_THAN_ANY = {True: ":", False: ""}  # by whether high values win; ":" sorts after all digits, and "" before them


class CountStart(NamedTuple):
    """The start of a count in one column."""

    curve: KnotRanks
    mark: int  # covers the changes that the counts of the curve include
    changes_max: int  # most changes after the mark that are summed up; if there are more, there is no result


class GapCount(NamedTuple):
    """The number of entries better than a cell, and the totals of the board from the same snapshot."""

    better_count: int
    ties_before: int  # entries with the cell that stand before the given owner
    totals: dict[int, int]
    from_anchor: bool  # True: the count started at a knot; False: at the top


class GapCounts:
    """Programs that count in one ranked column of a board, each with one statement."""

    def __init__(self, board: Board, index: int, padding: Padding) -> None:
        self._padding = padding
        self._key_and_scope = {"totals_key": board.key, **scope_of(board)}
        layout, place = layout_of(board), RankedCells(board.spec).find_span(index)
        self._from_above = _prepare_count(layout, index, place, from_below=False)
        self._from_below = _prepare_count(layout, index, place, from_below=True)

    def count_better(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        """Count the entries better than a cell, and the entries with this cell that stand before `owner`.

        The count starts at the knot that is probably nearer. Return None if the log cannot confirm the knot's count.
        """
        key, curve = self._padding.key_of_cell(cell), start.curve
        anchor, below = curve.find_anchor_above(key), curve.find_anchor_below(key)
        if below.key is not None and 2 * (curve.locate(key).rank - 1 - anchor.counted) > anchor.gap_rows:
            return self._count(below, start, cell, owner, from_below=True)
        return self._count(anchor, start, cell, owner)

    def count_up_to_anchor(self, anchor: AnchorKnot, start: CountStart) -> Program[GapCount | None]:
        """Count the entries that are better than a knot or tied with it, or return None as `count_better` does."""
        return self._count(anchor, start, None, "")

    def _count(
        self, anchor: AnchorKnot, start: CountStart, cell: str | None, owner: str, *, from_below: bool = False
    ) -> Program[GapCount | None]:
        padding, mark = self._padding, start.mark
        edge = BETTER_THAN_ANY[padding.high] if anchor.key is None else padding.cell_of_key(anchor.key)
        rows = yield (self._from_below if from_below else self._from_above).bind(
            anchor=edge,
            cell=edge if cell is None else cell,
            owner=owner,
            changes=start.changes_max + 1,
            **self._key_and_scope,
            mark=mark,
        )
        totals: dict[int, int] = {}
        found: GapCount | None = None
        for kind, number, changes, between, ties, following, pruned_before in rows:
            if kind != _COUNT_ROW:
                totals[kind] = totals.get(kind, 0) + number
            elif changes <= start.changes_max and pruned_before <= mark <= following:
                further = -between if from_below else between
                found = GapCount(anchor.counted + number + further, ties, totals, anchor.key is not None)
        return found


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
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
    counted = select(
        lit(_COUNT_ROW),
        minus(count_if(entered), count_if(left)),
        count(),
        entries.where(*between).scalar(),
        entries.where(own.eq(cell), col("owner").lt(param("owner"))).scalar(),
        NEXT_POSITION,
        PRUNED_BEFORE.scalar(),
    ).from_(past.order_by(POSITION).limit(param("changes")))
    totals = select(col("column_index"), col("entries"), *[null(INTEGER)] * 5).from_(TOTALS)
    return union_all(counted, totals.where(of_board)).packed().prepared()

"""Sampling: makes a curve from a ranked column by reading one row, skipping many, reading the next, in one snapshot.

The predictor's `walk` says which row to read next; `sample_curve` reads it. PostgreSQL takes several steps of the walk
in one statement, a `Stride`: each step lands on a row and counts the ties there.

If the dialect has cursors, a step moves a database cursor forward, and the database only counts the skipped rows. A
cursor is not used for two kinds of columns:

- Columns of a table that boards share. The table may be distributed, so rows may be on another server than the cursor.
- Columns with more entries than a cursor can number.

Without a cursor, a step is a query with an offset, and the database tests every skipped row.
"""

from __future__ import annotations

from functools import lru_cache

from predictor import RATIO_UNIT, Curve, Knot, Landing, Stride, WorstEntry, walk
from querybuilder import (
    CURSOR_ROWS_MAX,
    INTEGER,
    TEXT,
    Dialect,
    Prepared,
    Query,
    asc,
    close_cursor,
    col,
    collated,
    count,
    count_if,
    desc,
    lit,
    minus,
    open_cursor,
    param,
    plus,
    recursive,
    row_at,
    select,
    smaller_of,
    times,
    whole_part,
)
from storage.boards.boards import find_totals
from storage.boards.row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.entries.entries import Entries
from storage.entries.rankings import Sample
from storage.records import Best, Board
from storage.store import Program

KNOTS_MIN = 2  # a curve needs knots at the best and the worst value
# The most samples that one statement on PostgreSQL reads. After each statement, the walk corrects its spacing for ties.
STRIDE_MAX = 64


def sample_curve(
    dialect: Dialect, entries: Entries, column_index: int, *, gap_rows_max: int, now_us: int
) -> Program[Curve]:
    """Return a curve of the column in this snapshot, with about as many knots as the board's setting `samples`.

    The curve has further knots where gaps would otherwise hold more than `gap_rows_max` entries.
    """
    totals = yield from find_totals([entries.board.key])
    total = totals[entries.board.key].get(column_index, 0)
    if total == 0:
        return Curve((), total=0, as_of_us=now_us)
    knots = yield from _walk(dialect, entries, column_index, total, gap_rows_max)
    return Curve(knots, total=total, as_of_us=now_us)


def _walk(dialect: Dialect, entries: Entries, column_index: int, total: int, gap_rows_max: int) -> Program[list[Knot]]:
    ranking = entries.rankings[column_index]
    padding = ranking.padding
    stride_max = STRIDE_MAX if dialect.lateral else 1
    strides = Strides(dialect, entries.board, column_index, total=total)
    samples = max(KNOTS_MIN, entries.board.spec.predictor.samples)
    plan = walk(total, knots_max=samples, gap_rows_max=gap_rows_max, stride_max=stride_max)

    def landing(found: Sample | None) -> Landing | None:
        return None if found is None else Landing(padding.key_of_cell(found.cell), found.ties_before, found.ties)

    answer: Landing | list[Landing] | None = None
    try:
        question = next(plan)
        while True:
            if isinstance(question, WorstEntry):
                answer = landing((yield from ranking.sample_worst_row()))
            elif isinstance(question, Stride):
                found = yield from strides.read_stride(question, padding.cell_of_key(question.after_key))
                answer = [Landing(padding.key_of_cell(each.cell), each.ties_before, each.ties) for each in found]
            else:
                below = None if question.after_key is None else padding.cell_of_key(question.after_key)
                answer = landing((yield from ranking.sample_row(question.rows, below)))
            question = plan.send(answer)
    except StopIteration as stop:
        yield from strides.close()
        return stop.value  # type: ignore[no-any-return]


_CURSOR = "walk"


class Strides:
    """Reads the strides of one walk over a column's `total` entries. All strides must run in one snapshot."""

    def __init__(self, dialect: Dialect, board: Board, index: int, *, total: int) -> None:
        self._layout, self._index = layout_of(board), index
        self._scope = scope_of(board)
        self._by_cursor = dialect.cursors and not self._layout.shared and total <= CURSOR_ROWS_MAX
        self._opened = False

    def read_stride(self, stride: Stride, below: str) -> Program[list[Sample]]:
        """Return the samples of a stride, all of them worse than the cell `below`.

        Raises:
            InexpressibleError: the dialect cannot express the statement.
        """
        if self._by_cursor and not self._opened:
            yield _ordered(self._layout, self._index).bind()
            self._opened = True
        rows = yield _statement(self._layout, self._index, cursor=self._by_cursor).bind(
            cell=below,
            next_rank=stride.next_rank,
            ratio_ppm=stride.ratio_ppm,
            steps=stride.steps,
            total=stride.total,
            rows_max=stride.rows_max,
            **self._scope,
        )
        return [Sample(cell, ties_before, ties) for cell, ties_before, ties in rows]

    def close(self) -> Program[None]:
        """Close the cursor, so that another walk in the same transaction can begin."""
        if self._opened:
            yield close_cursor(_CURSOR).bind()
            self._opened = False


def _ordered(layout: Layout, index: int) -> Query:
    column = layout.columns[index]
    cell, owner = col(column.name), col("owner")
    order = (desc if column.best is Best.HIGH else asc)(cell), asc(owner)
    return open_cursor(_CURSOR, select(cell, owner).from_(layout.table).where(cell.not_null()).order_by(*order))


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _statement(layout: Layout, index: int, *, cursor: bool) -> Prepared:
    column, scope = layout.columns[index], layout.scope("e")
    before, found, ties = "w", "f", "t"
    high = column.best is Best.HIGH
    cell, owner, next_rank = col(column.name, "e"), col("owner", "e"), col("next_rank", before)
    spaced = whole_part(times(next_rank, param("ratio_ppm", INTEGER)), RATIO_UNIT)
    skipped = smaller_of(spaced, param("rows_max", INTEGER))
    landed = plus(next_rank, skipped)
    below = cell.lt(col("cell", before)) if high else cell.gt(col("cell", before))
    sought = select(cell.as_("cell"), owner.as_("owner")).from_(layout.table, "e").where(*scope, below)
    sought = sought.order_by((desc if high else asc)(cell), asc(owner)).limit(1).offset(skipped)
    counts = select(count_if(owner.lt(col("owner", found))).as_("before"), count().as_("ties"))
    step = (
        select(
            plus(col("step", before), 1),
            collated(col("cell", found)),
            col("before", ties),
            col("ties", ties),
            plus(landed, minus(col("ties", ties), col("before", ties))),
        )
        .from_("w")
        .join_lateral(row_at(_CURSOR, landed, "cell", "owner") if cursor else sought, found)
        .join_lateral(counts.from_(layout.table, "e").where(*scope, cell.eq(col("cell", found))), ties)
        .where(col("step", before).lt(param("steps", INTEGER)), landed.lt(param("total", INTEGER)))
    )
    seed = select(lit(0), collated(param("cell", TEXT)), lit(0), lit(0), param("next_rank", INTEGER))
    final = select(col("cell"), col("before"), col("ties")).from_("w").where(col("step").gt(0))
    names = ("step", "cell", "before", "ties", "next_rank")
    walk = recursive("w", *names, seed=seed, step=step, final=final.order_by(asc(col("step"))))
    return walk.prepared()

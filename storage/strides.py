"""Several steps of a walk in one statement, for servers that walk by themselves: each lands, and counts the ties there.

The rule: a step lands where a cursor that goes on comes to, which costs nothing but the rows skipped. Where rows may be
on another server than the cursor, in a table that boards share and so may be distributed, and past the ranks that a
cursor knows, it seeks below the cell before, which tests every row that it skips.
"""

from __future__ import annotations

from functools import lru_cache

from predictor import RATIO_UNIT, Stride
from querybuilder import (
    CURSOR_ROWS_MAX,
    INTEGER,
    TEXT,
    Dialect,
    Query,
    Statement,
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

from .layouts import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from .rankings import Sample
from .records import Best, Board
from .store import Program

_CURSOR = "walk"


class Strides:
    """The strides of one walk over a column's `total` entries. They need one snapshot."""

    def __init__(self, dialect: Dialect, board: Board, index: int, *, total: int) -> None:
        self._dialect, self._layout, self._index = dialect, layout_of(board), index
        self._scope = scope_of(board)
        self._by_cursor = dialect.cursors and not self._layout.shared and total <= CURSOR_ROWS_MAX
        self._opened = False

    def read(self, stride: Stride, below: str) -> Program[list[Sample]]:
        """The answer to a stride that begins below a cell.

        Raises:
            Inexpressible: in this dialect it can't be said.
        """
        if self._by_cursor and not self._opened:
            yield _ordered(self._layout, self._index).build(self._dialect)
            self._opened = True
        rows = yield _statement(self._dialect, self._layout, self._index, cursor=self._by_cursor).bind(
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
        """Let another walk of the transaction begin. One that has failed ends with the transaction."""
        if self._opened:
            yield close_cursor(_CURSOR).build(self._dialect)
            self._opened = False


def _ordered(layout: Layout, index: int) -> Query:
    """The cursor: the column, best first."""
    column = layout.columns[index]
    cell, owner = col(column.name), col("owner")
    order = (desc if column.best is Best.HIGH else asc)(cell), asc(owner)
    return open_cursor(_CURSOR, select(cell, owner).from_(layout.table).where(cell.not_null()).order_by(*order))


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _statement(dialect: Dialect, layout: Layout, index: int, *, cursor: bool) -> Statement:
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
    return walk.compile(dialect)

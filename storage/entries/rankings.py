"""The ranking statements of one ranked column. `better` means nearer to rank 1, whether high or low values win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from querybuilder import Select, asc, col, count, count_if, desc, lit, param, select, union_all
from storage.boards.row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from storage.log.cells import Padding
from storage.records import Best, Board, Entry
from storage.store import Program, Rows

from .exact_ranks import CountStart, GapCount, GapCounts
from .neighbours import NeighbourReads, Neighbours

ANCHORS_MAX = 8  # most knots that a search for one row tries; each is better than the previous one


@dataclass(frozen=True, slots=True)
class Sample:
    cell: str
    ties_before: int  # rows with this cell that stand before the row
    ties: int  # all rows with this cell, the row itself included


def decode_entry(row: Sequence[Any]) -> Entry:
    """Make an entry from a row with the columns `owner, updated_at, cells…`."""
    return Entry(owner=row[0], updated_at_us=row[1], cells=list(row[2:]))


class _RankingStatements:
    def __init__(self, layout: Layout, index: int) -> None:
        column = layout.columns[index]
        self._layout = layout
        self._table, self._name, self._high = layout.table, column.name, column.best is Best.HIGH
        high = self._high
        self._cell = col(self._name)
        self._owner = col("owner")
        self._row = layout.row_columns()
        self._best_first = (desc if high else asc)(self._cell), asc(self._owner)
        self._worst_first = (asc if high else desc)(self._cell), desc(self._owner)
        cell, owner, limit = param("cell"), param("owner"), param("limit")
        ranked, tied = self._cell.not_null(), self._cell.eq(cell)
        better = self._cell.gt if high else self._cell.lt
        worse = self._cell.lt if high else self._cell.gt
        scope = layout.scope()
        counted = select(count()).from_(self._table).where(*scope)
        landing = select(self._cell, self._owner).from_(self._table).where(*scope)

        self.count_better = counted.where(better(cell)).prepared()
        self.count_better_up_to = (
            select(count())
            .from_(select(lit(1).as_("one")).from_(self._table).where(*scope, better(cell)).limit(limit))
            .prepared()
        )
        self.count_range = counted.where(self._cell.ge(param("least")), self._cell.lt(param("past"))).prepared()
        self.count_tied = (
            select(count(), count_if(self._owner.lt(owner))).from_(self._table).where(*scope, tied).prepared()
        )
        at = landing.order_by(*self._best_first).limit(1).offset(param("offset"))
        self.landing_from_top = at.where(ranked).prepared()
        self.landing_below = at.where(worse(cell)).prepared()
        worst = landing.where(ranked).order_by(*self._worst_first).limit(1)
        self.worst = worst.prepared()
        self.sample_from_top = self._with_ties(at.where(ranked)).prepared()
        self.sample_below = self._with_ties(at.where(worse(cell))).prepared()
        self.sample_worst = self._with_ties(worst).prepared()
        tallied = select(self._cell, count()).from_(self._table).where(*scope).group_by(self._cell)
        tallied = tallied.order_by(self._best_first[0]).limit(limit).packed()
        self.tallied_from_top = tallied.where(ranked).prepared()
        self.tallied_below = tallied.where(worse(cell)).prepared()
        rows_of = select(*self._row).from_(self._table).where(*scope)
        self.first_rows = rows_of.where(ranked).order_by(*self._best_first).limit(limit).packed().prepared()
        # The rows after a place are read in two parts: the later rows with the place's cell, and the rows with a worse
        # cell. With a comparison of row values, the database would test every row again.
        after = union_all(rows_of.where(tied, self._owner.gt(owner)), rows_of.where(worse(cell)))
        before = union_all(rows_of.where(tied, self._owner.lt(owner)), rows_of.where(better(cell)))
        self.rows_after = after.order_by(*self._best_first).limit(limit).packed().prepared()
        self.next_better = landing.where(better(cell)).order_by(*self._worst_first).limit(1).prepared()
        self.rows_before = before.order_by(*self._worst_first).limit(limit).packed().prepared()

    def _with_ties(self, one_row: Select) -> Select:
        # Count the ties before the found row and the other ties separately. A count of all ties would read the ties
        # before the found row twice.
        found = "s"
        tied = select(count()).from_(self._table, "t").where(*self._layout.scope("t"))
        tied = tied.where(col(self._name, "t").eq(col(self._name, found)))
        owner, found_owner = col("owner", "t"), col("owner", found)
        return select(
            col(self._name, found),
            tied.where(owner.lt(found_owner)).scalar(),
            tied.where(owner.ge(found_owner)).scalar(),
        ).from_(one_row, found)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _shared_statements(layout: Layout, index: int) -> _RankingStatements:
    return _RankingStatements(layout, index)


class Ranking:
    """Programs that read one ranked column of one board."""

    def __init__(self, board: Board, index: int) -> None:
        self.index = index
        self.padding = Padding(board.spec, board.spec.columns[index])
        self.timed = self.padding.timed
        self.neighbours = NeighbourReads(board, index)
        self.gaps = GapCounts(board, index)
        make = _RankingStatements if board.table_key is None else _shared_statements
        self._sql = make(layout_of(board), index)
        self._scope = scope_of(board)

    def count_better(self, cell: str) -> Program[int]:
        """Count all entries strictly better than a cell. The cost grows with their number."""
        rows = yield self._sql.count_better.bind(cell=cell, **self._scope)
        return int(rows[0][0])

    def count_better_up_to(self, cell: str, limit: int) -> Program[int]:
        """Count the entries strictly better than a cell, but at most `limit`; read at most `limit` rows."""
        rows = yield self._sql.count_better_up_to.bind(cell=cell, limit=limit, **self._scope)
        return int(rows[0][0])

    def count_range(self, *, least: str, past: str) -> Program[int]:
        """Count the entries with `least` <= cell < `past`. Cells are compared as text, whichever end is better."""
        rows = yield self._sql.count_range.bind(least=least, past=past, **self._scope)
        return int(rows[0][0])

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        return self.gaps.count_better(start, cell, owner=owner)

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        """Return the cell and owner of the `rank`-th row, or None if the ranking has fewer rows.

        The search starts at a knot if the log can confirm the knot's count, otherwise at the top. It has to run in one
        snapshot.
        """
        below, skip_rows = (None, rank - 1) if start is None else (yield from self._find_anchor_before(start, rank))
        return (yield from self.find_row_after_skip(skip_rows, below))

    def _find_anchor_before(self, start: CountStart, rank: int) -> Program[tuple[str | None, int]]:
        """Return the cell of a knot above the `rank`-th row (None: the top), and how many rows to skip below it."""
        curve, sought = start.curve, rank
        for _ in range(ANCHORS_MAX):
            near = curve.key_at(sought)
            anchor = None if near is None else curve.find_anchor_above(near.low)
            if anchor is None or anchor.key is None:
                break
            found = yield from self.gaps.count_up_to_anchor(anchor, start)
            if found is None:
                break
            skip_rows = rank - 1 - found.better_count
            if skip_rows >= 0:
                return self.padding.cell_of_key(anchor.key), skip_rows
            sought = max(1, sought + skip_rows)  # the row stands before this knot, because entries came since the fit
        return None, rank - 1

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        """Count the entries with this cell, and those of them that stand before `owner`."""
        rows = yield self._sql.count_tied.bind(cell=cell, owner=owner, **self._scope)
        return int(rows[0][0]), int(rows[0][1])

    def find_row_after_skip(self, skip_rows: int, below: str | None = None) -> Program[tuple[str, str] | None]:
        """Skip rows from the top, or below a cell, and return the next row's cell and owner, or None."""
        if below is None:
            rows = yield self._sql.landing_from_top.bind(offset=skip_rows, **self._scope)
        else:
            rows = yield self._sql.landing_below.bind(cell=below, offset=skip_rows, **self._scope)
        return (rows[0][0], rows[0][1]) if rows else None

    def sample_row(self, skip_rows: int, below: str | None = None) -> Program[Sample | None]:
        """Do what `find_row_after_skip` does and count the ties, in one statement. Sampling calls it very often."""
        if below is None:
            rows = yield self._sql.sample_from_top.bind(offset=skip_rows, **self._scope)
        else:
            rows = yield self._sql.sample_below.bind(cell=below, offset=skip_rows, **self._scope)
        return _sample(rows)

    def sample_worst_row(self) -> Program[Sample | None]:
        rows = yield self._sql.sample_worst.bind(**self._scope)
        return _sample(rows)

    def tally_cells(self, limit: int, below: str | None = None) -> Program[Rows]:
        """Return up to `limit` distinct cells, best first, each with its number of entries.

        Begin at the top, or after the cell `below`.
        """
        if below is None:
            return (yield self._sql.tallied_from_top.bind(limit=limit, **self._scope))
        return (yield self._sql.tallied_below.bind(cell=below, limit=limit, **self._scope))

    def find_worst_row(self) -> Program[tuple[str, str] | None]:
        rows = yield self._sql.worst.bind(**self._scope)
        return (rows[0][0], rows[0][1]) if rows else None

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        rows = yield self._sql.first_rows.bind(limit=limit, **self._scope)
        return [decode_entry(row) for row in rows]

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        """Return the next `limit` rows after a cell and owner, best first. There need not be a row with both."""
        rows = yield self._sql.rows_after.bind(cell=cell, owner=owner, limit=limit, **self._scope)
        return [decode_entry(row) for row in rows]

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        """Return the `limit` rows directly before a cell and owner, best first."""
        rows = yield self._sql.rows_before.bind(cell=cell, owner=owner, limit=limit, **self._scope)
        return [decode_entry(row) for row in reversed(rows)]

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        """Return the cell and owner of the next row that ranks better than an owner's; None if the owner is first.

        Where equal values share a rank, that row has a strictly better cell. Otherwise it stands directly before the
        owner's row.
        """
        if self.timed:
            before = yield from self.read_rows_before(cell, owner, 1)
            found = [(entry.cells[self.index], entry.owner) for entry in before]
        else:
            found = [(row[0], row[1]) for row in (yield self._sql.next_better.bind(cell=cell, **self._scope))]
        return (str(found[0][0]), found[0][1]) if found else None

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        """Read the rows on both sides of a cell and owner, and count the ties that are needed to rank them."""
        return (
            yield from self.neighbours.read_around_place(cell, owner, better_rows=better_rows, worse_rows=worse_rows)
        )


def _sample(rows: Rows) -> Sample | None:
    if not rows:
        return None
    cell, before, from_it_on = rows[0]
    return Sample(cell, ties_before=before, ties=before + from_it_on)

"""Ranks and reads a leaf's rows by one ranked column: pages, and the rows around an owner or a value.

One or two statements read the rows around many places (pairs of a cell and an owner), so many requests can share them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Column,
    Condition,
    Select,
    Term,
    Union,
    asc,
    col,
    count,
    count_if,
    desc,
    lit,
    param,
    rows,
    select,
    union_all,
)
from storage.log.cells import CellOf, Padding
from storage.log.change_log import CHANGED_AT
from storage.records import Best, Board, Entry, Leaf
from storage.schema.tables import GATES, TOTALS
from storage.store import Program, Row, Rows

from .exact_ranks import BETTER_THAN_ANY, CountStart, GapCount, GapCounts, count_of
from .rankings import Neighbours, Ranking, edge_of
from .row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from .totals import CHANGES, check_copy

ANCHORS_MAX = 8  # a search for the row at a rank tries at most this many knots, each better than the one before
_PLACE = "q"
_OWN = "e"
_TIED = "t"
_FOUND = "s"
_decode: Callable[[str], list[list[Any]]] = msgspec.json.Decoder(list[list[Any]]).decode


@dataclass(frozen=True, slots=True)
class Sample:
    cell: str
    ties_before: int  # rows with this cell that come before the row
    ties: int  # all rows with this cell, the row itself included


class AroundOwner(NamedTuple):
    board: Board
    column_index: int
    owner: str
    better_rows: int
    worse_rows: int
    start: CountStart | None = None  # the curve for the count of better entries; None: do not count


class OwnersNeighbours(NamedTuple):
    near: Neighbours
    totals: dict[int, int]  # keys: the index of the ranked column, and `CHANGES`
    counted: GapCount | None = None  # the entries better than the owner's cell; None: not counted


def decode_entry(row: Sequence[Any]) -> Entry:
    return Entry(owner=row[0], updated_at_us=row[1], cells=list(row[2:]))


class _ColumnStatements:
    """The compiled statements for one ranked column of a table, to which `RowRanking` adds a leaf's parameters."""

    def __init__(self, layout: Layout, index: int) -> None:
        column = layout.columns[index]
        self._layout, self._table, self._scope = layout, layout.table, layout.scope()
        self._name, self._high = column.name, column.best is Best.HIGH
        self._cell, self._owner = col(column.name), col("owner")
        self._best_first = (desc if self._high else asc)(self._cell), asc(self._owner)
        self._worst_first = (asc if self._high else desc)(self._cell), desc(self._owner)
        self._build_counts()
        self._build_single_rows()
        self._build_pages()
        self._build_reads_of_places(index)

    def _better(self, cell: Term) -> Condition:
        return self._cell.gt(cell) if self._high else self._cell.lt(cell)

    def _worse(self, cell: Term) -> Condition:
        return self._cell.lt(cell) if self._high else self._cell.gt(cell)

    def _from_board(self, *outputs: Any) -> Select:
        return select(*outputs).from_(self._table).where(*self._scope)

    def _build_counts(self) -> None:
        cell = param("cell")
        counted, in_range = self._from_board(count()), (self._cell.ge(param("least")), self._cell.lt(param("past")))
        changed_at = CHANGED_AT.scalar()
        self.count_better = self._from_board(count(), changed_at).where(self._better(cell)).prepared()
        some = self._from_board(lit(1).as_("one")).where(self._better(cell)).limit(param("limit"))
        self.count_better_up_to = select(count(), changed_at).from_(some).prepared()
        self.count_range = counted.where(*in_range).prepared()
        ties = self._from_board(count(), count_if(self._owner.lt(param("owner"))))
        self.count_tied = ties.where(self._cell.eq(cell)).prepared()
        tallied = self._from_board(self._cell, count()).where(self._worse(cell)).group_by(self._cell)
        self.tallied_below = tallied.order_by(self._best_first[0]).limit(param("limit")).packed().prepared()

    def _build_single_rows(self) -> None:
        cell, one = param("cell"), self._from_board(self._cell, self._owner).limit(1)
        below = one.where(self._worse(cell)).order_by(*self._best_first).offset(param("offset"))
        worst = one.where(self._cell.not_null()).order_by(*self._worst_first)
        self.landing_below, self.worst = below.prepared(), worst.prepared()
        self.sample_below, self.sample_worst = (self._with_ties(row).prepared() for row in (below, worst))

    def _with_ties(self, one_row: Select) -> Select:
        # Count the ties before the found row, and the ties from this row on. The sum of both is the number of all ties,
        # so the statement reads each tie only once.
        cell, found_owner, owner = col(self._name, _FOUND), col("owner", _FOUND), col("owner", _TIED)
        tied = select(count()).from_(self._table, _TIED).where(*self._layout.scope(_TIED))
        tied = tied.where(col(self._name, _TIED).eq(cell))
        before, from_it_on = tied.where(owner.lt(found_owner)), tied.where(owner.ge(found_owner))
        return select(cell, before.scalar(), from_it_on.scalar()).from_(one_row, _FOUND)

    def _build_pages(self) -> None:
        cell, owner, limit = param("cell"), param("owner"), param("limit")
        first = self._from_board(*self._layout.row_columns()).where(self._cell.not_null())
        self.first_rows = first.order_by(*self._best_first).limit(limit).packed().prepared()
        self.rows_after = self._after(cell, self._owner.gt(owner)).limit(limit).packed().prepared()
        self.rows_before = self._before(cell, owner).limit(limit).packed().prepared()

    def _after(self, cell: Term, on_its_side: Condition) -> Union:
        return self._either(cell, on_its_side, self._worse(cell)).order_by(*self._best_first)

    def _before(self, cell: Term, owner: Term) -> Union:
        return self._either(cell, self._owner.lt(owner), self._better(cell)).order_by(*self._worst_first)

    def _either(self, cell: Term, on_its_side: Condition, beyond: Condition) -> Union:
        """Build a query for all rows on one side of a place: the place's ties on this side, and the rows beyond.

        The query is a union, because if it compared pairs (cell, owner), the database would check every row that it
        reads.
        """
        rows_of = self._from_board(*self._layout.row_columns())
        return union_all(rows_of.where(self._cell.eq(cell), on_its_side), rows_of.where(beyond))

    def _build_reads_of_places(self, index: int) -> None:
        places = rows(_PLACE, param("places"), number=INTEGER, cell=TEXT, owner=TEXT)
        number, cell, owner = (col(name, _PLACE) for name in ("number", "cell", "owner"))
        around, totals = self._around(cell, owner), (_total(index), _total(CHANGES), _EDITION)
        self.of_places = select(number, *around).from_(places).packed().prepared()
        self.of_places_with_totals = select(number, *around, *totals).from_(places).packed().prepared()
        self.ties_before = select(number, self._ties(cell, owner)).from_(places).packed().prepared()
        own_cell, own_owner = col(self._name, _OWN), col("owner", _OWN)
        self.of_owners = (
            select(number, *self._around(own_cell, own_owner), *totals)
            .from_(rows(_PLACE, param("owners"), number=INTEGER, owner=TEXT))
            .join(self._table, own_owner.eq(owner), alias=_OWN)
            .where(*self._layout.scope(_OWN), own_cell.not_null())
            .packed()
            .prepared()
        )

    def _around(self, cell: Column, owner: Column) -> tuple[Term, ...]:
        before = self._before(cell, owner).limit(param("better_rows"))
        after = self._after(cell, self._owner.ge(owner)).limit(param("worse_rows"))
        return before.nested(), after.nested(), self._ties(cell, owner)

    def _ties(self, cell: Column, owner: Column) -> Term:
        return self._from_board(count()).where(self._cell.eq(cell), self._owner.lt(owner)).scalar()


def _total(column_index: int) -> Term:
    return select(col("entries")).from_(TOTALS).where(_OF_LEAF, col("column_index").eq(column_index)).scalar()


_OF_LEAF = col("leaf_key").eq(param("totals_key", INTEGER))
_EDITION = select(col("edition")).from_(GATES).where(_OF_LEAF).scalar()


_statements_of = lru_cache(maxsize=SHARED_STATEMENTS_MAX)(_ColumnStatements)


class RowRanking(Ranking):
    """The ranking of a leaf with rows by one column, with programs that count and read these rows."""

    def __init__(self, leaf: Leaf, index: int) -> None:
        self._leaf, self.index = leaf, index
        self.padding = Padding(leaf.spec, leaf.spec.columns[index])
        self.timed = self.padding.timed
        self.gaps = GapCounts(leaf, index, self.padding)
        self._sql, self._scope = _statements_of(layout_of(leaf), index), scope_of(leaf)
        self.leaf_key, self.before_best = leaf.key, BETTER_THAN_ANY[self.padding.high]

    def count_from_top(self, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
        if rows_max is None:
            rows = yield self._sql.count_better.bind(cell=cell, **self._scope)
        else:
            rows = yield self._sql.count_better_up_to.bind(cell=cell, limit=rows_max, **self._scope)
        return count_of(rows[0][0], asked_us, changed_us=rows[0][1])

    def count_range(self, *, least: str, past: str) -> Program[int]:
        rows = yield self._sql.count_range.bind(least=least, past=past, **self._scope)
        return int(rows[0][0])

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        return (yield from self.gaps.count_better(start, [(cell, owner)]))[cell, owner]

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        below, skip_rows = (None, rank - 1) if start is None else (yield from self._find_anchor_before(start, rank))
        return (yield from self.find_row_after_skip(skip_rows, below))

    def _find_anchor_before(self, start: CountStart, rank: int) -> Program[tuple[str | None, int]]:
        """Find a knot's cell before the `rank`-th row (None means the top), and how many rows to skip after it."""
        curve, sought = start.curve, rank
        for _ in range(ANCHORS_MAX):
            near = curve.key_at(sought)
            gap = None if near is None else curve.find_gap(near.low)
            if gap is None or gap.better_key is None:
                break
            found = yield from self.gaps.count_up_to_gap(gap, start)
            if found is None:
                break
            skip_rows = rank - 1 - found.better_count
            if skip_rows >= 0:
                return self.padding.cell_of_key(gap.better_key), skip_rows
            sought = max(1, sought + skip_rows)  # the knot turned out to be behind the row: try a better knot
        return None, rank - 1

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        rows = yield self._sql.count_tied.bind(cell=cell, owner=owner, **self._scope)
        return int(rows[0][0]), int(rows[0][1])

    def find_row_after_skip(self, skip_rows: int, below: str | None = None) -> Program[tuple[str, str] | None]:
        """Skip rows from the top, or after the cell `below`, and return the cell and owner of the next row, or None."""
        below = self.before_best if below is None else below
        rows = yield self._sql.landing_below.bind(cell=below, offset=skip_rows, **self._scope)
        return (rows[0][0], rows[0][1]) if rows else None

    def sample_row(self, skip_rows: int, below: str | None = None) -> Program[Sample | None]:
        """Find a row as `find_row_after_skip` does, and count its ties in the same statement, for sampling."""
        below = self.before_best if below is None else below
        return _sample((yield self._sql.sample_below.bind(cell=below, offset=skip_rows, **self._scope)))

    def sample_worst_row(self) -> Program[Sample | None]:
        return _sample((yield self._sql.sample_worst.bind(**self._scope)))

    def tally_cells(self, limit: int, below: str | None = None) -> Program[Rows]:
        """List up to `limit` distinct cells, best first, each with its number of entries.

        Start at the top, or after the cell `below`.
        """
        below = self.before_best if below is None else below
        return (yield self._sql.tallied_below.bind(cell=below, limit=limit, **self._scope))

    def find_worst_cell(self) -> Program[str | None]:
        rows = yield self._sql.worst.bind(**self._scope)
        return str(rows[0][0]) if rows else None

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        rows = yield self._sql.first_rows.bind(limit=limit, **self._scope)
        return [decode_entry(row) for row in rows]

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        rows = yield self._sql.rows_after.bind(cell=cell, owner=owner, limit=limit, **self._scope)
        return [decode_entry(row) for row in rows]

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        rows = yield self._sql.rows_before.bind(cell=cell, owner=owner, limit=limit, **self._scope)
        return [decode_entry(row) for row in reversed(rows)]

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        # If equal values share a rank, search before the owner "": no row with this cell is before it.
        before = yield from self.read_rows_before(cell, owner if self.timed else "", 1)
        return (str(before[0].cells[self.index]), before[0].owner) if before else None

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        (row,) = yield self._sql.of_places.bind(
            places=[(0, cell, owner)], better_rows=better_rows, worse_rows=worse_rows, **self._scope
        )
        near = _neighbours(row)
        yield from self._count_edges([(cell, near)])
        return near

    def read_around_places(
        self, places: Sequence[CellOf], *, better_rows: int, worse_rows: int
    ) -> Program[list[OwnersNeighbours]]:
        """Read the rows around each place with one statement. The caller must fill in `Neighbours.edge_ties`."""
        limits = {"better_rows": better_rows, "worse_rows": worse_rows, "totals_key": self.leaf_key, **self._scope}
        numbered = [(number, *place) for number, place in enumerate(places)]
        found = yield self._sql.of_places_with_totals.bind(places=numbered, **limits)
        near = {row[0]: self._with_totals(row) for row in found}
        return [near[number] for number in range(len(places))]

    def read_around_owners(
        self, owners: Sequence[str], *, better_rows: int, worse_rows: int
    ) -> Program[dict[int, OwnersNeighbours]]:
        """Read the rows around each owner with a value in the column, by the owner's index in `owners`."""
        limits = {"better_rows": better_rows, "worse_rows": worse_rows, "totals_key": self.leaf_key, **self._scope}
        found = yield self._sql.of_owners.bind(owners=list(enumerate(owners)), **limits)
        near = {row[0]: self._with_totals(row) for row in found}
        yield from self._count_edges([(each.near.after[0].cells[self.index], each.near) for each in near.values()])
        return near

    def _with_totals(self, row: Row) -> OwnersNeighbours:
        _, _, _, _, entries, changes, edition = row
        check_copy(self._leaf, edition)
        return OwnersNeighbours(_neighbours(row), {self.index: entries or 0, CHANGES: changes or 0})

    def _count_edges(self, places: Iterable[tuple[Any, Neighbours]]) -> Program[None]:
        """Fill in `Neighbours.edge_ties`. `places`: for each place, its cell and the neighbours around it.

        The first row of `Neighbours.before` is called the edge. If the edge has the cell of the place, its ties follow
        from `ties_before`. For all other edges, a single statement counts the ties.
        """
        index = self.index
        to_count: list[Neighbours] = []
        for cell, near in places:
            if len(near.before) < 2 or near.before[0].cells[index] != near.before[1].cells[index]:
                continue
            if near.before[0].cells[index] == cell:
                near.edge_ties = near.ties_before - len(near.before)
            else:
                to_count.append(near)
        if to_count:
            counted = yield from self.count_ties_before([edge_of(near, index) for near in to_count])
            for near, ties in zip(to_count, counted, strict=True):
                near.edge_ties = ties

    def count_ties_before(self, places: Sequence[CellOf]) -> Program[list[int]]:
        """Count, for each place, the rows with the place's cell that come before the place's owner."""
        numbered = [(number, *place) for number, place in enumerate(places)]
        found = {
            number: int(ties) for number, ties in (yield self._sql.ties_before.bind(places=numbered, **self._scope))
        }
        return [found[number] for number in range(len(places))]


def _sample(rows: Rows) -> Sample | None:
    if not rows:
        return None
    cell, before, from_it_on = rows[0]
    return Sample(cell, ties_before=before, ties=before + from_it_on)


def _neighbours(row: Row) -> Neighbours:
    before, after = _rows(row[1]), _rows(row[2])
    return Neighbours([decode_entry(each) for each in reversed(before)], [decode_entry(each) for each in after], row[3])


def _rows(nested: Any) -> list[list[Any]]:
    # For an array within a packed row, some versions of SQLite return the array itself, and others its JSON text.
    return nested if isinstance(nested, list) else _decode(nested)

"""Computes exact ranks from a knot's count, the changes logged after it, and a count of only a few rows.

A knot is a value whose count the curve knows. A curve counts all changes before a log position, its mark.

    entries better than a cell
        = the knot's count, which includes the changes that the curve's mark covers
        + changes after the mark: (new cell at the knot or better) - (old cell at the knot or better)
        + entries strictly between the knot and the cell

If the next worse knot is nearer, the count starts there instead. The result is then the number of entries better than
that knot, minus those from the cell (included) to the knot (excluded). The knot at which a count starts is called its
anchor knot. One statement counts for many cells of a column.

A single statement reads the changes, the rows and the board's totals, because a post between two statements would be
counted twice or not at all. If the log cannot confirm the knot's count, there is no result. That happens in three
cases:

- Changes after the mark were already removed from the log.
- The mark is newer than this snapshot of the log, after a restore.
- So many changes follow the mark that a full count costs no more.

Each segment of a board is read in its own snapshot. To make the segments' counts consistent, each is restated as of the
same time before the first snapshot: `as_asked` subtracts what the changes after `asked_us` have added.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import gt, lt
from typing import NamedTuple

from predictor import AnyCurve, Curve, Gap
from querybuilder import (
    INTEGER,
    TEXT,
    Prepared,
    coalesce,
    col,
    count,
    null,
    param,
    plus,
    rows,
    select,
    sum_,
    union_all,
)
from storage.log.bundles import pieces_of
from storage.log.cells import CellOf, Padding, RankedCells
from storage.log.change_log import AFTER_MARK, CHANGED_AT, NEXT_POSITION, POSITION, PRUNED_BEFORE
from storage.records import Leaf
from storage.schema.tables import CHANGE_LOG
from storage.store import Program

from .count_policy import DEFAULT_CHANGES_MAX
from .row_tables import SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from .totals import check_copy, totals_and_edition

_PLACE = "q"
_PLACE_TEXTS = ("edge", "least", "past", "cell", "owner")
BETTER_THAN_ANY = {True: ":", False: ""}  # True: high values are best; ":" sorts after every digit, and "" before it
CHANGES_MAX = 10**9  # no log has as many changes of a board since a request began
_NEXT_TEXT = ":"  # a cell with this suffix sorts directly after the cell, before all greater cells


class CountStart(NamedTuple):
    """The curve, and its mark in the change log, that let a count start at a knot instead of at the best row."""

    curve: AnyCurve
    mark: int  # the first log position whose changes the counts of the curve do not include
    changes_max: int  # if more changes than this follow the mark, the count has no result
    asked_us: int  # a time before the count began
    parts: tuple["CountStart", ...] = ()  # one for each segment of the board, in order; empty: no segments
    as_asked: bool = False  # whether to count the entries as they were at `asked_us`, and not those of the snapshot


class GapCount(NamedTuple):
    """The number of entries better than a cell, with the board's totals from the same snapshot."""

    better_count: int
    ties_before: int  # entries with the cell that come before the given owner
    totals: dict[int, int]  # by column index
    from_anchor: bool  # True: the count started at a knot; False: at the best row
    # From the next two values, `date_snapshot` computes a time at which the count was exact. A sum is for `asked_us`.
    asked_us: int  # a time before the snapshot was read
    changed_us: int  # see `LogState.changed_us`
    # Of a count as of `asked_us`: how many changes came later, and how many of them can have altered `ties_before`.
    late: int = 0
    late_ties: int = 0
    is_sum: bool = False  # whether this is the sum over segments, which are read in different snapshots


def count_of(better_count: int, asked_us: int, *, changed_us: int) -> GapCount:
    """Build a `GapCount`, without totals, for a count that started at the best row."""
    return GapCount(better_count, 0, {}, False, asked_us, changed_us)


class _Place(NamedTuple):
    knot: int | None  # the key of the anchor knot; None: the count starts at the best row
    counted: int  # the knot's count in the curve: entries better than the knot; if not `below`, also those equal to it
    below: bool  # True: the knot is worse than the cell, or has the same value. False: the knot is better
    cell: str  # empty: count only the entries up to the knot
    owner: str


class GapCounts:
    """Programs that count in one ranked column of a leaf, each with a single statement."""

    def __init__(self, leaf: Leaf, index: int, padding: Padding) -> None:
        self._leaf, self._padding = leaf, padding
        self._key_and_scope = {"totals_key": leaf.key, **scope_of(leaf)}
        self.passed_mark: int | None = None  # more than DEFAULT_CHANGES_MAX changes follow this mark
        self._span = RankedCells(leaf.spec).find_span(index)
        self._statement = _prepare_count(layout_of(leaf), index)

    def count_better(self, start: CountStart, cells: Iterable[CellOf]) -> Program[dict[CellOf, GapCount | None]]:
        """Count, for each cell, the entries better than it, and the entries with this cell that come before its owner.

        Each count starts at the knot that is probably nearer. It is None if the log cannot confirm the knot's count.
        """
        asked: list[_Place] = []
        find_gap, key_of_cell = start.curve.find_gap, self._padding.key_of_cell
        for cell, owner in cells:
            key = key_of_cell(cell)
            better, worse, better_count, rows = find_gap(key)
            if better is not None and worse is not None and key - better > worse - key:
                asked.append(_Place(worse, better_count + rows, True, cell, owner))
            else:
                asked.append(_Place(better, better_count, False, cell, owner))
        counted = (yield from self._count(start, asked)) if asked else []
        return {(each.cell, each.owner): count for each, count in zip(asked, counted, strict=True)}

    def count_up_to_gap(self, gap: Gap, start: CountStart) -> Program[GapCount | None]:
        """Count the entries from the top to a gap's better knot, or return None if the log cannot confirm its count."""
        place = _Place(gap.better_key, gap.better_count, below=False, cell="", owner="")
        [found] = yield from self._count(start, [place])
        return found

    def count_as_asked(self, cell: str, asked_us: int, mark: int) -> Program[GapCount]:
        """Count, starting at the best row, the entries that were better than a cell at `asked_us`.

        The mark covers no change after `asked_us`. Run this in the snapshot in which the mark was read.
        """
        start = CountStart(Curve((), total=0, as_of_us=0), mark, CHANGES_MAX, asked_us, as_asked=True)
        [found] = yield from self._count(start, [_Place(None, 0, below=False, cell=cell, owner="")])
        assert found is not None, "the log has all changes after a mark of its own"
        return found

    def _count(self, start: CountStart, asked: Sequence[_Place]) -> Program[list[GapCount | None]]:
        mark, asked_us, changes_max, high = start.mark, start.asked_us, start.changes_max, self._padding.high
        limits = [self._limit_rows(place) for place in asked]
        places = [(number, *texts) for number, texts in enumerate(limits)]
        bound = {"places": places, "changes": changes_max, "mark": mark, **self._key_and_scope}
        totals: dict[int, int] = {}
        read: dict[int, Sequence[int]] = {}
        bundles: list[tuple[int, str]] = []
        stored = None
        for edition, number, counted, *row, cells in (yield self._statement.bind(**bound)):
            if edition is not None:  # `number` is a column index, `counted` its total; null if the leaf has no totals
                stored = edition
                if number is not None:
                    totals[number] = counted
            elif number is None:
                bundles.append((counted, cells))
            else:
                read[number] = counted, *row
        check_copy(self._leaf, stored)
        _, _, changes, following, pruned_before, changed_us = read[0]  # all rows of places have the same
        if changes > DEFAULT_CHANGES_MAX:
            self.passed_mark = mark
        if changes > changes_max or not pruned_before <= mark <= following:
            return [None] * len(asked)
        changed = [(at_us, *each) for at_us, cells in bundles for each in self._span.split_changes(pieces_of(cells))]
        befores, afters = sorted([before for _, before, _ in changed]), sorted([after for _, _, after in changed])
        late = [(before, after) for at_us, before, after in changed if at_us > asked_us] if start.as_asked else []
        is_better, found = gt if high else lt, list[GapCount | None]()
        for number, (knot, better_count, below, cell, owner) in enumerate(asked):
            edge, (between, ties, *_) = limits[number][0], read[number]
            risen = bisect_left(befores, edge) - bisect_left(afters, edge)
            better_count += (risen if high else -risen) + (-between if below else between)
            better_count -= sum([is_better(after, cell) - is_better(before, cell) for before, after in late])
            late_ties = sum([cell in change for change in late]) if owner else 0
            of_snapshot = totals, knot is not None, asked_us, changed_us
            found.append(GapCount(better_count, ties, *of_snapshot, late=len(late), late_ties=late_ties))
        return found

    def _limit_rows(self, place: _Place) -> tuple[str, ...]:
        knot, _, below, cell, owner = place
        high = self._padding.high
        edge = BETTER_THAN_ANY[high] if knot is None else self._padding.cell_of_key(knot)
        if below is high and knot is not None:
            edge += _NEXT_TEXT
        end = (cell + _NEXT_TEXT if high else cell) if cell else edge
        return edge, min(edge, end), max(edge, end), cell, owner


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _prepare_count(layout: Layout, index: int) -> Prepared:
    """Prepare the statement that reads what a count needs for each row of the parameter `places`.

    Each row of `places` holds text limits. `edge` limits the knot's count, and so the logged changes to add to it: if
    high values are best, this count includes the cells >= `edge`, otherwise the cells < `edge`. The rows between knot
    and cell are the leaf's rows with `least` <= cell < `past`. The logged changes are read unfiltered, because Python
    compares them with many places in a fraction of the time that a join takes.
    """
    own = col(layout.columns[index].name)
    number, least, past, cell, owner = (col(name, _PLACE) for name in ("number", "least", "past", "cell", "owner"))
    entries = select(count()).from_(layout.table).where(*layout.scope())
    since = col("leaf_key").eq(param("totals_key", INTEGER)), AFTER_MARK
    changes_max = param("changes", INTEGER)
    # Without this ORDER BY, PostgreSQL may scan the log from its start, because it expects to find enough rows early.
    first = select(col("changes")).from_(CHANGE_LOG).where(*since).order_by(POSITION).limit(plus(changes_max, 1))
    changes = select(coalesce(sum_(col("changes")), 0)).from_(first).scalar()
    counted = select(
        null(TEXT),
        number,
        entries.where(own.ge(least), own.lt(past)).scalar(),
        entries.where(own.eq(cell), col("owner").lt(owner)).scalar(),
        changes,
        NEXT_POSITION,
        PRUNED_BEFORE.scalar(),
        CHANGED_AT.scalar(),
        null(TEXT),
    ).from_(rows(_PLACE, param("places"), number=INTEGER, **dict.fromkeys(_PLACE_TEXTS, TEXT)))
    none = [null(INTEGER)] * 5
    bundles = select(null(TEXT), null(INTEGER), col("updated_at"), *none, col("cells")).from_(CHANGE_LOG)
    bundles = bundles.where(*since, changes.le(changes_max))
    return union_all(counted, bundles, totals_and_edition(*none, null(TEXT))).packed().prepared()

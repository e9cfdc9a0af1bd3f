"""Fits a ranked column's curve to samples: reads a row, skips many rows, reads the next one, all in one snapshot.

The predictor's `walk` decides which row to read next. Each step skips a number of rows after the previous row's cell
(an SQL offset), reads one row, and counts the entries with the same cell. On PostgreSQL, one statement takes several
steps, which a `Stride` describes.

A scan instead reads every distinct value and its number of entries, page by page. Pages must stay small, because
decoding a page holds the interpreter lock, which delays everything else in the process. A scan keeps a few 8-byte
numbers in memory for each distinct value: two, or more if a key has more than 62 bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter

from config.settings import JobSettings
from predictor import LIMB_BITS, RATIO_UNIT, Curve, Knot, Landing, Stride, Tally, WorstEntry, walk
from querybuilder import (
    INTEGER,
    TEXT,
    Dialect,
    Prepared,
    asc,
    col,
    collated,
    count,
    count_if,
    desc,
    lit,
    minus,
    param,
    plus,
    recursive,
    select,
    smaller_of,
    times,
    whole_part,
)
from storage.errors import RowDamagedError
from storage.leaves.entries import Entries
from storage.leaves.row_rankings import Sample
from storage.leaves.row_tables import SHARED_STATEMENTS_MAX, Layout, scope_of
from storage.leaves.totals import find_totals
from storage.records import Best
from storage.store import Program

KNOTS_MIN = 2  # a curve needs knots at the best and the worst value
# The most samples that one statement on PostgreSQL reads. After each statement, the walk decides again how many rows to
# skip between samples, because equal values share one sample and so save samples.
STRIDE_MAX = 64


def sample_curve(
    dialect: Dialect, entries: Entries, column_index: int, *, gap_rows_max: int, now_us: int
) -> Program[Curve]:
    """Sample a curve of the column in this snapshot, with about as many knots as the board's setting `samples`.

    Further knots are added where gaps would otherwise hold more than `gap_rows_max` entries.
    """
    totals = yield from find_totals([entries.leaf.key])
    total = totals[entries.leaf.key].get(column_index, 0)
    if total == 0:
        return Curve((), total=0, as_of_us=now_us)
    knots = yield from _walk(dialect, entries, column_index, total, gap_rows_max)
    return Curve(knots, total=total, as_of_us=now_us)


def _walk(dialect: Dialect, entries: Entries, column_index: int, total: int, gap_rows_max: int) -> Program[list[Knot]]:
    ranking, layout, scope = entries.rankings[column_index], entries.layout, scope_of(entries.leaf)
    padding, leaf = ranking.padding, entries.leaf
    samples = max(KNOTS_MIN, leaf.spec.predictor.samples)
    stride_max = STRIDE_MAX if dialect.lateral else 1
    plan = walk(total, knots_max=samples, gap_rows_max=gap_rows_max, stride_max=stride_max)

    def landing(found: Sample | None) -> Landing | None:
        return None if found is None else land(found)

    def land(found: Sample) -> Landing:
        [key] = _read_keys(entries, column_index, [found.cell])
        return Landing(key, found.ties_before, found.ties)

    answer: Landing | list[Landing] | None = None
    try:
        question = next(plan)
        while True:
            if isinstance(question, WorstEntry):
                answer = landing((yield from ranking.sample_worst_row()))
            elif isinstance(question, Stride):
                spacing = question._asdict()  # the statement's parameters are named like the fields of `Stride`
                cell = padding.cell_of_key(spacing.pop("after_key"))
                rows = yield _read_stride(layout, column_index).bind(cell=cell, **spacing, **scope)
                answer = [land(Sample(*row)) for row in rows]
            else:
                below = None if question.after_key is None else padding.cell_of_key(question.after_key)
                answer = landing((yield from ranking.sample_row(question.rows, below)))
            question = plan.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _read_stride(layout: Layout, index: int) -> Prepared:
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
        .join_lateral(sought, found)
        .join_lateral(counts.from_(layout.table, "e").where(*scope, cell.eq(col("cell", found))), ties)
        .where(col("step", before).lt(param("steps", INTEGER)), landed.lt(param("total", INTEGER)))
    )
    seed = select(lit(0), collated(param("cell", TEXT)), lit(0), lit(0), param("next_rank", INTEGER))
    final = select(col("cell"), col("before"), col("ties")).from_("w").where(col("step").gt(0))
    names = ("step", "cell", "before", "ties", "next_rank")
    stride = recursive("w", *names, seed=seed, step=step, final=final.order_by(asc(col("step"))))
    return stride.prepared()


SHOWN_CHARS_MAX = 80  # of a damaged value
_LIMB_MASK = (1 << LIMB_BITS) - 1


def scan_column(entries: Entries, column_index: int, limits: JobSettings) -> Program[Tally]:
    """Scan a column into a tally of all its distinct values, with the number of entries for each."""
    ranking = entries.rankings[column_index]
    tallying = TallyBuilder()
    below: str | None = None
    while True:
        rows = yield from ranking.tally_cells(limits.scan_page_values, below)
        keys = _read_keys(entries, column_index, [*map(itemgetter(0), rows)])
        tallying.add_values(keys, [*map(itemgetter(1), rows)])
        if len(rows) < limits.scan_page_values:
            return tallying.tally()
        below = rows[-1][0]


def _read_keys(entries: Entries, column_index: int, cells: list[str]) -> list[int]:
    try:
        return entries.rankings[column_index].padding.keys_of_cells(cells)
    except ValueError:
        damaged = next((cell for cell in cells if not cell.isdecimal()), "")[:SHOWN_CHARS_MAX]
        column = entries.leaf.spec.columns[column_index].name
        raise RowDamagedError(
            f"leaderboard {entries.leaf.id!r} has a value in column {column!r} that can't be read, {damaged!r}: "
            "correct or delete its row in the database"
        ) from None


class TallyBuilder:
    def __init__(self) -> None:
        self._limbs, self._better_counts = [array("q")], array("q")
        self._first_key = 0
        self.total = 0  # number of entries

    def add_values(self, keys: Sequence[int], counts: Sequence[int]) -> None:
        """Add distinct keys, best first and worse than all earlier ones, and the number of entries with each key."""
        if not keys:
            return
        if not self._limbs[0]:
            self._first_key = keys[0]
        offsets = [key - self._first_key for key in keys]
        while offsets[-1] >> LIMB_BITS * len(self._limbs):
            self._limbs.append(array("q", bytes(8 * len(self._limbs[0]))))
        *lower, highest = self._limbs
        for limb in lower:
            limb.extend([offset & _LIMB_MASK for offset in offsets])
            offsets = [offset >> LIMB_BITS for offset in offsets]
        highest.extend(offsets)
        better_counts = array("q", accumulate(counts, initial=self.total))
        self.total = better_counts.pop()
        self._better_counts.extend(better_counts)

    def tally(self) -> Tally:
        return Tally(
            first_key=self._first_key,
            limbs=[memoryview(limb) for limb in self._limbs],
            better_counts=memoryview(self._better_counts),
            total=self.total,
        )

"""Applies the merge rules of columns, which say how a post changes the stored cells of a row.

This module does no I/O, so tests can cover every case.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from storage.errors import ValueOutOfRangeError
from storage.records import (
    BoardSpec,
    ColumnChange,
    ColumnKind,
    ColumnSpec,
    Entry,
    Merge,
    PostTerms,
    StatValue,
    describe_range,
    format_decimal,
)

from .cells import Cell, Padding, list_tie_columns
from .quotients import Quotient, list_quotients


class Merger:
    def __init__(self, spec: BoardSpec) -> None:
        self._columns = spec.columns
        self._paddings = [
            Padding(spec, column) if column.sorted or column.keeps_time else None for column in spec.columns
        ]
        self._only = self._paddings[0] if len(self._paddings) == 1 else None  # most boards have one column
        indexes = {column.name: index for index, column in enumerate(spec.columns)}
        # By index of a column, the columns that take their values with it. If time breaks ties, every column that keeps
        # its time is here: a post may repeat its value with an earlier time.
        self._followers: dict[int, list[int]] = {
            index: [] for index, padding in enumerate(self._paddings) if padding and padding.timed
        }
        for index, column in enumerate(spec.columns):
            if column.of is not None and column.merge is Merge.WITH:
                self._followers.setdefault(indexes[column.of], []).append(index)
        # By index of a column that others follow: those followers that decide between runs with equal values.
        self._run_ties = {
            index: [tie for tie in list_tie_columns(spec) if tie.number in followers]
            for index, followers in self._followers.items()
        }
        self._tied = [(index, each) for index, each in enumerate(self._paddings) if each and each.orders_equals]
        self._quotients = list_quotients(spec)
        self._is_plain = not (self._followers or self._tied or self._quotients)

    def decode_stats(self, cells: Sequence[Cell]) -> list[StatValue | None]:
        """Decode the values of a row in column order: scaled integers, text, or None."""
        if self._only is not None:
            cell, padding = cells[0], self._only
            # `decode_value` without the call: this runs for every post, and the call would double its time.
            return [int(cell[: padding.width]) - padding.offset if isinstance(cell, str) else cell]
        return [
            padding.decode_value(cell) if padding is not None and isinstance(cell, str) else cell
            for padding, cell in zip(self._paddings, cells, strict=True)
        ]

    def decode_value(self, index: int, cell: Cell) -> StatValue | None:
        padding = self._paddings[index]
        return padding.decode_value(cell) if padding is not None and isinstance(cell, str) else cell

    def merge_changes(
        self, cells: list[Cell] | None, changes: Sequence[ColumnChange], at_us: int, *, computes: bool = True
    ) -> dict[int, Cell]:
        """Compute the new cells of the columns whose values a post changes, by column index.

        `cells`: the stored cells, which are not modified; None if there is no row yet. `at_us`: when the post's values
        were reached. `computes`: whether to compute the quotients as well.

        Raises:
            ValueOutOfRangeError: a result leaves its column's range.
        """
        changed: dict[int, Cell] = {}
        for change in changes:
            index = change.index
            padding = self._paddings[index]
            stored = None if cells is None else cells[index]
            if changed:
                stored = changed.get(index, stored)
            before = padding.decode_value(stored) if padding is not None and isinstance(stored, str) else stored
            after = self._merged(self._columns[index], before, change)
            if after == before:
                continue
            if index in changed and after == (None if cells is None else self.decode_value(index, cells[index])):
                del changed[index]  # a merge and a `set` in the same post cancelled each other out
                continue
            changed[index] = padding.pad(after, at_us) if padding is not None and isinstance(after, int) else after
        if self._is_plain:
            return changed
        stored_cells = [None] * len(self._columns) if cells is None else cells
        improved = self._replace_followers(stored_cells, changes, changed, at_us)
        for quotient in self._quotients if computes else ():
            self._compute_quotient(quotient, stored_cells, changed, improved, at_us)
        self._order_ties(stored_cells, changed, improved)
        return changed

    def settle_terms(self, cells: Sequence[Cell] | None, change: ColumnChange, terms: PostTerms) -> ColumnChange | None:
        """Return the change that a post with terms makes to the stored cells, or None if they do not meet the terms."""
        before, value = None if cells is None else self.decode_value(change.index, cells[change.index]), change.value
        if before is None:
            return None if terms.present or terms.equals is not None else change
        if terms.absent or terms.equals not in (None, before):
            return None
        if isinstance(before, int) and isinstance(value, int):
            value += before if terms.adds else 0
            if (terms.above and value <= before) or (terms.below and value >= before):
                return None
        return ColumnChange(change.index, value, change.overwrite)

    def combine_entries(self, one: Entry, other: Entry) -> list[Cell]:
        """Combine two entries into one, as if the values of the later entry were posted to the earlier one.

        A column that follows another one takes its value from the entry whose value in that other column is kept. So
        does the time at which a value was reached.

        Raises:
            ValueOutOfRangeError: a result leaves its column's range.
        """
        earlier, later = sorted((one, other), key=attrgetter("updated_at_us"))
        cells = [*earlier.cells]
        for index, column in enumerate(self._columns):
            cell, padding = later.cells[index], self._paddings[index]
            if column.of is not None or cell is None:
                continue
            together = index, *self._followers.get(index, ())
            values = ((number, self.decode_value(number, later.cells[number])) for number in together)
            changes = [ColumnChange(number, value, False) for number, value in values if value is not None]
            reached_us = later.updated_at_us
            if padding is not None and padding.timed and isinstance(cell, str):
                reached_us = padding.reached_us(cell)
            for number, merged in self.merge_changes(cells, changes, reached_us, computes=False).items():
                cells[number] = merged
        for number, merged in self.merge_changes(cells, (), later.updated_at_us).items():
            cells[number] = merged
        return cells

    def _replace_followers(
        self, cells: Sequence[Cell], changes: Sequence[ColumnChange], changed: dict[int, Cell], at_us: int
    ) -> dict[int, int]:
        """Replace the followers of each column that the post improves, and keep all other followers.

        Return, by column index, when the values of the improved columns were reached. A `set` of a follower always
        counts.
        """
        posted = {change.index: change for change in changes}
        improved: dict[int, int] = {}
        for index, followers in self._followers.items():
            if index in changed or self._is_better_run(index, cells, posted, at_us):
                improved[index] = self._find_reached_us(posted.get(index), cells[index], at_us)
            for follower in followers:
                change = posted.get(follower)
                if index in improved:
                    new = None if change is None else change.value
                elif change is not None and change.overwrite:
                    new = change.value
                else:
                    new = cells[follower]
                changed.pop(follower, None)
                if new != cells[follower]:
                    changed[follower] = new
        return improved

    def _find_reached_us(self, change: ColumnChange | None, stored: Cell, at_us: int) -> int:
        """Find when a post's value was reached. A sum is reached with the latest of the posts that changed it."""
        padding = None if change is None or change.overwrite else self._paddings[change.index]
        if change is None or padding is None or not padding.timed or not isinstance(stored, str):
            return at_us
        adds = self._columns[change.index].merge is Merge.SUM
        return max(at_us, padding.reached_us(stored)) if adds else at_us

    def _is_better_run(self, index: int, cells: Sequence[Cell], posted: dict[int, ColumnChange], at_us: int) -> bool:
        """Return whether the post repeats the value of a column merged by `max` or `min`, but with better ties.

        If time breaks ties, the earlier of two runs with equal values in all columns is the better one.
        """
        change, merge, padding = posted.get(index), self._columns[index].merge, self._paddings[index]
        if change is None or change.overwrite or merge not in (Merge.MAX, Merge.MIN):
            return False
        if change.value != self.decode_value(index, cells[index]):
            return False
        new, stored = [], []
        for tie in self._run_ties[index]:
            new.append(tie.place_of(posted[tie.number].value if tie.number in posted else None))
            stored.append(tie.place_of(cells[tie.number]))
        if padding is not None and padding.timed and isinstance(cell := cells[index], str):
            new.append(max(at_us, 0))
            stored.append(padding.reached_us(cell))
        return new < stored

    def _compute_quotient(
        self, quotient: Quotient, cells: Sequence[Cell], changed: dict[int, Cell], improved: dict[int, int], at_us: int
    ) -> None:
        index, padding = quotient.index, self._paddings[quotient.index]
        of, per = (self.decode_value(each, changed.get(each, cells[each])) for each in (quotient.of, quotient.per))
        value = quotient.divide(of, per)
        if value is not None:
            _check_range(self._columns[index], value)
        if value != self.decode_value(index, cells[index]):
            changed[index] = value if padding is None or value is None else padding.pad(value)
        if padding is None or not padding.timed or value is None:
            return
        times_us = [*self._read_times(quotient.timed, cells, improved)]
        if quotient.untimed or not times_us:
            times_us += self._read_times([index], cells, improved)
        if not times_us or any(each in changed for each in quotient.untimed):
            times_us.append(at_us)
        improved[index] = max(times_us)

    def _read_times(self, indexes: Iterable[int], cells: Sequence[Cell], improved: dict[int, int]) -> Iterator[int]:
        for index in indexes:
            padding = self._paddings[index]
            if index in improved:
                yield improved[index]
            elif padding is not None and isinstance(cell := cells[index], str):
                yield padding.reached_us(cell)

    def _order_ties(self, cells: Sequence[Cell], changed: dict[int, Cell], improved: dict[int, int]) -> None:
        """Write the times of better runs, and the tie columns' values after the post, into the cells that hold them."""
        if not changed and not improved:
            return
        after = [*cells]
        for index, cell in changed.items():
            after[index] = cell
        for index, padding in self._tied:
            cell = after[index]
            if not isinstance(cell, str):
                continue
            reached_us = improved[index] if index in improved else padding.reached_us(cell) if padding.timed else 0
            ties = [self.decode_value(tie.number, after[tie.number]) for tie in padding.tie_columns]
            ordered = padding.pad(padding.decode_value(cell), reached_us, ties)
            if ordered != cells[index]:
                changed[index] = ordered

    def _merged(self, column: ColumnSpec, before: StatValue | None, change: ColumnChange) -> StatValue | None:
        value = change.value
        if column.kind is ColumnKind.TEXT or not isinstance(value, int):
            return value
        if column.merge is Merge.SUM and not change.overwrite:
            value += before if isinstance(before, int) else 0
        if not column.min_scaled <= value <= column.max_scaled:
            _check_range(column, value, f"/{'set' if change.overwrite else 'stats'}/{column.name}")
        if change.overwrite or not isinstance(before, int):
            return value
        if column.merge is Merge.MAX:
            return max(before, value)
        if column.merge is Merge.MIN:
            return min(before, value)
        return value


def _check_range(column: ColumnSpec, value: int, pointer: str | None = None) -> None:
    if not column.min_scaled <= value <= column.max_scaled:
        found = format_decimal(value, column.scale)
        detail = f"{column.name} would be {found}, outside {describe_range(column)}"
        raise ValueOutOfRangeError(detail, pointer=pointer)

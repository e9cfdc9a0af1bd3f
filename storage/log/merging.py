"""The merge rules of columns: how a post changes the stored cells of a row. This module does no I/O."""

from collections.abc import Sequence

from storage.errors import ValueOutOfRangeError
from storage.records import BoardSpec, ColumnChange, ColumnKind, ColumnSpec, Merge, StatValue, format_decimal

from .cells import Cell, Padding, list_tie_columns


class Merger:
    def __init__(self, spec: BoardSpec) -> None:
        self._columns = spec.columns
        self._paddings = [Padding(spec, column) if column.sorted else None for column in spec.columns]
        self._only = self._paddings[0] if len(self._paddings) == 1 else None  # most boards have one column
        indexes = {column.name: index for index, column in enumerate(spec.columns)}
        self._followers: dict[int, list[int]] = {}  # by index of a column, the columns that take their values with it
        for index, column in enumerate(spec.columns):
            if column.of is not None:
                self._followers.setdefault(indexes[column.of], []).append(index)
        # By index of a column that others follow: those followers that decide between runs with equal values.
        self._run_ties = {
            index: [tie for tie in list_tie_columns(spec) if tie.number in followers]
            for index, followers in self._followers.items()
        }
        self._tied = [
            (index, padding)
            for index, padding in enumerate(self._paddings)
            if padding and (padding.tie_columns or (padding.timed and index in self._followers))
        ]

    def decode_stats(self, cells: Sequence[Cell]) -> list[StatValue | None]:
        """Return the values of a row in column order: scaled integers, text, or None."""
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

    def merge_changes(self, cells: list[Cell] | None, changes: Sequence[ColumnChange], at_us: int) -> dict[int, Cell]:
        """Return the new cells of the columns whose values a post changes, by column index.

        `cells`: the stored cells, which are not modified; None if there is no row yet. `at_us`: when the post's values
        were reached.

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
                if padding is None or not padding.timed or not self._is_earlier(change, before, stored, at_us):
                    continue  # the value is the same as before, so keep the time when it was first reached
            elif index in changed and cells is not None and after == self.decode_value(index, cells[index]):
                del changed[index]  # a merge and a `set` in the same post cancelled each other out
                continue
            changed[index] = self._pad(change, after, stored, at_us)
        if not self._followers and not self._tied:
            return changed
        stored_cells = [None] * len(self._columns) if cells is None else cells
        improved = self._replace_followers(stored_cells, changes, changed, at_us)
        self._order_ties(stored_cells, changed, improved, at_us)
        return changed

    def _pad(self, change: ColumnChange, after: StatValue, stored: Cell, at_us: int) -> Cell:
        """Return the cell of a value that a post brings. A sum is reached with the latest post that adds to it."""
        padding = self._paddings[change.index]
        if padding is None or not isinstance(after, int):
            return after
        adds = padding.timed and not change.overwrite and self._columns[change.index].merge is Merge.SUM
        return padding.pad(after, max(at_us, padding.reached_us(stored)) if adds and isinstance(stored, str) else at_us)

    def _is_earlier(self, change: ColumnChange, before: StatValue | None, stored: Cell, at_us: int) -> bool:
        """Return whether a post that arrives late shows that the best value was reached earlier than was known.

        If other columns follow, `_is_better_run` decides this.
        """
        index, padding = change.index, self._paddings[change.index]
        if change.overwrite or change.value != before or index in self._followers or padding is None:
            return False
        is_best = self._columns[index].merge in (Merge.MAX, Merge.MIN)
        return is_best and isinstance(stored, str) and max(at_us, 0) < padding.reached_us(stored)

    def _replace_followers(
        self, cells: Sequence[Cell], changes: Sequence[ColumnChange], changed: dict[int, Cell], at_us: int
    ) -> set[int]:
        """Replace the followers of each column that the post improves, and keep all other followers.

        Return the indexes of the improved columns. A `set` of a follower always counts.
        """
        posted = {change.index: change for change in changes}
        improved: set[int] = set()
        for index, followers in self._followers.items():
            if index in changed or self._is_better_run(index, cells, posted, at_us):
                improved.add(index)
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

    def _is_better_run(self, index: int, cells: Sequence[Cell], posted: dict[int, ColumnChange], at_us: int) -> bool:
        """Return whether the post repeats the value of a column that is merged by `max` or `min`, with better ties.

        If time breaks ties, the earlier of two runs that are equal in all columns is the better one.
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

    def _order_ties(self, cells: Sequence[Cell], changed: dict[int, Cell], improved: set[int], at_us: int) -> None:
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
            is_kept = padding.timed and (index in changed or index not in improved)
            reached_us = padding.reached_us(cell) if is_kept else at_us
            ties = [self.decode_value(tie.number, after[tie.number]) for tie in padding.tie_columns]
            ordered = padding.pad(padding.decode_value(cell), reached_us, ties)
            if ordered != cells[index]:
                changed[index] = ordered

    def _merged(self, column: ColumnSpec, before: StatValue | None, change: ColumnChange) -> StatValue:
        value = change.value
        if column.kind is ColumnKind.TEXT or isinstance(value, str):
            return value
        if column.merge is Merge.SUM and not change.overwrite:
            value += before if isinstance(before, int) else 0
        if not column.min_scaled <= value <= column.max_scaled:
            numbers = value, column.min_scaled, column.max_scaled
            found, low, high = (format_decimal(number, column.scale) for number in numbers)
            raise ValueOutOfRangeError(
                f"{column.name} would leave its range: {found} is not between {low} and {high}",
                pointer=f"/{'set' if change.overwrite else 'stats'}/{column.name}",
            )
        if change.overwrite or not isinstance(before, int):
            return value
        if column.merge is Merge.MAX:
            return max(before, value)
        if column.merge is Merge.MIN:
            return min(before, value)
        return value

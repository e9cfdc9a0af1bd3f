"""The merge rules of columns: how a post changes the stored cells of a row. This module does no I/O."""

from collections.abc import Sequence

from storage.errors import ValueOutOfRangeError
from storage.records import (
    BoardSpec,
    ColumnChange,
    ColumnKind,
    ColumnSpec,
    Merge,
    StatValue,
    describe_range,
    format_decimal,
)

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
        self._tied = [(index, each) for index, each in enumerate(self._paddings) if each and each.tie_columns]

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
                continue  # the value is the same as before, so keep the time when it was first reached
            if index in changed and after == (None if cells is None else self.decode_value(index, cells[index])):
                del changed[index]  # a merge and a `set` in the same post cancelled each other out
                continue
            changed[index] = padding.pad(after, at_us) if padding is not None and isinstance(after, int) else after
        if not self._followers and not self._tied:
            return changed
        stored_cells = [None] * len(self._columns) if cells is None else cells
        improved = self._replace_followers(stored_cells, changes, changed)
        self._order_ties(stored_cells, changed, improved, at_us)
        return changed

    def _replace_followers(
        self, cells: Sequence[Cell], changes: Sequence[ColumnChange], changed: dict[int, Cell]
    ) -> set[int]:
        """Replace the followers of each column that the post improves, and keep all other followers.

        Return the indexes of the improved columns. A `set` of a follower always counts.
        """
        posted = {change.index: change for change in changes}
        improved: set[int] = set()
        for index, followers in self._followers.items():
            if index in changed or self._is_better_run(index, cells, posted):
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

    def _is_better_run(self, index: int, cells: Sequence[Cell], posted: dict[int, ColumnChange]) -> bool:
        """Return whether the post repeats the value of a column that is merged by `max` or `min`, with better ties."""
        change, merge = posted.get(index), self._columns[index].merge
        if change is None or change.overwrite or merge not in (Merge.MAX, Merge.MIN):
            return False
        if change.value != self.decode_value(index, cells[index]):
            return False
        new, stored = [], []
        for tie in self._run_ties[index]:
            new.append(tie.place_of(posted[tie.number].value if tie.number in posted else None))
            stored.append(tie.place_of(cells[tie.number]))
        return new < stored

    def _order_ties(self, cells: Sequence[Cell], changed: dict[int, Cell], improved: set[int], at_us: int) -> None:
        """Write the values of the tie columns, as they are after the post, into the ranked cells that contain them."""
        if not changed:
            return
        after = [*cells]
        for index, cell in changed.items():
            after[index] = cell
        for index, padding in self._tied:
            cell = after[index]
            if not isinstance(cell, str):
                continue
            kept = padding.timed and index not in changed and index not in improved
            reached_us = padding.reached_us(cell) if kept else at_us
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
            found = format_decimal(value, column.scale)
            raise ValueOutOfRangeError(
                f"{column.name} would be {found}, outside {describe_range(column)}",
                pointer=f"/{'set' if change.overwrite else 'stats'}/{column.name}",
            )
        if change.overwrite or not isinstance(before, int):
            return value
        if column.merge is Merge.MAX:
            return max(before, value)
        if column.merge is Merge.MIN:
            return min(before, value)
        return value

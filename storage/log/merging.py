"""The merge rules of columns: how a post changes the stored cells of a row. This module does no I/O."""

from collections.abc import Sequence

from storage.errors import ValueOutOfRangeError
from storage.records import BoardSpec, ColumnChange, ColumnKind, ColumnSpec, Merge, StatValue, format_decimal

from .cells import Cell, Padding


class Merger:
    def __init__(self, spec: BoardSpec) -> None:
        self._columns = spec.columns
        self._paddings = [Padding(spec, column) if column.sorted else None for column in spec.columns]
        self._only = self._paddings[0] if len(self._paddings) == 1 else None  # most boards have one column

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
            if index in changed and cells is not None and after == self.decode_value(index, cells[index]):
                del changed[index]  # a merge and a `set` in the same post cancelled each other out
                continue
            changed[index] = padding.pad(after, at_us) if padding is not None and isinstance(after, int) else after
        return changed

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

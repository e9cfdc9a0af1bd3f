"""Converts ranked values to cells, the text in which they are stored. Cells sort as the values do, ties included.

A cell consists of digits: the scaled value (if `min` is negative, the value minus `min`), padded with zeros to the
width of the column's range. If equal values have an order, more digits follow: some for each tie column, and 16 for the
time, in microseconds, at which the value was reached. These hold a place, which is 0 for the best value or the earliest
time. A tie column's last place means that it has no value. On `high` columns, where a larger text is better, the digits
hold the last place minus the place.

    value 250, range 0 to 9999              "0250"
    the same, where time breaks ties        "0250" + 16 digits
    the same, with 41 in a column 0 to 98   "0250" + "58" + 16 digits, if low values of that column are best

The change log stores a row's ranked cells as one text, each at a fixed place (`RankedCells`). If the row has no value
in a column, that place holds a text that is worse than every cell. A change logged before a column was added has no
cell for this column, and does not affect its counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.records import Best, BoardSpec, ColumnSpec, StatValue, Ties

Cell = str | int | None
CellOf = tuple[str, str]  # a cell and its owner; the owner is empty unless the owner's place among equal cells matters

TIME_DIGITS = 16
TIME_LIMIT_US = 10**TIME_DIGITS - 1  # in the year 2286


class TieColumn(NamedTuple):
    """A column that orders entries whose values in a ranked column are equal, by their places: 0 for its best value."""

    number: int  # the index of the column
    best: int  # its best value, scaled
    sign: int  # 1 if low values are best, otherwise -1
    digits: int  # of a place
    last: int  # the place of an entry without a value

    def place_of(self, scaled: StatValue | None) -> int:
        return self.sign * (scaled - self.best) if isinstance(scaled, int) else self.last

    def value_at(self, place: int) -> int | None:
        """Decode the value with this place. This is the inverse of `place_of`."""
        return None if place == self.last else self.best + self.sign * place


def list_tie_columns(spec: BoardSpec) -> list[TieColumn]:
    found = []
    indexes = {column.name: index for index, column in enumerate(spec.columns)}
    for name in spec.tie_columns:
        column = spec.columns[indexes[name]]
        low, digits = column.best is Best.LOW, len(str(column.max_scaled - column.min_scaled + 1))
        best = column.min_scaled if low else column.max_scaled
        found.append(TieColumn(indexes[name], best, 1 if low else -1, digits, 10**digits - 1))
    return found


class Padding:
    """Converts the values of one ranked column to cells, and cells to values or to keys of a curve."""

    def __init__(self, spec: BoardSpec, column: ColumnSpec) -> None:
        self.min_scaled, self.max_scaled = column.min_scaled, column.max_scaled
        self.offset = max(0, -column.min_scaled)
        self.width = len(str(column.max_scaled + self.offset))  # digits of the value
        self.timed, self.high = spec.ties is Ties.EARLIEST, column.best is Best.HIGH
        self.tie_columns = [tie for tie in list_tie_columns(spec) if spec.columns[tie.number].name != column.name]
        self.cell_width = self.width + sum([tie.digits for tie in self.tie_columns]) + TIME_DIGITS * self.timed
        self.orders_equals = self.cell_width > self.width  # whether the digits after the value order equal values

    def pad(self, scaled: int, reached_us: int = 0, ties: Sequence[StatValue | None] | None = None) -> str:
        """Encode a value within the column's range as a cell. `reached_us` is ignored if time does not break ties.

        `ties`: the values of the tie columns. Without this argument, each of them counts as the best value.
        """
        text = str(scaled + self.offset).zfill(self.width)
        if self.tie_columns:
            if ties is None:
                ties = [tie.best for tie in self.tie_columns]
            for tie, value in zip(self.tie_columns, ties, strict=True):
                place = tie.place_of(value)
                text += str(tie.last - place if self.high else place).zfill(tie.digits)
        if not self.timed:
            return text
        reached_us = min(max(reached_us, 0), TIME_LIMIT_US)
        return text + str(TIME_LIMIT_US - reached_us if self.high else reached_us).zfill(TIME_DIGITS)

    def pad_arrival(self, scaled: int) -> str:
        """Encode the worst cell with this value: no tie column has a value, and it was reached in the far future."""
        return self.pad(scaled, TIME_LIMIT_US, [None] * len(self.tie_columns))

    def text_start(self, scaled: int) -> str:
        """Build the text that separates cells of values below `scaled`, which sort before it, from all other cells."""
        if scaled > self.max_scaled:
            return ":"  # greater than every digit
        return str(scaled + self.offset).zfill(self.width)

    def decode_value(self, cell: str) -> int:
        return int(cell[: self.width]) - self.offset

    def reached_us(self, cell: str) -> int:
        time = int(cell[-TIME_DIGITS:])
        return TIME_LIMIT_US - time if self.high else time

    def ties_of(self, cell: str) -> list[int | None]:
        found, start = [], self.width
        for tie in self.tie_columns:
            place, start = int(cell[start : start + tie.digits]), start + tie.digits
            found.append(tie.value_at(tie.last - place if self.high else place))
        return found

    def key_of_cell(self, cell: str) -> int:
        """Convert a cell to its key on a curve: an integer, smaller for a better cell."""
        return -int(cell) if self.high else int(cell)

    def keys_of_cells(self, cells: Iterable[str]) -> list[int]:
        sign = -1 if self.high else 1
        return [sign * int(cell) for cell in cells]

    def cell_of_key(self, key: int) -> str:
        return str(-key if self.high else key).zfill(self.cell_width)


# True: high values are best. The text " " sorts before every digit, and "~" sorts after every digit.
WORSE_THAN_ANY = {True: " ", False: "~"}


@dataclass(frozen=True, slots=True)
class CellSpan:
    """The place of a ranked column's cell in the text that `RankedCells` builds from a row."""

    start: int  # index of the cell's first character, 0-based
    width: int  # number of characters
    absent: str  # the text in this place if the row has no value
    high: bool  # whether high values are best

    def split_changes(self, pieces: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the column's cells before and after each change that was logged since the column was added.

        `pieces`: see `bundles.pieces_of`.
        """
        start, end = self.start, self.start + self.width
        for piece in pieces:
            if (half := len(piece) // 2) > start:
                yield piece[start:end], piece[half + start : half + end]


class RankedCells:
    """Joins the ranked cells of one row into a single text, and extracts individual cells from it."""

    def __init__(self, spec: BoardSpec) -> None:
        self._places: dict[int, CellSpan] = {}
        start = 0
        for index, column in enumerate(spec.columns):
            if not column.sorted:
                continue
            padding = Padding(spec, column)
            width = padding.cell_width
            self._places[index] = CellSpan(start, width, WORSE_THAN_ANY[padding.high] * width, padding.high)
            start += width
        self._absent = [(index, place.absent) for index, place in self._places.items()]
        self.others = [index for index in range(len(spec.columns)) if index not in self._places]
        self.indexes = list(self._places)
        self._only = self._absent[0] if len(self._absent) == 1 else None
        self.none = "".join(absent for _, absent in self._absent)  # the text of a row that does not exist

    def find_span(self, column_index: int) -> CellSpan:
        """Find the place of a column's cell. A text from before the column was added ends before this place."""
        return self._places[column_index]

    def join_cells(self, cells: Sequence[Cell]) -> str:
        if self._only is not None:  # most boards have one ranked column
            return cells[self._only[0]] or self._only[1]  # type: ignore[return-value]
        return "".join([cells[index] or absent for index, absent in self._absent])  # type: ignore[misc]

    def extract_cell(self, text: str, column_index: int) -> str | None:
        """Extract the cell of a column; return None if the row had no value or the board had no such column yet."""
        place = self._places[column_index]
        found = text[place.start : place.start + place.width]
        return None if not found or found == place.absent else found

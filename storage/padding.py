"""Values as padded text whose order is the order of the values, and back.

The rule: a cell is digits only, so its order is also that of its integer. It is the scaled value plus the column's
offset (0 unless `min` is negative), padded to the width of the column's range. On boards where the earliest of equal
values is better, 16 more digits hold the time reached in microseconds, inverted on `high` columns, whose better end is
the larger text.
"""

from __future__ import annotations

from dataclasses import dataclass

from .records import Best, BoardSpec, ColumnSpec, Ties

TIME_DIGITS = 16
TIME_LIMIT_US = 10**TIME_DIGITS - 1  # in the year 2286


@dataclass(frozen=True, slots=True)
class Padding:
    """The text form of one ranked column."""

    offset: int
    width: int  # digits of the value
    timed: bool
    high: bool
    min_scaled: int
    max_scaled: int

    @classmethod
    def of(cls, spec: BoardSpec, column: ColumnSpec) -> Padding:
        """The padding that the column's range and the board's tie rule ask for."""
        offset = -column.min_scaled if column.min_scaled < 0 else 0
        width = len(str(column.max_scaled + offset))
        return cls(
            offset=offset,
            width=width,
            timed=spec.ties is Ties.EARLIEST,
            high=column.best is Best.HIGH,
            min_scaled=column.min_scaled,
            max_scaled=column.max_scaled,
        )

    def pad(self, scaled: int, reached_us: int = 0) -> str:
        """The cell of a value within the column's range, reached at that time (ignored where equal values tie)."""
        text = str(scaled + self.offset).zfill(self.width)
        if not self.timed:
            return text
        reached_us = min(max(reached_us, 0), TIME_LIMIT_US)
        return text + str(TIME_LIMIT_US - reached_us if self.high else reached_us).zfill(TIME_DIGITS)

    def pad_arrival(self, scaled: int) -> str:
        """The worst cell with this value: where an arrival in the far future would stand."""
        return self.pad(scaled, TIME_LIMIT_US)

    def text_start(self, scaled: int) -> str:
        """The text before which every cell of a smaller value stands, and no cell of this or a larger one."""
        if scaled > self.max_scaled:
            return ":"  # follows every digit
        return str(scaled + self.offset).zfill(self.width)

    def value(self, cell: str) -> int:
        """The scaled value of a cell."""
        return int(cell[: self.width]) - self.offset

    def reached_us(self, cell: str) -> int:
        """The time reached that a timed cell holds."""
        time = int(cell[self.width :])
        return TIME_LIMIT_US - time if self.high else time

    def key(self, cell: str) -> int:
        """The cell as a curve's key: an integer, smaller is better."""
        return -int(cell) if self.high else int(cell)

    def cell_of_key(self, key: int) -> str:
        """The cell that has this key."""
        digits = self.width + (TIME_DIGITS if self.timed else 0)
        return str(-key if self.high else key).zfill(digits)

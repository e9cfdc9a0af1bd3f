"""How a board's totals are spread over rows, so that groups of posts in flight don't stand in line for one row.

The rule: a total is the sum of its shares; the first share has the total's own index, so a store without others is the
same store.
"""

from __future__ import annotations

from collections.abc import Iterable

from querybuilder import Dialect

_SHARES = 4
_STEP = 1_000_000  # past any column's index; those of other totals are small negative numbers


def stored_index(column_index: int, share: int) -> int:
    """The column_index under which a share of a total is stored."""
    return column_index + _STEP * share


def shares(dialect: Dialect) -> int:
    """How many shares a total has: where one process has the whole store nobody waits for a row."""
    return _SHARES if dialect.row_locks else 1


def stored_indexes(dialect: Dialect, column_index: int) -> list[int]:
    """The column_index of every share of a total."""
    return [stored_index(column_index, share) for share in range(shares(dialect))]


def summed(stored: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Totals by column index, from (stored index, count) of a board."""
    totals: dict[int, int] = {}
    for index, count in stored:
        column_index = (index + _STEP // 2) % _STEP - _STEP // 2
        totals[column_index] = totals.get(column_index, 0) + count
    return totals

"""Spreads each total of a board over several rows, so that concurrent transactions do not wait for one row's lock.

Each of these rows holds a share of the total, and the total is the sum of its shares. The first share is stored under
the index of the total itself. So the same read also works in a store where each total has only one share.
"""

from __future__ import annotations

from collections.abc import Iterable

from querybuilder import Dialect

_SHARES = 4
_STEP = 1_000_000  # greater than the index of every column; totals that belong to no column have small negative indexes


def stored_index(column_index: int, share: int) -> int:
    """Return the value of `column_index` under which a share of a total is stored."""
    return column_index + _STEP * share


def count_shares(dialect: Dialect) -> int:
    """Return how many shares a total has. On SQLite one share is enough, because only one writer runs at a time."""
    return _SHARES if dialect.row_locks else 1


def stored_indexes(column_index: int) -> list[int]:
    """Return all values of `column_index` under which a total of several shares is stored."""
    return [stored_index(column_index, share) for share in range(_SHARES)]


def add_up_shares(stored: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Add up the shares of a board's totals, and return the totals by column index.

    `stored` holds a pair for each share: the index under which it is stored, and its count.
    """
    totals: dict[int, int] = {}
    for index, count in stored:
        column_index = (index + _STEP // 2) % _STEP - _STEP // 2
        totals[column_index] = totals.get(column_index, 0) + count
    return totals

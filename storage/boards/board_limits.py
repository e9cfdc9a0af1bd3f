"""Limits on the number of all boards in a store, and on the number of boards with a table of their own.

On SQLite each new table makes every other connection parse the whole schema again at its next statement. The more
tables there are, the longer all readers have to wait: 7 ms with 1,000 tables, 95 ms with 6,000, 235 ms with 10,000. A
board in a shared table needs no new table if there is already a shared table for its columns.
"""

from __future__ import annotations

from functools import lru_cache

from querybuilder import Dialect, Statement, col, count, count_if, select
from storage.errors import TooManyBoardsError, TooManyOwnTablesError
from storage.schema.tables import BOARDS
from storage.store import Program


def check_board_limits(
    dialect: Dialect, *, new: int, own: bool, boards_max: int, own_tables_max: int | None
) -> Program[None]:
    """Check that the store may hold `new` more boards. Archived boards have no rows and are not counted.

    `own` says whether each new board gets a table of its own.

    Raises:
        TooManyBoardsError: the store would hold more than `boards_max` boards.
        TooManyOwnTablesError: on SQLite, more than `own_tables_max` boards would have a table of their own.
    """
    [[boards, own_tables]] = yield _counted(dialect).bind()
    if boards + new > boards_max:
        raise TooManyBoardsError(f"this store holds {boards} leaderboards; catalog_boards_max is {boards_max}")
    if own and dialect.parses_schema and own_tables_max is not None and own_tables + new > own_tables_max:
        raise TooManyOwnTablesError(
            f"this store holds {own_tables} leaderboards with tables of their own, and each new one is slower; "
            f'own_tables_max is {own_tables_max}. Use "table": "shared"',
            pointer="/table",
        )


@lru_cache
def _counted(dialect: Dialect) -> Statement:
    boards = select(count(), count_if(col("table_key").is_null())).from_(BOARDS)
    return boards.where(col("archived_at").is_null()).compile(dialect)

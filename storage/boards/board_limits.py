"""Limits on the number of all boards in a store, and on the number of boards with a table of their own.

On SQLite each new table makes every other connection parse the whole schema again at its next statement. The more
tables there are, the longer all readers have to wait: 7 ms with 1,000 tables, 95 ms with 6,000, 235 ms with 10,000. A
board in a shared table needs no new table if there is already a shared table for its columns.
"""

from __future__ import annotations

from querybuilder import INTEGER, col, count, count_if, if_dialect, null, select
from storage.errors import TooManyBoardsError, TooManyOwnTablesError
from storage.schema.tables import BOARDS
from storage.store import Program


def check_board_limits(*, new: int, own: bool, boards_max: int, own_tables_max: int | None) -> Program[None]:
    """Check that the store may hold `new` more boards. Archived boards have no rows and are not counted.

    `own` says whether each new board gets a table of its own.

    Raises:
        TooManyBoardsError: the store would hold more than `boards_max` boards.
        TooManyOwnTablesError: on SQLite, more than `own_tables_max` boards would have a table of their own.
    """
    [[boards, own_tables]] = yield _COUNTED.bind()
    if boards + new > boards_max:
        raise TooManyBoardsError(f"this store holds {boards} leaderboards; catalog_boards_max is {boards_max}")
    if own and own_tables is not None and own_tables_max is not None and own_tables + new > own_tables_max:
        raise TooManyOwnTablesError(
            f"this store holds {own_tables} leaderboards with tables of their own, and each new one is slower; "
            f'own_tables_max is {own_tables_max}. Use "table": "shared"',
            pointer="/table",
        )


_COUNTED = (
    select(count(), if_dialect("parses_schema", count_if(col("table_key").is_null()), null(INTEGER)))
    .from_(BOARDS)
    .where(col("archived_at").is_null())
    .prepared()
)

"""The tables that boards share: which there are, what they hold, and the rows that boards left behind in them.

The rule: a board leaves a shared table, or is emptied there, in one short transaction that gives its rows another name
or none. What they were is swept away later, in bounded steps; so are the post ids of what was deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from querybuilder import Dialect, Lock, asc, col, delete, insert, param, select, update

from .layouts import ROWS_KEY, Layout, Physical, create_rows, shared_table, widen_rows
from .migrate import DROPPED_ROWS, POST_IDS, SHARED_TABLES, next_in
from .store import Program

_IDS = 0  # no table has this key: what is left behind are post ids
_BETWEEN = ","  # stands in no column's name


def table_for(dialect: Dialect, columns: Sequence[Physical]) -> Program[int]:
    """The key of the table for boards with these columns, made where there is none."""
    layout = _BETWEEN.join(column.name for column in columns)
    found = yield (
        select(col("table_key"))
        .from_(SHARED_TABLES)
        .where(col("layout").eq(param("layout")))
        .build(dialect, layout=layout)
    )
    if found:
        return int(found[0][0])
    table_key = yield from next_in(dialect, "board_key")
    yield insert(SHARED_TABLES).values(table_key=table_key, layout=layout, columns=layout).build(dialect)
    for query in create_rows(Layout(shared_table(table_key), True, tuple(columns))):
        yield query.build(dialect)
    return table_key


def widen_table(dialect: Dialect, table_key: int, added: Sequence[Physical]) -> Program[None]:
    """Add those columns that the table does not have yet: another board may have had them added."""
    found = select(col("columns")).from_(SHARED_TABLES).where(col("table_key").eq(param("key"))).locked(Lock.UPDATE)
    [[columns]] = yield found.build(dialect, key=table_key)
    names = columns.split(_BETWEEN)
    missing = [column for column in added if column.name not in names]
    if missing:
        for query in widen_rows(Layout(shared_table(table_key), True, tuple(missing)), missing):
            yield query.build(dialect)
        now = _BETWEEN.join([*names, *(column.name for column in missing)])
        yield (
            update(SHARED_TABLES)
            .set(columns=now)
            .where(col("table_key").eq(param("key")))
            .build(dialect, key=table_key)
        )


def leave_rows(dialect: Dialect, table_key: int, rows_key: int) -> Program[None]:
    """Nobody reads these rows any more: note that they are to be swept away."""
    yield insert(DROPPED_ROWS).values(table_key=table_key, rows_key=rows_key).build(dialect)


def leave_post_ids(dialect: Dialect, key: int) -> Program[None]:
    """Nobody asks for the post ids of this board or family any more."""
    yield from leave_rows(dialect, _IDS, key)


def sweep_rows(dialect: Dialect, *, rows_max: int) -> Program[int]:
    """Delete rows that were left behind, so many at most; answers how many, 0 where there are none left."""
    first = select(col("table_key"), col("rows_key")).from_(DROPPED_ROWS).limit(1)
    left = yield first.order_by(asc(col("table_key")), asc(col("rows_key"))).build(dialect)
    if not left:
        return 0
    table_key, rows_key = left[0]
    table, key, row = (
        (POST_IDS, col("board_key"), col("post_hash"))
        if table_key == _IDS
        else (shared_table(table_key), col(ROWS_KEY), col("owner"))
    )
    theirs = key.eq(param("rows_key"))
    some = select(row).from_(table).where(theirs).order_by(asc(row)).limit(param("rows_max"))
    [[gone]] = yield delete(table).where(theirs, row.in_(some)).build(dialect, rows_key=rows_key, rows_max=rows_max)
    if gone < rows_max:
        yield (
            delete(DROPPED_ROWS)
            .where(col("table_key").eq(param("table_key")), col("rows_key").eq(param("rows_key")))
            .build(dialect, table_key=table_key, rows_key=rows_key)
        )
    return max(1, int(gone))  # also where none was left of a board: another may have some

"""Finds and widens the tables that boards share, and deletes unused rows from these tables.

    board deleted or emptied ── note_dropped_rows: a row in `dropped_rows` ──> sweep_rows, by a job, some rows at a time

A board outside a family is deleted, emptied, moved or archived in one short transaction, after which nothing refers to
the rows that it had in a shared table. `sweep_rows` later deletes the rows with this `rows_key` in bounded steps. It
also deletes the post ids of deleted boards and families, and the league data of those and of archived boards.
"""

from collections.abc import Sequence

from querybuilder import Lock, asc, col, delete, insert, param, select, update
from storage.leaves.row_tables import ROWS_KEY, Layout, RowColumn, add_columns, create_row_table, shared_table
from storage.schema.sequences import take_keys
from storage.schema.tables import DROPPED_ROWS, POST_IDS, SEATS, SHARED_TABLES, STANDINGS
from storage.store import Program, in_partition

BETWEEN = ","  # separates names of columns; no name contains it
# The columns by which rows of these tables are swept: those of a key together, in the order of the second column.
_SWEPT = {POST_IDS: ("leaf_key", "post_hash"), SEATS: ("leaf_key", "cohort"), STANDINGS: ("family_key", "owner")}


def find_or_create_table(columns: Sequence[RowColumn], partition: int) -> Program[int]:
    """Find the key of a partition's shared table for boards with these columns, creating the table if necessary."""
    found = yield from find_table(columns, partition)
    if found is not None:
        return found
    layout = BETWEEN.join(column.name for column in columns)
    table_key = yield from take_keys()
    made = insert(SHARED_TABLES).values(table_key=table_key, partition=partition, layout=layout, columns=layout)
    yield made.bind()
    yield from in_partition(partition, create_row_table(Layout(shared_table(table_key), True, tuple(columns))))
    return table_key


def find_table(columns: Sequence[RowColumn], partition: int) -> Program[int | None]:
    """Find the key of a partition's shared table for boards with these columns, or return None if there is none."""
    layout = BETWEEN.join(column.name for column in columns)
    same = (col(name).eq(param(name)) for name in ("partition", "layout"))
    found = yield select(col("table_key")).from_(SHARED_TABLES).where(*same).bind(partition=partition, layout=layout)
    return int(found[0][0]) if found else None


def widen_table(table_key: int, added: Sequence[RowColumn]) -> Program[None]:
    """Add columns to a shared table, skipping any that the table already has because of another board."""
    found = select(col("columns")).from_(SHARED_TABLES).where(col("table_key").eq(param("key"))).locked(Lock.UPDATE)
    [[columns]] = yield found.bind(key=table_key)
    names = columns.split(BETWEEN)
    missing = [column for column in added if column.name not in names]
    if missing:
        yield from add_columns(Layout(shared_table(table_key), True, tuple(missing)), missing)
        now = BETWEEN.join([*names, *(column.name for column in missing)])
        yield (update(SHARED_TABLES).set(columns=now).where(col("table_key").eq(param("key"))).bind(key=table_key))


def note_dropped_rows(table: str, rows_key: int) -> Program[None]:
    """Record in `dropped_rows` that nothing uses the rows with this key any longer, so that `sweep_rows` deletes them.

    `table` is a shared table or one of `_SWEPT`. For the latter, `rows_key` is the key of the leaf or family that the
    rows belonged to.
    """
    note = insert(DROPPED_ROWS).values(table_name=table, rows_key=rows_key)
    yield note.on_conflict("table_name", "rows_key").do_nothing().bind()


def sweep_rows(*, rows_max: int, only: tuple[str, int] | None = None) -> Program[int]:
    """Delete at most about `rows_max` of one board's unused rows. `only` restricts this to one table and key.

    Return 0 if `dropped_rows` names no such rows. Otherwise return the number of deleted rows, or 1 if none was
    deleted, so that the caller calls again.
    """
    first = select(col("table_name"), col("rows_key")).from_(DROPPED_ROWS).limit(1)
    if only is not None:
        first = first.where(col("table_name").eq(only[0]), col("rows_key").eq(only[1]))
    ordered = first.order_by(asc(col("table_name")), asc(col("rows_key")))
    # Lock the row of `dropped_rows`, so that only one sweep of these keys runs at a time. Otherwise the slower of two
    # sweeps could delete rows that a new copy of the board has stored under the same keys after the faster sweep.
    left = yield ordered.locked(Lock.UPDATE).bind()
    if not left:
        return 0
    table, rows_key = left[0]
    key, row = map(col, _SWEPT.get(table, (ROWS_KEY, "owner")))
    theirs = key.eq(param("rows_key"))
    some = select(row).from_(table).where(theirs).order_by(asc(row)).limit(param("rows_max"))
    [[gone]] = yield delete(table).where(theirs, row.in_(some)).bind(rows_key=rows_key, rows_max=rows_max)
    if gone < rows_max:
        yield (
            delete(DROPPED_ROWS)
            .where(col("table_name").eq(param("table")), col("rows_key").eq(param("rows_key")))
            .bind(table=table, rows_key=rows_key)
        )
    return max(1, int(gone))

"""Opening a store: its schema, and numbers of transactions that go on where those of another server ended.

PostgreSQL numbers transactions by cluster. A store that pg_restore has put into another one holds changes, marks and
published numbers that would be of the future there: for years the journal would show none of them, and no curve could
tell what it counts. So they are numbered on from the highest number there is: every number stays what it was.

The rule: what a snapshot sees was written by transactions below its own end. So a number above it came from elsewhere,
and in a store that never moved there is none.
"""

from __future__ import annotations

import structlog

from querybuilder import (
    TEXT,
    Column,
    Dialect,
    Lock,
    Term,
    coalesce,
    col,
    create_table,
    insert,
    max_,
    next_transaction,
    numbered_from,
    param,
    plus,
    renumber,
    select,
)

from .lease_tables import LEASE_JOURNAL
from .migrate import CHANGE_LOG, CURVES, LIVE_MARK, META, PRUNED, SEQUENCES, migrate
from .postgres import PostgresStore
from .store import Program, Store

log = structlog.get_logger(__name__)
_BEFORE = "transactions_before"  # this server's: what is added to its numbers
_POSITION = "position"
_ONE = 1


async def bring_up(store: Store) -> str:
    """Bring a store to this version's schema and its numbers on; answers the store's secret salt (hex).

    Raises:
        SchemaTooNew: see `migrate`.
    """
    if not isinstance(store, PostgresStore):
        return await store.write(lambda: migrate(store.dialect))
    plain = store.dialect
    before = await store.write(lambda: _known(plain))
    if before:
        store.number_by(numbered_from(plain, before))
    salt = await store.write(lambda: migrate(store.dialect))
    moved = await store.write(lambda: _moved(plain, before))
    if moved != before:
        log.warning("store_was_restored", transactions_before=moved)
        store.number_by(numbered_from(plain, moved))
    return salt


def _known(dialect: Dialect) -> Program[int]:
    """How many are counted before this server's transactions."""
    table = create_table(META).column("name", TEXT).column("content", TEXT).primary_key("name").if_not_exists()
    yield table.build(dialect)
    return (yield from _stored(dialect))


def _stored(dialect: Dialect) -> Program[int]:
    rows = yield select(col("content")).from_(META).where(col("name").eq(_BEFORE)).build(dialect)
    return int(rows[0][0]) if rows else 0


def _moved(plain: Dialect, before: int) -> Program[int]:
    """How many have to be counted before: more than is known where the store comes from a server that had had more."""
    if not (yield from _future(plain, before)):
        return before
    # One process does it, those that start beside it wait here and find it done.
    yield select(col("content")).from_(META).where(col("name").eq("schema_version")).locked(Lock.UPDATE).build(plain)
    before = yield from _stored(plain)
    highest = yield from _future(plain, before)
    if not highest:
        return before
    dialect = numbered_from(plain, highest)
    row = insert(META).values(name=param("name"), content=param("content")).on_conflict("name").overwrite()
    yield row.build(dialect, name=_BEFORE, content=str(highest))
    for table in (CHANGE_LOG, LEASE_JOURNAL):
        yield renumber(table, _POSITION).build(dialect)
    return highest


def _future(plain: Dialect, before: int) -> Program[int]:
    """The highest number of the store, if this server can't have given it; else 0."""
    dialect = numbered_from(plain, before) if before else plain
    rows = yield select(next_transaction(), *_highest()).build(dialect)
    following, *numbers = rows[0]
    highest = max(numbers)
    return highest if highest > following else 0


def _highest() -> list[Term]:
    """Numbers that every one to come has to be above; one more than that of a change."""

    def of(table: str, column: Column) -> Term:
        return coalesce(select(max_(column)).from_(table).scalar(), 0)

    pruned = coalesce(select(col("next")).from_(SEQUENCES).where(col("name").eq(PRUNED)).scalar(), 0)
    rows = [plus(of(table, col(_POSITION)), _ONE) for table in (CHANGE_LOG, LEASE_JOURNAL)]
    return [*rows, of(LIVE_MARK, col(_POSITION)), of(CURVES, col("mark_position")), pruned]

"""Prepares a store when a process starts: it creates the schema of a new store and detects a store that was restored.

PostgreSQL numbers transactions separately in each cluster (server). If pg_restore has copied a store to another
cluster, the stored numbers of changes and marks may be higher than the new cluster's numbers. So may the numbers that
the journal has published. Such changes would seem to come from future transactions. For years the journal would show
none of them, and no curve could tell which changes it counts.

So the store adds a constant to the numbers of the new cluster, which then continue from the highest stored number. The
stored numbers stay as they are.

A snapshot ends at a transaction number, and sees only writes of transactions with lower numbers. So if a stored number
is higher than the snapshot's end, it comes from another cluster, and the store was restored.
"""

import structlog

from querybuilder import (
    Dialect,
    Lock,
    coalesce,
    col,
    insert,
    max_,
    next_transaction,
    numbered_from,
    param,
    plus,
    renumber,
    select,
)
from storage.schema.creation import create_meta_table, create_schema
from storage.schema.lease_tables import LEASE_JOURNAL
from storage.schema.tables import META
from storage.store import Program, Store

from .postgres import PostgresStore

log = structlog.get_logger(__name__)
_BEFORE = "transactions_before"  # the name, in `meta`, of the constant that is added to this cluster's numbers
_POSITION = "position"
_ONE = 1


async def prepare_store(store: Store) -> str:
    """Create a new store's schema, bring the transaction numbers up to date, and return the secret salt (hex).

    Raises:
        SchemaUnknownError, StoreDamagedError: see `create_schema`.
    """
    if not isinstance(store, PostgresStore):
        return await store.write(lambda: create_schema(store.dialect))
    plain = store.dialect
    before = await store.write(_read_offset)
    if before:
        store.set_dialect(numbered_from(plain, before))
    salt = await store.write(lambda: create_schema(store.dialect))
    moved = before
    if await store.read(lambda: _find_foreign_number(0)):
        moved = await store.write(lambda: _raise_offset(plain, before))
    if moved != before:
        log.warning("store_was_restored", transactions_before=moved)
        store.set_dialect(numbered_from(plain, moved))
    return salt


def _read_offset() -> Program[int]:
    """Return the constant that the store adds to this cluster's transaction numbers, or 0 if none is stored."""
    yield create_meta_table().bind()
    return (yield from _stored())


def _stored() -> Program[int]:
    rows = yield select(col("content")).from_(META).where(col("name").eq(_BEFORE)).bind()
    return int(rows[0][0]) if rows else 0


def _raise_offset(plain: Dialect, known: int) -> Program[int]:
    """Return the constant that this cluster's numbers need. If the stored one is too small, store a larger one.

    `known`: the constant of the store's current dialect.
    """
    # Only one process stores the constant. Other processes that start at the same time wait for this lock, and then
    # find the constant. The lock comes before the first read, because renumbering a table waits for all its readers.
    yield select(col("content")).from_(META).where(col("name").eq("schema_version")).locked(Lock.UPDATE).bind()
    before = yield from _stored()
    highest = yield from _find_foreign_number(before - known)
    if not highest:
        return before
    row = insert(META).values(name=param("name"), content=param("content")).on_conflict("name").overwrite()
    yield row.bind(name=_BEFORE, content=str(highest))
    yield renumber(LEASE_JOURNAL, _POSITION, numbered_from(plain, highest)).bind()
    return highest


def _find_foreign_number(more: int) -> Program[int]:
    """Return the highest number in the store if this cluster can't have assigned it, else 0.

    `more` is added to the numbers of the store's current dialect.
    """
    stored = coalesce(select(max_(col(_POSITION))).from_(LEASE_JOURNAL).scalar(), 0)
    [[following, highest]] = yield select(next_transaction(), plus(stored, _ONE)).bind()
    return highest if highest > following + more else 0

"""Creates the tables of a new store, and refuses a store whose schema this version does not know.

    create_schema               control partition and partition 0, both in the schema of the connection
    create_schema_apart         control partition and further partitions, each in a database schema of its own
    add_partition               one more partition, in a database schema of its own

The table `meta` records how many partitions there are. A transaction that must reach all of them calls
`hold_partitions`, so that none is added in the meantime.
"""

import secrets
from collections.abc import Callable, Iterable
from typing import TypeVar

from querybuilder import (
    Dialect,
    Lock,
    Query,
    col,
    create_schema_named,
    distribute_new_schemas,
    insert,
    param,
    select,
    update,
)
from storage.errors import (
    SchemaUnknownError,
    StoreCopyError,
    StoreDamagedError,
    StoreExistsError,
    TooManyPartitionsError,
)
from storage.store import CONTROL, Program, Store, in_partition

from .placement import BOARD_TABLES, CONTROL_TABLES, TABLES_OF_BOTH
from .tables import LOG_COUNTER, META, META_TABLE, SCHEMA_VERSION, SEQUENCES

T = TypeVar("T")

PARTITIONS_MAX = 64
_PARTITIONS = "partitions"
# Rows of `meta`: the store is being copied, was copied, or is a copy that is not complete. See `storage.store_copy`.
COPYING_TO, COPIED_TO, COPIED_FROM = "copying_to", "copied_to", "copied_from"
_REFUSALS = {
    COPYING_TO: "this store is being copied: serve it with --read-only, or first run `rankcurve store reopen`",
    COPIED_TO: "another store took the place of this one: serve that, or first run `rankcurve store reopen`",
    COPIED_FROM: "this store is a copy that is not complete: run the same `rankcurve store copy` again",
}


async def prepare_store(store: Store) -> str:
    """Create the tables unless they exist. Return the salt (hex). Raises the errors of `find_salt`."""
    # If the control partition has its own tables, the store exists already: an operator's command has created it.
    salt = await store.read(find_salt) if is_apart(store.dialect) else None
    return await store.write(create_schema) if salt is None else salt


def is_apart(dialect: Dialect) -> bool:
    """Return whether the control partition has its own tables rather than sharing those of partition 0."""
    return dialect.schema_of(META) is not None


def create_schema(*, if_missing: bool = True) -> Program[str]:
    """Create all tables of a store with one partition, unless the store exists, and return its secret salt (hex).

    Raises:
        StoreExistsError: the store exists already, and `if_missing` is not set.
        SchemaUnknownError: a version of the service with another schema wrote this store.
        StoreDamagedError: the table `meta` does not say which schema the store has.
    """
    yield META_TABLE.bind()
    found = yield from find_salt()
    if found is not None and not if_missing:
        raise StoreExistsError
    if found is not None:
        return found
    salt = yield from _create_control(partitions=1)
    yield from _create_board_tables()
    return salt


def create_schema_apart(partitions: int, *, schema_of: Callable[[int], str], distributed: bool) -> Program[str]:
    """Create a store that keeps each partition in its own database schema, and return its secret salt (hex).

    `schema_of` returns the schema name for a partition. If `distributed` is set, Citus places each schema on one of its
    nodes.
    """
    numbers = [CONTROL, *range(partitions)]
    if distributed:
        yield distribute_new_schemas().bind()
    for number in numbers:
        yield create_schema_named(schema_of(number)).bind()
    yield META_TABLE.bind()
    salt = yield from _create_control(partitions=partitions)
    for number in numbers[1:]:
        yield from in_partition(number, _create_partition())
    return salt


def add_partition(
    *, schema_of: Callable[[int], str], distributed: bool, fill: Callable[[int], Program[None]]
) -> Program[int]:
    """Add a partition and return its number. The program `fill(number)` copies the list of hidden owners to it.

    Raises TooManyPartitionsError if the store has `PARTITIONS_MAX` partitions.
    """
    number = yield from hold_partitions(lock=Lock.UPDATE)
    if number >= PARTITIONS_MAX:
        raise TooManyPartitionsError
    if distributed:
        yield distribute_new_schemas().bind()
    yield create_schema_named(schema_of(number)).bind()
    yield from in_partition(number, _create_partition())
    yield from fill(number)
    yield _SET_META.bind(name=_PARTITIONS, content=str(number + 1))
    return number


def read_meta() -> Program[dict[str, str]]:
    return {row[0]: row[1] for row in (yield select(col("name"), col("content")).from_(META).bind())}


def find_salt(*, reads_only: bool = False) -> Program[str | None]:
    """Find the store's salt, or return None if there is no store. With `reads_only`, the caller promises not to write.

    Raises:
        SchemaUnknownError, StoreDamagedError: this version can't use the store.
        StoreCopyError: a copy from or to the store rules out this use, see `storage.store_copy`.
    """
    meta = yield from read_meta()
    for mark in meta.keys() & _REFUSALS.keys():
        if mark != COPYING_TO or not reads_only:
            raise StoreCopyError(f"{_REFUSALS[mark]} ({meta[mark]})")
    return check_meta(meta) if meta else None


def check_meta(meta: dict[str, str]) -> str:
    """Check that this version can use a store with these rows in its table `meta`, and return the salt among them.

    Raises SchemaUnknownError, StoreDamagedError.
    """
    if not (meta.get("schema_version", "").isdecimal() and meta.get("salt")):
        raise StoreDamagedError("the table meta, which describes the store, is damaged: restore a backup")
    version = int(meta["schema_version"])
    if version != SCHEMA_VERSION:
        raise SchemaUnknownError(f"the store has schema {version}, this version knows {SCHEMA_VERSION}")
    return meta["salt"]


def hold_partitions(*, lock: Lock = Lock.SHARE) -> Program[int]:
    """Count the store's partitions, and keep other transactions from adding one until this transaction ends."""
    [[partitions]] = yield _find_meta.locked(lock).bind(name=_PARTITIONS)
    return int(partitions)


def count_partitions() -> Program[int]:
    [[partitions]] = yield _COUNT.bind(name=_PARTITIONS)
    return int(partitions)


def in_each_partition(
    make: Callable[[], Program[T]], concerns: Callable[[int], bool] = lambda partition: True
) -> Program[dict[int, T]]:
    """Run a program in each partition that `concerns` accepts, lowest number first, and return results by partition."""
    results: dict[int, T] = {}
    for partition in filter(concerns, range((yield from count_partitions()))):
        results[partition] = yield from in_partition(partition, make())
    return results


_named = col("name").eq(param("name"))
_find_meta = select(col("content")).from_(META).where(_named)
_COUNT = _find_meta.prepared()
_SET_META = update(META).set(content=param("content")).where(_named).prepared()


def _create_control(*, partitions: int) -> Program[str]:
    yield from _run((*CONTROL_TABLES[1:], *TABLES_OF_BOTH))
    yield insert(SEQUENCES).values(name="lease_events", next=0).bind()
    salt = secrets.token_hex(16)
    for name, content in (("schema_version", str(SCHEMA_VERSION)), ("salt", salt), (_PARTITIONS, str(partitions))):
        yield insert(META).values(name=name, content=content).bind()
    return salt


def _create_partition() -> Program[None]:
    yield from _run(TABLES_OF_BOTH)
    yield from _create_board_tables()


def _create_board_tables() -> Program[None]:
    yield from _run(BOARD_TABLES)
    yield insert(LOG_COUNTER).values(counter_key=0, next=1, changed_at=0, pruned_before=0, facts=0).bind()


def _run(queries: Iterable[Query]) -> Program[None]:
    for query in queries:
        yield query.bind()

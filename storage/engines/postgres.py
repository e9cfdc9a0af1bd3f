"""`PostgresStore` keeps a store in a PostgreSQL database that many processes may share, using the driver asyncpg.

Each `PostgresStore` object runs programs for one partition. All objects for the same store share its connections.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import secrets
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import asyncpg
import msgspec
import structlog

from config.settings import Settings
from querybuilder import Bound, Built, Dialect
from storage.errors import StoreBusyError, StoreExistsError, StoreReadOnlyError, StoreUnsupportedError
from storage.meter import NO_METER, Meter, report_statements
from storage.schema.creation import add_partition, create_schema_apart
from storage.store import CONTROL, Program, Rows, StoreSize

from .database_nodes import Node, Nodes, Reach
from .partitions import DefinitionNeededError, Partitions, ShardAwayError
from .postgres_connection import DRIVER_ERRORS, Connector, PostgresConnection, is_lost

T = TypeVar("T")
log = structlog.get_logger(__name__)

VERSION_MIN = 12
_SHARD_MOVED = (asyncpg.DivisionByZeroError, asyncpg.UndefinedTableError)  # of a statement that reads shards


class PostgresStore:
    """A `Store` on one PostgreSQL database. Open it with `PostgresStore.open`."""

    sole_writer = False

    def __init__(self, url: str, limits: Settings, meter: Meter) -> None:
        self._meter = meter
        self._nodes = Nodes(url, limits, meter)
        self._partitions = Partitions()
        self._partition = CONTROL  # for which this object runs programs
        self._schema: str | None = None  # of this partition
        self.dialect: Dialect = self._partitions.dialect_of(CONTROL)
        self._views: dict[int, PostgresStore] = {CONTROL: self}
        self.damaged = asyncio.Event()  # never set: a server reports damaged files in the server's own log
        self.writes_at_once = limits.writer_connections
        self._read_only = limits.read_only

    @classmethod
    async def open(cls, url: str, limits: Settings, *, meter: Meter = NO_METER) -> PostgresStore:
        """Create the connection pools, check the server over one connection, and return the store.

        Raises:
            StoreUnsupportedError: the URL cannot be read, the server is too old or refuses this user or database, or
                the database can't hold every text, or a connection pooler lends sessions for single transactions only.
            StoreAwayError: the server cannot be reached.
        """
        store = cls(url, limits, meter)
        try:
            entry = store._nodes.entry.writers
            await entry.run(partial(_check_sessions, url, limits))
            await entry.run(_check_server)
            store._lay_out(await entry.run(Partitions.find))
            if store._partitions.distributed:
                await store._nodes.distribute()
        except BaseException as error:
            await store.close()
            if isinstance(error, ValueError):  # the driver can't parse the URL; its message quotes the URL, so hide it
                raise StoreUnsupportedError("the address of the store cannot be parsed") from None
            refused = isinstance(error, StoreBusyError) and error.__cause__ is not None and not is_lost(error.__cause__)
            if refused:
                raise StoreUnsupportedError(str(error)) from error
            raise
        return store

    def _lay_out(self, partitions: Partitions) -> None:
        self._partitions, self.dialect = partitions, partitions.dialect_of(CONTROL)
        self._schema = partitions.schema_of(CONTROL)
        self._views = {CONTROL: self}

    async def has_citus(self) -> bool:
        return await self._nodes.entry.light.run(PostgresConnection.has_citus)

    async def create_apart(self, partitions: int, *, distributed: bool = False) -> str:
        """Create a control partition and `partitions` others, each in its own schema, and return the store's salt.

        If `distributed` is set, Citus spreads the schemas over its nodes.

        Raises:
            StoreExistsError: there is already a store.
        """
        if self._partitions.exists:
            raise StoreExistsError
        layout = dataclasses.replace(self._partitions, apart=True, distributed=distributed, count=partitions)
        self._lay_out(layout)
        if distributed:
            await self._nodes.distribute()
        made = partial(create_schema_apart, partitions, schema_of=layout.schema_named, distributed=distributed)
        return await self.write(made)

    async def add_partition(self, fill: Callable[[int], Program[None]]) -> int:
        """Add a partition in its own schema and return its number.

        The program `fill(number)` copies the list of hidden owners to the new partition. Raises TooManyPartitionsError
        if the limit of partitions is reached.
        """
        layout = self._partitions
        added = partial(add_partition, schema_of=layout.schema_named, distributed=layout.distributed, fill=fill)
        number = await self.write(added)
        self.at(number)
        return number

    @property
    def partitions(self) -> int:
        return self._partitions.count

    def at(self, partition: int) -> PostgresStore:
        view = self._views.get(partition)
        if view is None:
            # Another process may have added the partition.
            self._partitions.count = max(self._partitions.count, partition + 1)
            dialect = self._partitions.dialect_of(partition)
            view = self if dialect is self.dialect else copy.copy(self)
            view.dialect, view._schema = dialect, self._partitions.schema_of(partition)
            view._partition = partition
            self._views[partition] = view
            self._nodes.renew()
        return view

    def _build(self, query: Bound) -> Built:
        if query.partition is None:
            return query.build(self.dialect)
        return query.build(self._partitions.dialect_of(query.partition))

    def _build_for_shards(self, query: Bound, built: Built, node: Node) -> Built | None:
        """Build a query that reads the shards of its tables on this node; return None if it has to go through Citus."""
        if node.placements is None or built.schema is None or self._nodes.find_node(built.schema) is not node:
            return None
        number = self._partition if query.partition is None else query.partition
        dialect = self._partitions.dialect_of(number, self._nodes.find_shard)
        try:
            return msgspec.structs.replace(built, sql=query.query.compile(dialect).sql)
        except ShardAwayError:
            return None

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        node = self._nodes.find_node(self._schema)
        placements = node.placements

        async def attempt(connection: PostgresConnection, *, through_citus: bool = False) -> T:
            begun = set() if placements is None else await placements.begin(connection)
            refusal: Exception | None = None
            with self._nodes.reach(node, connection.terminate) as reach:
                await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    result = await self._drive(connection, program(), reach, shards_on=None if through_citus else node)
                except DRIVER_ERRORS as error:
                    if isinstance(error, _SHARD_MOVED) and placements is not None and not through_citus:
                        raise ShardAwayError from error
                    raise
                except Exception as error:  # check for a move first: a moved partition looks empty, the possible cause
                    refusal = error
                await connection.execute("COMMIT")
            if placements is not None and reach.uses_citus:
                try:
                    await placements.end(connection, begun)
                except DRIVER_ERRORS:
                    self._nodes.renew()
                    raise
            if refusal is not None:
                raise refusal
            return result

        pool = node.heavy if heavy else node.light
        try:
            return await pool.run(attempt)
        except ShardAwayError:
            self._nodes.renew()
            return await pool.run(partial(attempt, through_citus=True))

    async def read_query(self, query: Bound) -> Rows:
        """Read the rows of one query without BEGIN and COMMIT, which saves two round trips."""
        built = self._build(query)
        node = self._nodes.find_node(built.schema)
        for_shards = self._build_for_shards(query, built, node)

        async def attempt(connection: PostgresConnection) -> Rows:
            if for_shards is not None:
                try:
                    return await self._run(connection, for_shards)
                except _SHARD_MOVED:
                    self._nodes.renew()
            return await self._run(connection, built)

        return await node.light.run(attempt)

    async def count_other_writers(self) -> int:
        """Count the sessions of other processes that may write to this database.

        Call this when no other read has run, so that this process has only the session that the call uses.
        """
        return await self._nodes.entry.writers.run(PostgresConnection.count_other_writers)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        if self._read_only:
            raise StoreReadOnlyError

        async def attempt(connection: PostgresConnection, *, node: Node, defines: bool) -> T:
            # If another node becomes unreachable, the connection's own node still works, so let it cancel the
            # statement. If only the connection ended, the transaction would keep its locks.
            with self._nodes.reach(node, connection.cancel_statement) as reach:
                if defines and self._nodes.coordinator is not None:
                    reach.go_everywhere()
                await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                result = await self._drive(connection, program(), reach, defines=defines)
                await node.writers.commit(connection)
            return result

        coordinator = self._nodes.coordinator
        node = self._nodes.find_node(self._schema)
        try:
            return await node.writers.run(partial(attempt, node=node, defines=coordinator is None))
        except DefinitionNeededError:
            assert coordinator is not None
            result = await coordinator.writers.run(partial(attempt, node=coordinator, defines=True))
            self._nodes.renew()
            return result

    async def _run(self, connection: PostgresConnection, query: Built) -> Rows:
        rows = await connection.run_query(query)
        # A write without RETURNING returns one row, which holds the number of changed rows. For DDL, it holds -1.
        count = len(rows) if query.returns_rows else max(0, rows[0][0])
        report_statements(self._meter, [(query.kind, count)])
        return rows

    async def _drive(
        self,
        connection: PostgresConnection,
        program: Program[T],
        reach: Reach,
        *,
        defines: bool = True,
        shards_on: Node | None = None,
    ) -> T:
        try:
            query = next(program)
            while True:
                if not defines and query.query.is_definition:
                    raise DefinitionNeededError
                built = self._build(query)
                reach.go_to(built.schema)
                for_shards = None if shards_on is None else self._build_for_shards(query, built, shards_on)
                reach.uses_citus |= for_shards is None
                query = program.send(await self._run(connection, for_shards or built))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            program.close()

    async def size(self) -> StoreSize:
        return await self._nodes.entry.light.run(self._partitions.measure)

    async def close(self) -> None:
        await self._nodes.close()


async def _check_server(connection: PostgresConnection) -> None:
    version = connection.get_server_version()
    if version.major < VERSION_MIN:
        raise StoreUnsupportedError(f"PostgreSQL {version.major} is older than {VERSION_MIN}")
    encoding = connection.get_settings().server_encoding
    if encoding not in ("UTF8", "SQL_ASCII"):  # the second one keeps bytes as they come
        raise StoreUnsupportedError(
            f"the database's encoding {encoding} lacks characters: createdb -E UTF8 -T template0"
        )
    for setting in ("fsync", "synchronous_commit"):
        if await connection.fetchval(f"SHOW {setting}") == "off":
            log.warning("store_not_durable", detail=f"the server has {setting} = off: a crash loses posts")


async def _check_sessions(url: str, limits: Settings, connection: PostgresConnection) -> None:
    """Raise `StoreUnsupportedError` if a pooler lends sessions per transaction, too short for prepared statements."""
    mark = f"'{secrets.token_hex(8)}'"
    await connection.execute(f"SET rankcurve.session = {mark}")
    reader = limits.model_copy(update={"read_only": True})  # `count_other_writers` passes over it
    other = await Connector(url, reader, "read")()
    try:
        # A pooler in transaction mode lends the other connection the session that it used last: the marked one.
        is_marked = f"SELECT 1 WHERE current_setting('rankcurve.session', true) = {mark}"
        found = [await each.execute(is_marked) for each in (other, connection)]
    finally:
        other.terminate()
    if found != ["SELECT 0", "SELECT 1"]:
        raise StoreUnsupportedError("a pooler in front of PostgreSQL does not keep sessions: set pool_mode = session")

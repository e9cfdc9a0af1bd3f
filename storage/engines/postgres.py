"""`PostgresStore` keeps a store in a PostgreSQL database that many processes may share, with the driver asyncpg.

Each `PostgresStore` object runs programs for one partition. The objects of a store share the store's connections.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from config.settings import Settings
from querybuilder import Bound, Built, Dialect
from storage.errors import StoreBusyError, StoreExistsError, StoreUnsupportedError
from storage.meter import COMMON_CONNECTION_POOL, NO_METER, Meter, report_statements
from storage.schema.creation import add_partition, create_schema_apart
from storage.store import CONTROL, Program, Rows, StoreSize

from .citus import DefinitionNeededError, Node, PlacementCheck, find_coordinator
from .connection_pool import ConnectionPool
from .partitions import Partitions
from .postgres_connection import Connector, Kind, PostgresConnection, replace_host
from .postgres_errors import DRIVER_ERRORS, is_lost

T = TypeVar("T")
log = structlog.get_logger(__name__)

VERSION_MIN = 12
COORDINATOR = "coordinator"
DEFINERS = 2  # the most connections to the coordinator of Citus, which creates and changes tables


class PostgresStore:
    """A `Store` on one PostgreSQL database. Open it with `PostgresStore.open`."""

    sole_writer = False

    def __init__(self, url: str, limits: Settings, meter: Meter) -> None:
        self._url, self._limits, self._meter = url, limits, meter
        self._writers = self._make_pool("write", limits.writer_connections)
        self._light = self._make_pool("read", limits.reader_connections)
        self._heavy = self._make_pool("heavy", limits.heavy_reader_connections)
        self._coordinator: ConnectionPool | None = None  # None: the store is not on Citus
        self._placements: PlacementCheck | None = None  # None: the store is not on Citus
        self._partitions = Partitions()
        self.dialect: Dialect = self._partitions.dialect_of(CONTROL)
        self._views: dict[int, PostgresStore] = {CONTROL: self}
        self.damaged = asyncio.Event()  # never set: a server reports damaged files in the server's own log
        self.writes_at_once = limits.writer_connections

    @classmethod
    async def open(cls, url: str, limits: Settings, *, meter: Meter = NO_METER) -> PostgresStore:
        """Create the connection pools, check the server over one connection, and return the store.

        Raises:
            StoreUnsupportedError: the URL cannot be read, the server is too old, or it refuses this user or database.
            StoreAwayError: the server cannot be reached.
        """
        store = cls(url, limits, meter)
        try:
            await store._writers.run(_check_server)
            store._lay_out(await store._writers.run(Partitions.find))
            if store._partitions.distributed:
                await store._distribute()
        except BaseException as error:
            await store.close()
            if isinstance(error, ValueError):  # the driver can't parse the URL; its message quotes the URL, so hide it
                raise StoreUnsupportedError("the address of the store cannot be parsed") from None
            refused = isinstance(error, StoreBusyError) and error.__cause__ is not None and not is_lost(error.__cause__)
            if refused:
                raise StoreUnsupportedError(str(error)) from error
            raise
        return store

    def _make_pool(
        self, kind: Kind, connections: int, *, name: str = COMMON_CONNECTION_POOL, at: Node | None = None
    ) -> ConnectionPool:
        url = self._url if at is None else replace_host(self._url, *at)
        connector = Connector(url, self._limits, kind)
        return ConnectionPool(name, kind, connector, connections, self._limits, self._meter)

    def _lay_out(self, partitions: Partitions) -> None:
        self._partitions, self.dialect = partitions, partitions.dialect_of(CONTROL)
        self._views = {CONTROL: self}

    async def _distribute(self) -> None:
        """Create the connection pool to the coordinator. From now on, `read` checks that no partition was moved."""
        at = await self._light.run(find_coordinator)
        if at is None:
            raise StoreUnsupportedError("Citus does not know its coordinator: call citus_set_coordinator_host there")
        self._coordinator = self._make_pool("write", DEFINERS, name=COORDINATOR, at=at)
        for pool in self._list_pools():
            pool.retries_late_locks = True
        self._placements = PlacementCheck()

    async def has_citus(self) -> bool:
        """Return whether the database has the extension Citus."""
        return await self._light.run(PostgresConnection.has_citus)

    async def create_apart(self, partitions: int, *, distributed: bool = False) -> str:
        """Create a store: a control partition and `partitions` others, each in its own schema. Return the store's salt.

        If `distributed` is set, Citus spreads the schemas over its nodes.

        Raises:
            StoreExistsError: there is already a store.
        """
        if self._partitions.exists:
            raise StoreExistsError
        layout = dataclasses.replace(self._partitions, apart=True, distributed=distributed, count=partitions)
        self._lay_out(layout)
        if distributed:
            await self._distribute()
        made = partial(create_schema_apart, partitions, schema_of=layout.schema_named, distributed=distributed)
        return await self.write(made)

    async def add_partition(self, fill: Callable[[int], Program[None]]) -> int:
        """Add a partition in its own schema and return its number.

        The program `fill(number)` copies the list of hidden owners to the new partition. Raises TooManyPartitionsError
        if the store has as many partitions as a store can have.
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
            view.dialect = dialect
            self._views[partition] = view
            if self._placements is not None:
                self._placements.forget()
        return view

    def _build(self, query: Bound) -> Built:
        if query.partition is None:
            return query.build(self.dialect)
        return query.build(self._partitions.dialect_of(query.partition))

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        async def attempt(connection: PostgresConnection) -> T:
            begun = set() if self._placements is None else await self._placements.begin(connection)
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            refusal: Exception | None = None
            try:
                result = await self._drive(connection, program())
            except DRIVER_ERRORS:
                raise
            except Exception as error:  # check for a move first: a moved partition looks empty, which may be the cause
                refusal = error
            await connection.execute("COMMIT")
            if self._placements is not None:
                await self._placements.end(connection, begun)
            if refusal is not None:
                raise refusal
            return result

        return await (self._heavy if heavy else self._light).run(attempt)

    async def read_query(self, query: Bound) -> Rows:
        """Return the rows of one query without BEGIN and COMMIT, which saves two round trips."""
        built = self._build(query)
        return await self._light.run(lambda connection: self._run(connection, built))

    async def write(self, program: Callable[[], Program[T]]) -> T:
        async def attempt(connection: PostgresConnection, *, defines: bool) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            result = await self._drive(connection, program(), defines=defines)
            await self._writers.commit(connection)
            return result

        try:
            first = partial(attempt, defines=self._coordinator is None)
            return await self._writers.run(first)
        except DefinitionNeededError:
            assert self._coordinator is not None
            return await self._coordinator.run(partial(attempt, defines=True))

    async def _run(self, connection: PostgresConnection, query: Built) -> Rows:
        rows = await connection.run_query(query)
        # A write without RETURNING returns one row, which holds the number of changed rows. For DDL, it holds -1.
        count = len(rows) if query.returns_rows else max(0, rows[0][0])
        report_statements(self._meter, [(query.kind, count)])
        return rows

    async def _drive(self, connection: PostgresConnection, program: Program[T], *, defines: bool = True) -> T:
        try:
            query = next(program)
            while True:
                if not defines and query.query.is_definition:
                    raise DefinitionNeededError
                query = program.send(await self._run(connection, self._build(query)))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            program.close()

    async def size(self) -> StoreSize:
        return await self._light.run(self._partitions.measure)

    async def close(self) -> None:
        for pool in self._list_pools():
            await pool.close()

    def _list_pools(self) -> list[ConnectionPool]:
        # A transaction of `_writers` may run again on a connection of `_coordinator`, so `_writers` is closed first.
        return [*filter(None, (self._writers, self._coordinator, self._light, self._heavy))]


async def _check_server(connection: PostgresConnection) -> None:
    version = connection.get_server_version()
    if version.major < VERSION_MIN:
        raise StoreUnsupportedError(f"PostgreSQL {version.major} is older than {VERSION_MIN}")
    for setting in ("fsync", "synchronous_commit"):
        if await connection.fetchval(f"SHOW {setting}") == "off":
            log.warning("store_not_durable", detail=f"the server has {setting} = off: a crash loses posts")

"""The store on one PostgreSQL database, which any number of processes may share. The driver is asyncpg.

The setting `pools` names sets of boards that get connections of their own. Each set has a `PostgresStore`, and all
other boards share one more `PostgresStore`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog

from config.pools import COMMON_CONNECTION_POOL, BoardConnectionPool, parse_connection_pools
from config.settings import Settings
from querybuilder import POSTGRES, Bound, Built, Dialect
from storage.errors import StoreBusyError, StoreUnsupportedError
from storage.store import Program, Rows, StoreSize

from .connection_pool import ConnectionPool
from .postgres_connection import Connector, Kind, PostgresConnection
from .postgres_errors import is_lost
from .postgres_retries import Retrier
from .store_observer import StoreObserver, report_statements_to

T = TypeVar("T")
log = structlog.get_logger(__name__)

VERSION_MIN = 12
POOL_CHOICES_MAX = 100_000  # the largest number of board ids in the cache that `for_board` uses


class _Connections(NamedTuple):
    """The connection pools of one set of boards."""

    writers: ConnectionPool
    light: ConnectionPool
    heavy: ConnectionPool


class PostgresStore:
    """A `Store` on one database. Open it with `PostgresStore.open`."""

    sole_writer = False

    def __init__(
        self, connections: _Connections, retrier: Retrier, others: list[tuple[BoardConnectionPool, PostgresStore]]
    ):
        self._connections, self._retrier, self._others = connections, retrier, others
        self.dialect: Dialect = POSTGRES
        self.damaged = asyncio.Event()  # never set: a server reports damaged files in the server's own log
        self._chosen: dict[str, PostgresStore] = {}
        self._ran = report_statements_to(retrier.observer)
        self.writes_at_once = connections.writers.connections

    @classmethod
    async def open(
        cls, url: str, limits: Settings, *, rng: random.Random | None = None, observer: StoreObserver | None = None
    ) -> PostgresStore:
        """Create the connection pools, and check the server over one connection.

        Raises:
            StoreUnsupportedError: the URL cannot be read, the server is too old, or it refuses this user or database.
            StoreAwayError: the server cannot be reached.
        """
        observer = observer or StoreObserver()
        retrier = Retrier(limits, rng=rng or random.Random(), observer=observer)
        others = [
            (pool, cls(_make_pools(url, limits, observer, pool), retrier, []))
            for pool in parse_connection_pools(limits.pools)
        ]
        store = cls(_make_pools(url, limits, observer, None), retrier, others)
        try:
            await retrier.run(store._connections.writers, _check_server)
        except BaseException as error:
            await store.close()
            if isinstance(error, ValueError):  # the driver can't parse the URL, and its message quotes the URL; hide it
                raise StoreUnsupportedError("the address of the store cannot be parsed") from None
            refused = isinstance(error, StoreBusyError) and error.__cause__ is not None and not is_lost(error.__cause__)
            if refused:
                raise StoreUnsupportedError(str(error)) from error
            raise
        return store

    def for_board(self, board_id: str) -> PostgresStore:
        chosen = self._chosen.get(board_id)
        if chosen is None:
            if len(self._chosen) >= POOL_CHOICES_MAX:
                self._chosen.clear()
            chosen = next((store for pool, store in self._others if pool.matches_board(board_id)), self)
            self._chosen[board_id] = chosen
        return chosen

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        async def attempt(connection: PostgresConnection) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = await self._drive(connection, program())
            await connection.execute("COMMIT")
            return result

        return await self._retrier.run(self._connections.heavy if heavy else self._connections.light, attempt)

    async def read_query(self, query: Bound) -> Rows:
        """Return the rows of one query without BEGIN and COMMIT, which saves two round trips."""
        built = query.build(self.dialect)
        return await self._retrier.run(self._connections.light, lambda connection: self._run(connection, built))

    async def write(self, program: Callable[[], Program[T]]) -> T:
        async def attempt(connection: PostgresConnection) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            result = await self._drive(connection, program())
            await self._retrier.commit(connection)
            return result

        return await self._retrier.run(self._connections.writers, attempt)

    async def write_query(self, query: Bound) -> Rows:
        """Run one statement as a transaction without BEGIN and COMMIT, which saves two round trips."""
        built = query.build(self.dialect)
        rows = await self._retrier.run(
            self._connections.writers, lambda connection: self._retrier.run_single_statement(connection, built)
        )
        self._ran(built, rows)
        return rows

    async def _run(self, connection: PostgresConnection, query: Built) -> Rows:
        rows = await connection.run_query(query)
        self._ran(query, rows)
        return rows

    async def _drive(self, connection: PostgresConnection, program: Program[T]) -> T:
        try:
            query = next(program)
            while True:
                query = program.send(await self._run(connection, query.build(self.dialect)))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            program.close()

    async def read_log_position(self) -> str:
        """Return the position up to which the server's write-ahead log is durable.

        A replica that has replayed this position holds every write that was acknowledged before the call.
        """
        position: str = await self._retrier.run(
            self._connections.light, lambda connection: connection.fetchval("SELECT pg_current_wal_flush_lsn()::text")
        )
        return position

    async def has_replayed(self, position: str) -> bool | None:
        """Return whether this server has replayed the write-ahead log up to a position, or None if it is no replica."""
        replayed: bool | None = await self._retrier.run(
            self._connections.heavy,
            lambda connection: connection.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position),
        )
        return replayed

    async def size(self) -> StoreSize:
        store_bytes: int = await self._retrier.run(
            self._connections.light,
            lambda connection: connection.fetchval("SELECT pg_database_size(current_database())"),
        )
        return StoreSize(store_bytes, None)

    async def close(self) -> None:
        await self._retrier.close()
        for connections in (self._connections, *(store._connections for _, store in self._others)):
            for pool in connections:
                await pool.close()


def _make_pools(url: str, limits: Settings, observer: StoreObserver, pool: BoardConnectionPool | None) -> _Connections:
    name = COMMON_CONNECTION_POOL if pool is None else pool.name

    def open_pool(kind: Kind, count: int) -> ConnectionPool:
        return ConnectionPool(
            f"{name} {kind}",
            Connector(url, limits, kind),
            count,
            limits,
            waited=lambda seconds: observer.connection_waited(name, kind, seconds),
            lent=lambda lent, waiting: observer.connections_lent(name, kind, lent, waiting=waiting, limit=count),
        )

    return _Connections(
        open_pool("write", limits.writer_connections if pool is None else 1),
        open_pool("read", limits.reader_connections if pool is None else pool.connections),
        open_pool("heavy", limits.heavy_reader_connections if pool is None else 1),
    )


async def _check_server(connection: PostgresConnection) -> None:
    version = connection.get_server_version()
    if version.major < VERSION_MIN:
        raise StoreUnsupportedError(f"PostgreSQL {version.major} is older than {VERSION_MIN}")
    for setting in ("fsync", "synchronous_commit"):
        if await connection.fetchval(f"SHOW {setting}") == "off":
            log.warning("store_not_durable", detail=f"the server has {setting} = off: a crash loses posts")

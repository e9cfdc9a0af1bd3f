"""The shared store: any number of processes on one PostgreSQL database, by asyncpg.

A program runs on one connection, as one transaction. Each set of boards that the setting `pools` names has connections
of its own: the store is one `PostgresStore` for each of them, and one for all other boards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TypeVar

import structlog

from config.pools import COMMON, BoardPool, parse_pools
from querybuilder import POSTGRES, Built, Dialect

from .errors import StoreBusy, StoreUnsupported
from .observing import StoreObserver, Unwatched, telling
from .pool import Pool, PoolLimits
from .postgres_attempts import AttemptLimits, Attempts
from .postgres_connection import Connector, PostgresConnection, SessionLimits
from .postgres_errors import is_lost
from .store import Program, Rows, StoreSize

T = TypeVar("T")
log = structlog.get_logger(__name__)

VERSION_MIN = 12
POOL_CHOICES_MAX = 100_000  # board ids whose pool is remembered


@dataclass(frozen=True, slots=True)
class PostgresLimits:
    """The store's bounds; each is a setting of the same name."""

    writer_connections: int
    reader_connections: int
    heavy_reader_connections: int
    pools: str
    reads_waiting_max: int
    connection_wait_s_max: float
    connect_timeout_s: float
    statement_timeout_s: float
    heavy_statement_timeout_s: float
    lock_timeout_s: float
    commit_timeout_s: float
    store_attempts_max: int
    store_backoff_base_s: float
    store_backoff_s_max: float
    statement_cache: int


@dataclass(frozen=True, slots=True, eq=False)
class _Connections:
    """What one set of boards has for itself."""

    writers: Pool[PostgresConnection]
    light: Pool[PostgresConnection]
    heavy: Pool[PostgresConnection]

    def __iter__(self) -> Iterator[Pool[PostgresConnection]]:
        return iter((self.writers, self.light, self.heavy))


class PostgresStore:
    """A `Store` on one database. Open it with `PostgresStore.open`; `of` answers the others of its kind."""

    sole_writer = False

    def __init__(self, connections: _Connections, attempts: Attempts, others: list[tuple[BoardPool, PostgresStore]]):
        self._connections, self._attempts, self._others = connections, attempts, others
        self.dialect: Dialect = POSTGRES
        self.damaged = asyncio.Event()  # never set: a server's own log says what is wrong with its files
        self._chosen: dict[str, PostgresStore] = {}
        self._ran = telling(attempts.observer)
        self.writes_at_once = connections.writers.limits.connections

    @classmethod
    async def open(
        cls,
        url: str,
        limits: PostgresLimits,
        *,
        rng: random.Random | None = None,
        observer: StoreObserver | None = None,
    ) -> PostgresStore:
        """Reach the server once.

        Raises:
            StoreUnsupported: the server is too old, or refuses this user or database.
            StoreAway: it cannot be reached.
        """
        bounds = AttemptLimits(**{field.name: getattr(limits, field.name) for field in fields(AttemptLimits)})
        observer = observer or Unwatched()
        attempts = Attempts(bounds, rng=rng or random.Random(), observer=observer)
        others = [
            (pool, cls(_connect(url, limits, observer, pool), attempts, [])) for pool in parse_pools(limits.pools)
        ]
        store = cls(_connect(url, limits, observer, None), attempts, others)
        try:
            await attempts.run(store._connections.writers, _check_server)
        except BaseException as error:
            await store.close()
            if isinstance(error, ValueError):  # of the driver's reader of addresses, which quotes what it read
                raise StoreUnsupported("the address of the store cannot be read") from None
            refused = isinstance(error, StoreBusy) and error.__cause__ is not None and not is_lost(error.__cause__)
            if refused:
                raise StoreUnsupported(str(error)) from error
            raise
        return store

    def of(self, board_id: str) -> PostgresStore:
        """See `Store.of`."""
        chosen = self._chosen.get(board_id)
        if chosen is None:
            if len(self._chosen) >= POOL_CHOICES_MAX:
                self._chosen.clear()
            chosen = next((store for pool, store in self._others if pool.takes(board_id)), self)
            self._chosen[board_id] = chosen
        return chosen

    def number_by(self, dialect: Dialect) -> None:
        """Have programs that are made from now on use this dialect: see `transaction_numbers`."""
        for store in (self, *(store for _, store in self._others)):
            store.dialect = dialect

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        """See `Store.read`."""

        async def attempt(connection: PostgresConnection) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = await self._drive(connection, program())
            await connection.execute("COMMIT")
            return result

        return await self._attempts.run(self._connections.heavy if heavy else self._connections.light, attempt)

    async def read_one(self, query: Built) -> Rows:
        """See `Store.read_one`. A statement is a snapshot of its own: two round trips less."""
        return await self._attempts.run(self._connections.light, lambda connection: self._run(connection, query))

    async def write(self, program: Callable[[], Program[T]]) -> T:
        """See `Store.write`. Several may run at once, here and in other processes.

        Raises:
            OutcomeUnknown: the connection was lost before COMMIT was answered.
        """

        async def attempt(connection: PostgresConnection) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            result = await self._drive(connection, program())
            await self._attempts.commit(connection)
            return result

        return await self._attempts.run(self._connections.writers, attempt)

    async def write_one(self, query: Built) -> Rows:
        """See `Store.write_one`. Two round trips less; who lost a race has to look again, so it is not run again."""
        rows = await self._attempts.run(
            self._connections.writers, lambda connection: self._attempts.alone(connection, query)
        )
        self._ran(query, rows)
        return rows

    async def _run(self, connection: PostgresConnection, query: Built) -> Rows:
        rows = await connection.run(query)
        self._ran(query, rows)
        return rows

    async def _drive(self, connection: PostgresConnection, program: Program[T]) -> T:
        try:
            query = next(program)
            while True:
                query = program.send(await self._run(connection, query))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            program.close()

    async def log_position(self) -> str:
        """How far the log is durable: whoever has got so far holds every write acknowledged before the call."""
        position: str = await self._attempts.run(
            self._connections.light, lambda connection: connection.fetchval("SELECT pg_current_wal_flush_lsn()::text")
        )
        return position

    async def has_replayed(self, position: str) -> bool | None:
        """Whether this server, a replica, has got so far; None where it is none."""
        replayed: bool | None = await self._attempts.run(
            self._connections.heavy,
            lambda connection: connection.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position),
        )
        return replayed

    async def size(self) -> StoreSize:
        """See `Store.size`."""
        store_bytes: int = await self._attempts.run(
            self._connections.light,
            lambda connection: connection.fetchval("SELECT pg_database_size(current_database())"),
        )
        return StoreSize(store_bytes, None)

    async def close(self) -> None:
        """See `Store.close`. What has begun finishes."""
        await self._attempts.close()
        for connections in (self._connections, *(store._connections for _, store in self._others)):
            for pool in connections:
                await pool.close()


def _connect(url: str, limits: PostgresLimits, observer: StoreObserver, pool: BoardPool | None) -> _Connections:
    name = COMMON if pool is None else pool.name

    def connections_for(kind: str, count: int, timeout_s: float, *, read_only: bool) -> Pool[PostgresConnection]:
        session = SessionLimits(
            connect_timeout_s=limits.connect_timeout_s,
            statement_timeout_s=timeout_s,
            lock_timeout_s=limits.lock_timeout_s,
            statement_cache=limits.statement_cache,
            read_only=read_only,
            whole_tables=kind == "heavy",
        )
        bounds = PoolLimits(
            connections=count,
            waiting_max=limits.reads_waiting_max,
            wait_s_max=limits.connection_wait_s_max,
            close_s_max=limits.connect_timeout_s,
        )
        return Pool(
            f"{name} {kind}",
            Connector(url, session),
            bounds,
            waited=lambda seconds: observer.connection_waited(name, kind, seconds),
            lent=lambda lent, waiting: observer.connections_lent(name, kind, lent, waiting=waiting, limit=count),
        )

    light_s, heavy_s = limits.statement_timeout_s, limits.heavy_statement_timeout_s
    return _Connections(
        connections_for("write", limits.writer_connections if pool is None else 1, light_s, read_only=False),
        connections_for(
            "read", limits.reader_connections if pool is None else pool.connections, light_s, read_only=True
        ),
        connections_for("heavy", limits.heavy_reader_connections if pool is None else 1, heavy_s, read_only=True),
    )


async def _check_server(connection: PostgresConnection) -> None:
    version = connection.get_server_version()
    if version.major < VERSION_MIN:
        raise StoreUnsupported(f"PostgreSQL {version.major} is older than {VERSION_MIN}")
    for setting in ("fsync", "synchronous_commit"):
        if await connection.fetchval(f"SHOW {setting}") == "off":
            log.warning("store_not_durable", detail=f"the server has {setting} = off: a crash loses posts")

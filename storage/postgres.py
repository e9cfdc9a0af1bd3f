"""The shared store: any number of processes on one PostgreSQL database, by asyncpg.

A program runs on one connection. What another transaction or a lost connection spoiled is run again within a bound;
except a COMMIT whose answer was lost: that transaction may have happened, so its outcome is told as unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from querybuilder import POSTGRES, Built

from .errors import OutcomeUnknown, StoreBusy, StoreUnsupported
from .pool import Pool, PoolLimits
from .postgres_connection import Connector, PostgresConnection, SessionLimits
from .postgres_errors import DRIVER_ERRORS, is_board_gone, is_lost, is_raced, translated
from .store import Program, Rows

T = TypeVar("T")
Attempt = Callable[[PostgresConnection], Coroutine[Any, Any, T]]
log = structlog.get_logger(__name__)

VERSION_MIN = 12
# Waiting for a synchronous standby must not end by a timeout of the server: it would answer that all is well, with a
# warning that the standby may not have it.
COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"
NO_TIMEOUT_S = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class PostgresLimits:
    """The store's bounds; each is a setting of the same name."""

    writer_connections: int
    reader_connections: int
    heavy_reader_connections: int
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


def _no_observer(_pool: str, _seconds: float) -> None:
    return


class PostgresStore:
    """A `Store` on one database. Open it with `PostgresStore.open`."""

    dialect = POSTGRES
    sole_writer = False

    def __init__(
        self,
        url: str,
        limits: PostgresLimits,
        *,
        rng: random.Random | None = None,
        waited: Callable[[str, float], None] = _no_observer,
    ) -> None:
        self.writes_at_once = limits.writer_connections
        self._url, self._limits, self._rng, self._waited = url, limits, rng or random.Random(), waited
        light, heavy = limits.statement_timeout_s, limits.heavy_statement_timeout_s
        self._writers = self._pool("write", limits.writer_connections, light, read_only=False)
        self._light = self._pool("read", limits.reader_connections, light, read_only=True)
        self._heavy = self._pool("heavy", limits.heavy_reader_connections, heavy, read_only=True)
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._background: set[asyncio.Task[None]] = set()

    def _pool(self, name: str, connections: int, timeout_s: float, *, read_only: bool) -> Pool[PostgresConnection]:
        limits = self._limits
        session = SessionLimits(
            connect_timeout_s=limits.connect_timeout_s,
            statement_timeout_s=timeout_s,
            lock_timeout_s=limits.lock_timeout_s,
            statement_cache=limits.statement_cache,
            read_only=read_only,
        )
        bounds = PoolLimits(
            connections=connections,
            waiting_max=limits.reads_waiting_max,
            wait_s_max=limits.connection_wait_s_max,
            close_s_max=limits.connect_timeout_s,
        )
        return Pool(name, Connector(self._url, session), bounds, waited=self._waited)

    @classmethod
    async def open(cls, url: str, limits: PostgresLimits, **options: Any) -> PostgresStore:
        """Reach the server once.

        Raises:
            StoreUnsupported: the server is too old, or refuses this user or database.
            StoreAway: it cannot be reached.
        """
        store = cls(url, limits, **options)
        try:
            await store._running_again(store._writers, store._check_server)
        except StoreBusy as error:
            await store.close()
            if error.__cause__ is not None and not is_lost(error.__cause__):
                raise StoreUnsupported(error.detail) from error
            raise
        except BaseException:
            await store.close()
            raise
        return store

    async def _check_server(self, connection: PostgresConnection) -> None:
        version = connection.get_server_version()
        if version.major < VERSION_MIN:
            raise StoreUnsupported(f"PostgreSQL {version.major} is older than {VERSION_MIN}")
        for setting in ("fsync", "synchronous_commit"):
            if await connection.fetchval(f"SHOW {setting}") == "off":
                log.warning("store_not_durable", detail=f"the server has {setting} = off: a crash loses posts")

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        """See `Store.read`."""

        async def attempt(connection: PostgresConnection) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = await _drive(connection, program())
            await connection.execute("COMMIT")
            return result

        return await self._running_again(self._heavy if heavy else self._light, attempt)

    async def read_one(self, query: Built) -> Rows:
        """See `Store.read_one`. A statement is a snapshot of its own: two round trips less."""
        return await self._running_again(self._light, lambda connection: connection.run(query))

    async def write(self, program: Callable[[], Program[T]]) -> T:
        """See `Store.write`. Several may run at once, here and in other processes.

        Raises:
            OutcomeUnknown: the connection was lost before COMMIT was answered.
        """

        async def attempt(connection: PostgresConnection) -> T:
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            result = await _drive(connection, program())
            await self._commit(connection)
            return result

        return await self._running_again(self._writers, attempt)

    async def _commit(self, connection: PostgresConnection) -> None:
        # Not the driver's timeout: it would cancel the wait for the standby. Without an answer the connection goes.
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self._limits.commit_timeout_s, connection.terminate)
        try:
            status = await connection.execute(COMMIT, timeout=NO_TIMEOUT_S)
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise OutcomeUnknown from error
            raise
        finally:
            expiry.cancel()
        if status != "COMMIT":
            raise StoreBusy("the store rolled the transaction back")

    async def _running_again(self, pool: Pool[PostgresConnection], attempt: Attempt[T]) -> T:
        """The outcome of an attempt, made again after a lost race or connection, within the bounds."""
        self._check_open()
        self._running += 1
        self._idle.clear()
        try:
            for pauses_before in range(self._limits.store_attempts_max):
                if pauses_before:
                    await asyncio.sleep(self._pause_s(pauses_before - 1))
                try:
                    return await self._once(pool, attempt)
                except DRIVER_ERRORS as error:
                    failure: BaseException = error
                    # A board that is gone is seen to be so by the transaction that runs again: once is enough.
                    last = pauses_before > 0 if is_board_gone(error) else not (is_lost(error) or is_raced(error))
                    if last:
                        break
                    log.info("store_tried_again", pool=pool.name, detail=str(error) or type(error).__name__)
            raise translated(failure) from failure
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _once(self, pool: Pool[PostgresConnection], attempt: Attempt[T]) -> T:
        connection = await pool.take()
        try:
            return await attempt(connection)
        except asyncio.CancelledError:
            # The driver asks the server to stop; the connection is told apart from idle ones until it has.
            self._in_background(_close(connection, self._limits.connect_timeout_s))
            raise
        except BaseException as error:
            if is_lost(error) or isinstance(error, OutcomeUnknown):
                connection.terminate()
            elif connection.is_in_transaction():
                await self._roll_back(connection)
            raise
        finally:
            pool.give_back(connection)

    @staticmethod
    async def _roll_back(connection: PostgresConnection) -> None:
        try:
            await connection.execute("ROLLBACK")
        except BaseException as error:
            connection.terminate()  # the server rolls back what has no client
            if not isinstance(error, DRIVER_ERRORS):
                raise

    def _pause_s(self, pauses_before: int) -> float:
        # Full jitter: losers of one race don't meet again at the same moment.
        longest = min(self._limits.store_backoff_s_max, self._limits.store_backoff_base_s * 2**pauses_before)
        return self._rng.uniform(0, longest)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreBusy("the store is closed")

    async def close(self) -> None:
        """See `Store.close`. What has begun finishes."""
        self._closed = True
        await self._idle.wait()
        await asyncio.gather(*self._background)
        for pool in (self._writers, self._light, self._heavy):
            await pool.close()


async def _drive(connection: PostgresConnection, program: Program[T]) -> T:
    try:
        query = next(program)
        while True:
            query = program.send(await connection.run(query))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        program.close()


async def _close(connection: PostgresConnection, timeout_s: float) -> None:
    try:
        await connection.close(timeout=timeout_s)
    except DRIVER_ERRORS:
        connection.terminate()

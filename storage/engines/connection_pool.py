"""`ConnectionPool` runs attempts on a bounded number of PostgreSQL connections, and decides which ones to retry.

An attempt runs one program on a connection. After a lost race or a lost connection, the pool runs the attempt again:

    attempt ── success ──> its result
       │
       ├── lost (the connection is useless, or none could be opened) ── pause ──> again, on another connection
       ├── a node of Citus lost another node ── pause ──> again, once
       ├── raced (another transaction changed the same rows) ── pause ──> again, which may succeed
       ├── Citus moves the partition ── pause ──> again, for about ten seconds
       ├── the board's table is missing ── pause ──> again, once: the transaction then sees that the board was deleted
       ├── lost during COMMIT ──> OutcomeUnknownError
       └── any other error, or no attempts left ──> an error of the store, see `translate_error`

A COMMIT whose answer was lost is never repeated, because the server may have committed the transaction.

When a breaker finds that the node does not answer, it closes the connections that wait for it, and their attempts count
as lost.

Every wait for a connection is bounded. A pool never keeps a connection that has an open transaction, because the next
program would run inside that transaction.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from time import monotonic
from typing import Any, TypeVar

import asyncpg
import structlog

from config.settings import Settings
from storage.errors import OutcomeUnknownError, StoreBusyError
from storage.meter import COMMON_CONNECTION_POOL, Meter

from .breaker import Breaker
from .postgres_connection import (
    DRIVER_ERRORS,
    PostgresConnection,
    describe_error,
    is_board_deleted,
    is_lost,
    is_moving,
    is_node_away,
    is_raced,
    translate_error,
)

T = TypeVar("T")
Attempt = Callable[[PostgresConnection], Coroutine[Any, Any, T]]
log = structlog.get_logger(__name__)
# The statement timeout must not end the server's wait for a synchronous standby server. After such a timeout, the
# server would confirm the COMMIT and only warn that the standby may not have the data.
COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"
ROLLBACK_S_MAX = 1.0  # a node of Citus may wait for another node to roll back
NO_TIMEOUT_S = 10 * 365 * 86_400.0
# While Citus moves a partition, an attempt runs this many times. Its pauses hold no connection.
MOVING_ATTEMPTS_MAX = 40
MOVING_PAUSE_S = 0.25
FULL_LOGGED_AGAIN_S = 60.0  # a pool logs at most this often that the disk of its server is full


class ConnectionPool:
    def __init__(
        self,
        kind: str,
        connect: Callable[[], Awaitable[PostgresConnection]],
        connections: int,
        limits: Settings,
        meter: Meter,
        breaker: Breaker,
        counts: Counter[str],
        *,
        on_citus: bool,
    ) -> None:
        """Prepare a pool of at most `connections` connections to one node, without opening any of them yet.

        `kind` says what the pool is used for and labels its metrics, which are sums over the pools of this kind on all
        of the store's nodes; these pools share `counts`. If the node becomes unreachable, `breaker` ends everything
        that waits for it, and the pool refuses to lend connections.
        """
        self.name, self.connections = f"{breaker.name} {kind}", connections
        self._limits, self._connect = limits, connect
        self._meter, self._kind, self._breaker, self._counts = meter, kind, breaker, counts
        # On Citus, an attempt runs again after a lock timeout, which ends deadlocks with partition moves. And a node
        # that cannot be reached has only some of the partitions.
        self._on_citus = on_citus
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[PostgresConnection] = []
        self._waiting = 0
        self._closed, self._full_logged_s = False, -inf
        self._closing: set[asyncio.Task[None]] = set()
        self._count_limit(connections)
        self._count_lent(0)
        self._count_waiting(0)

    async def run(self, attempt: Attempt[T]) -> T:
        """Run an attempt on a connection and return its result, retrying after errors that may be temporary.

        Raises:
            StoreBusyError: no connection can be lent, or the server reports an error that is not listed here.
            StoreAwayError: the server can't be reached or does not answer in time.
            PartitionAwayError: likewise, for a server that has only some of the partitions.
            StoreFullError: the server's disk is full.
            UnknownBoardError: the board's table does not exist.
            OutcomeUnknownError: the attempt called `commit`, which raised this error.
        """
        tries = 0
        while True:
            try:
                return await self._once(attempt)
            except DRIVER_ERRORS as error:
                tries += 1
                # If a board has been deleted, the second attempt finds no such board in the catalog. If a Citus
                # node had lost its connection to another node, it opens a new one. So two attempts are enough.
                twice = is_board_deleted(error) or is_node_away(error)
                moving = is_moving(error)
                tries_max = MOVING_ATTEMPTS_MAX if moving else 2 if twice else self._limits.store_attempts_max
                if tries >= tries_max or not self._may_pass(error):
                    node = self._breaker.name if self._on_citus else None
                    if (
                        isinstance(error, asyncpg.DiskFullError)
                        and monotonic() - self._full_logged_s > FULL_LOGGED_AGAIN_S
                    ):
                        self._full_logged_s = monotonic()
                        log.error("store_full", pool=self.name, detail="the server refuses writes: its disk is full")
                    raise translate_error(error, node=node) from error
                self._meter.add("rankcurve_store_retries")
                log.info("transaction_retried", pool=self.name, detail=describe_error(error))
            await asyncio.sleep(MOVING_PAUSE_S if moving else self._pause_s(tries - 1))

    def _may_pass(self, error: BaseException) -> bool:
        late_lock = self._on_citus and isinstance(error, asyncpg.LockNotAvailableError)
        return late_lock or is_lost(error) or is_raced(error) or is_moving(error) or is_board_deleted(error)

    async def _once(self, attempt: Attempt[T]) -> T:
        connection = await self.lend_connection()
        cancelled = False
        self._breaker.enter(connection, connection.terminate)
        try:
            return await attempt(connection)
        except asyncio.CancelledError:
            cancelled = True
            raise
        except BaseException as error:
            if isinstance(error, OutcomeUnknownError) or (is_lost(error) and not is_node_away(error)):
                connection.terminate()
            elif not connection.is_closed() and connection.is_in_transaction():
                await _roll_back(connection)
            raise
        finally:
            self._breaker.leave(connection)
            self.take_back(connection, cancelled=cancelled)

    async def commit(self, connection: PostgresConnection) -> None:
        """Commit the transaction of a connection.

        Raises:
            StoreBusyError: the server rolled the transaction back instead.
            OutcomeUnknownError: the connection was lost before the server answered, no answer came in time, or the
                server warned that the commit may be lost.
        """
        # If an operator cancels the server's wait for a standby, the server confirms the COMMIT, but sends a warning.
        warnings: list[object] = []

        def warned(_connection: object, message: object) -> None:
            warnings.append(message)

        connection.add_log_listener(warned)
        # The driver's own timeout would also cancel the server's wait for a standby. So if no answer comes in time,
        # terminate the connection instead.
        expiry = asyncio.get_running_loop().call_later(self._limits.commit_timeout_s, connection.terminate)
        try:
            status = await connection.execute(COMMIT, timeout=NO_TIMEOUT_S)
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise OutcomeUnknownError from error
            raise
        finally:
            expiry.cancel()
            connection.remove_log_listener(warned)
        if warnings:
            raise OutcomeUnknownError(f"the store warned while it committed, so the commit may be lost: {warnings[0]}")
        if status != "COMMIT":
            raise StoreBusyError("the store rolled the transaction back")

    def _pause_s(self, pauses_before: int) -> float:
        # The pause is random (full jitter), so that transactions of one race do not all run again at the same moment.
        longest = min(self._limits.store_backoff_s_max, self._limits.store_backoff_base_s * 2**pauses_before)
        return random.uniform(0, longest)

    async def lend_connection(self) -> PostgresConnection:
        """Lend a connection, which the caller must return with `take_back`.

        Raises:
            StoreBusyError: the pool is closed, too many callers are waiting, or no connection became free within
                `connection_wait_s_max` seconds.
            StoreAwayError: the node does not answer.
        """
        self._breaker.check()
        if self._closed:
            raise StoreBusyError("the store is closed")
        if self._slots.locked():
            await self._wait()
        else:
            await self._slots.acquire()
            self._report_wait(0.0)
        self._count_lent(1)
        try:
            self._breaker.check()  # the node may have become unreachable while the caller waited
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await self._open_connection()
        except BaseException:
            self._count_lent(-1)
            self._slots.release()
            raise

    async def _open_connection(self) -> PostgresConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as scope:
            self._breaker.enter(scope, lambda: scope.reschedule(loop.time()))
            try:
                return await self._connect()
            finally:
                self._breaker.leave(scope)

    def _count_limit(self, change: int) -> None:
        limit = self._add_up("limit", change)
        self._meter.set("rankcurve_store_connections_limit", limit, COMMON_CONNECTION_POOL, self._kind)

    def _count_lent(self, change: int) -> None:
        lent = self._add_up("lent", change)
        self._meter.set("rankcurve_store_connections_lent", lent, COMMON_CONNECTION_POOL, self._kind)

    def _count_waiting(self, change: int) -> None:
        waiting = self._add_up("waiting", change)
        self._meter.set("rankcurve_store_connections_awaited", waiting, COMMON_CONNECTION_POOL, self._kind)

    def _add_up(self, name: str, change: int) -> int:
        key = f"{name} {self._kind}"
        self._counts[key] += change
        return self._counts[key]

    def _report_wait(self, seconds: float) -> None:
        self._meter.observe("rankcurve_store_connection_wait_seconds", seconds, COMMON_CONNECTION_POOL)

    async def _wait(self) -> None:
        if self._waiting >= self._limits.reads_waiting_max:
            raise StoreBusyError(f"{self._waiting} callers are waiting for a connection of pool {self.name!r}")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._waiting += 1
        self._count_waiting(1)
        try:
            async with asyncio.timeout(self._limits.connection_wait_s_max):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreBusyError(
                f"no connection of pool {self.name!r} came free in {self._limits.connection_wait_s_max:.15g} s"
            ) from None
        finally:
            self._waiting -= 1
            self._count_waiting(-1)
            self._report_wait(loop.time() - begun)

    def take_back(self, connection: PostgresConnection, *, cancelled: bool = False) -> None:
        """Accept the return of a lent connection, and close it if its transaction is still open.

        `cancelled` means that a statement was cancelled. The driver has asked the server to cancel it too, but until
        the server has done so the connection is useless, so the pool closes it.
        """
        if cancelled:
            task = asyncio.create_task(self._close_lent(connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            return
        if not connection.is_closed():
            if connection.is_in_transaction():
                connection.terminate()
            else:
                self._idle.append(connection)
        self._count_lent(-1)
        self._slots.release()

    async def _close_lent(self, connection: PostgresConnection) -> None:
        await self._close_connection(connection)
        self.take_back(connection)

    async def _close_connection(self, connection: PostgresConnection) -> None:
        try:
            await connection.close(timeout=self._limits.connect_timeout_s)
        except DRIVER_ERRORS:
            connection.terminate()

    async def close(self) -> None:
        """Refuse new callers, wait until all lent connections have been returned, then close all connections."""
        if self._closed:
            return
        self._closed = True
        self._count_limit(-self.connections)
        for _ in range(self.connections):
            await self._slots.acquire()
        for connection in self._idle:
            await self._close_connection(connection)


async def _roll_back(connection: PostgresConnection) -> None:
    try:
        await connection.execute("ROLLBACK", timeout=ROLLBACK_S_MAX)
    except BaseException as error:
        connection.terminate()  # the server rolls a transaction back when its client disconnects
        if not isinstance(error, DRIVER_ERRORS):
            raise

"""A connection pool opens a bounded number of connections when they are needed, and lends them to callers.

The most important rules: every wait for a connection is bounded, and a pool never keeps a connection that has an open
transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable

from config.settings import Settings
from storage.errors import StoreBusyError
from storage.meter import Meter

from .postgres_connection import PostgresConnection
from .postgres_errors import DRIVER_ERRORS


class ConnectionPool:
    def __init__(
        self,
        name: str,
        kind: str,
        connect: Callable[[], Awaitable[PostgresConnection]],
        connections: int,
        limits: Settings,
        meter: Meter,
    ) -> None:
        """Prepare a pool of at most this many connections without opening one.

        The meter's labels are `name`, which says what is at the other end, and `kind`, which is what the pool is for.
        """
        self.name, self.connections = f"{name} {kind}", connections
        self._limits, self._connect = limits, connect
        self._meter, self._pool, self._kind = meter, name, kind
        self._lent = 0
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[PostgresConnection] = []
        self._waiting = 0
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        meter.set("rankcurve_store_connections_limit", connections, name, kind)
        self._count_lent(0)
        self._count_waiting(0)

    async def lend_connection(self) -> PostgresConnection:
        """Return a connection. The caller has to give it back with `take_back`.

        Raises:
            StoreBusyError: the pool is closed, too many callers wait, or no connection came free within
                `connection_wait_s_max` seconds.
        """
        if self._closed:
            raise StoreBusyError("the store is closed")
        if self._slots.locked():
            await self._wait()
        else:
            await self._slots.acquire()
            self._report_wait(0.0)
        self._count_lent(1)
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await self._connect()
        except BaseException:
            self._count_lent(-1)
            self._slots.release()
            raise

    def _count_lent(self, change: int) -> None:
        self._lent += change
        self._meter.set("rankcurve_store_connections_lent", self._lent, self._pool, self._kind)

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        self._meter.set("rankcurve_store_connections_awaited", self._waiting, self._pool, self._kind)

    def _report_wait(self, seconds: float) -> None:
        self._meter.observe("rankcurve_store_connection_wait_seconds", seconds, self._pool)

    async def _wait(self) -> None:
        if self._waiting >= self._limits.reads_waiting_max:
            raise StoreBusyError(f"{self._waiting} callers are waiting for a connection of pool {self.name!r}")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._count_waiting(1)
        try:
            async with asyncio.timeout(self._limits.connection_wait_s_max):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreBusyError(
                f"no connection of pool {self.name!r} came free in {self._limits.connection_wait_s_max:g} s"
            ) from None
        finally:
            self._count_waiting(-1)
            self._report_wait(loop.time() - begun)

    def take_back(self, connection: PostgresConnection, *, cancelled: bool = False) -> None:
        """Take a connection back. The pool drops it if its transaction is still open.

        `cancelled`: the driver has asked the server to cancel a statement. Until that is done, the connection is
        useless, so the pool closes it.
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
        """Refuse new callers, wait until all lent connections are back, then close all connections."""
        if self._closed:
            return
        self._closed = True
        for _ in range(self.connections):
            await self._slots.acquire()
        for connection in self._idle:
            await self._close_connection(connection)

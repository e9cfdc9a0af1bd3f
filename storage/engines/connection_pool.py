"""A connection pool opens a bounded number of connections when they are needed, and lends them to callers.

The most important rules: every wait for a connection is bounded, and a pool never keeps a connection that has an open
transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable

from config.settings import Settings
from storage.errors import StoreBusyError

from .postgres_connection import PostgresConnection


class ConnectionPool:
    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[PostgresConnection]],
        connections: int,
        limits: Settings,
        *,
        waited: Callable[[float], None],
        lent: Callable[[int, int], None],
    ) -> None:
        """Prepare a pool of at most this many connections without opening one.

        The pool calls `waited` with the seconds of each wait for a connection. It calls `lent` with the number of lent
        connections and the number of waiting callers whenever one of them changes.
        """
        self.name, self.connections = name, connections
        self._limits = limits
        self._connect, self._waited, self._tell = connect, waited, lent
        self._lent = 0
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[PostgresConnection] = []
        self._waiting = 0
        self._changed()

    async def lend_connection(self) -> PostgresConnection:
        """Return a connection. The caller has to give it back with `take_back`.

        Raises:
            StoreBusyError: too many callers wait, or no connection came free within `connection_wait_s_max` seconds.
        """
        if self._slots.locked():
            await self._wait()
        else:
            await self._slots.acquire()
            self._waited(0.0)
        self._changed(lent=1)
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await self._connect()
        except BaseException:
            self._changed(lent=-1)
            self._slots.release()
            raise

    def _changed(self, *, lent: int = 0, waiting: int = 0) -> None:
        self._lent += lent
        self._waiting += waiting
        self._tell(self._lent, self._waiting)

    async def _wait(self) -> None:
        if self._waiting >= self._limits.reads_waiting_max:
            raise StoreBusyError(f"{self._waiting} callers are waiting for a connection of pool {self.name!r}")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._changed(waiting=1)
        try:
            async with asyncio.timeout(self._limits.connection_wait_s_max):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreBusyError(
                f"no connection of pool {self.name!r} came free in {self._limits.connection_wait_s_max:g} s"
            ) from None
        finally:
            self._changed(waiting=-1)
            self._waited(loop.time() - begun)

    def take_back(self, connection: PostgresConnection, *, closing: bool = False) -> None:
        """Take a connection back. The pool drops it if the caller closes it, or if its transaction is still open."""
        if not closing and not connection.is_closed():
            if connection.is_in_transaction():
                connection.terminate()
            else:
                self._idle.append(connection)
        self._changed(lent=-1)
        self._slots.release()

    async def close(self) -> None:
        """Wait until all lent connections are back, then close all connections."""
        for _ in range(self.connections):
            await self._slots.acquire()
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=self._limits.connect_timeout_s)
            except (OSError, TimeoutError):
                connection.terminate()
        for _ in range(self.connections):  # without this loop, a second `close` would wait forever
            self._slots.release()

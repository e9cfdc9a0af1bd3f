"""A connection pool opens a bounded number of connections when they are needed, and lends them to callers.

The most important rules: every wait for a connection is bounded, and a pool never keeps a connection that has an open
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from storage.errors import StoreBusyError


class PooledConnection(Protocol):
    """The methods of a connection that a connection pool calls."""

    def is_closed(self) -> bool:
        """Return whether the connection is closed."""

    def is_in_transaction(self) -> bool:
        """Return whether the borrower left a transaction open."""

    def terminate(self) -> None:
        """Drop the connection immediately, without a message to the server."""

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the driver has it
        """Close the connection properly, in at most `timeout` seconds."""


C = TypeVar("C", bound=PooledConnection)


@dataclass(frozen=True, slots=True)
class ConnectionPoolLimits:
    connections: int  # the largest number of connections that are lent at the same time
    waiting_max: int  # the largest number of callers that wait for a connection at the same time
    wait_s_max: float  # the longest time that one caller waits
    close_s_max: float  # the longest time for closing one connection


class ConnectionPool(Generic[C]):
    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[C]],
        limits: ConnectionPoolLimits,
        *,
        waited: Callable[[float], None],
        lent: Callable[[int, int], None] = lambda lent, waiting: None,
    ) -> None:
        """Prepare a pool without opening a connection.

        The pool calls `waited` with the seconds of each wait for a connection. It calls `lent` with the number of lent
        connections and the number of waiting callers whenever one of them changes.
        """
        self.name, self.limits = name, limits
        self._connect, self._waited, self._tell = connect, waited, lent
        self._lent = 0
        self._slots = asyncio.Semaphore(limits.connections)
        self._idle: list[C] = []
        self._waiting = 0
        self._changed()

    @property
    def waiting(self) -> int:
        return self._waiting

    async def lend_connection(self) -> C:
        """Return a connection. The caller has to give it back with `take_back`.

        Raises:
            StoreBusyError: too many callers wait, or no connection came free within `wait_s_max` seconds.
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
        if self._waiting >= self.limits.waiting_max:
            raise StoreBusyError(f"{self._waiting} callers are waiting for a connection of pool {self.name!r}")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._changed(waiting=1)
        try:
            async with asyncio.timeout(self.limits.wait_s_max):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreBusyError(
                f"no connection of pool {self.name!r} came free in {self.limits.wait_s_max:g} s"
            ) from None
        finally:
            self._changed(waiting=-1)
            self._waited(loop.time() - begun)

    def take_back(self, connection: C) -> None:
        """Take a connection back. The pool drops a connection whose transaction is still open."""
        if not connection.is_closed():
            if connection.is_in_transaction():
                connection.terminate()
            else:
                self._idle.append(connection)
        self._changed(lent=-1)
        self._slots.release()

    async def close(self) -> None:
        """Wait until all lent connections are back, then close all connections."""
        for _ in range(self.limits.connections):
            await self._slots.acquire()
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=self.limits.close_s_max)
            except (OSError, TimeoutError):
                connection.terminate()
        for _ in range(self.limits.connections):  # without this loop, a second `close` would wait forever
            self._slots.release()

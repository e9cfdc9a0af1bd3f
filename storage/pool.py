"""Connections that are lent: at most so many, made when they are needed, the one used last lent first.

The rule: whoever waits, waits within a bound, and a connection comes back idle or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from .errors import StoreBusy


class Lendable(Protocol):
    """What a pool needs to know about a connection."""

    def is_closed(self) -> bool:
        """Whether it is of no more use."""

    def is_in_transaction(self) -> bool:
        """Whether the borrower left something unfinished."""

    def terminate(self) -> None:
        """Give it up without a word to the server."""

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the driver has it
        """Say goodbye."""


C = TypeVar("C", bound=Lendable)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The bounds of one pool."""

    connections: int
    waiting_max: int
    wait_s_max: float
    close_s_max: float


class Pool(Generic[C]):
    """Lends connections that `connect` makes."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[C]],
        limits: PoolLimits,
        *,
        waited: Callable[[float], None],
        lent: Callable[[int, int], None] = lambda lent, waiting: None,
    ) -> None:
        """`waited` is told of each wait, `lent` how many are lent and wait after each change."""
        self.name, self.limits = name, limits
        self._connect, self._waited, self._tell = connect, waited, lent
        self._lent = 0
        self._slots = asyncio.Semaphore(limits.connections)
        self._idle: list[C] = []
        self._waiting = 0
        self._changed()

    @property
    def waiting(self) -> int:
        """How many wait for a connection."""
        return self._waiting

    async def take(self) -> C:
        """A connection, to be given back.

        Raises:
            StoreBusy: too many wait, or none came free in time.
            What `connect` raises.
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
            raise StoreBusy(f"{self._waiting} wait for a connection of {self.name!r}")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._changed(waiting=1)
        try:
            async with asyncio.timeout(self.limits.wait_s_max):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreBusy(f"no connection of {self.name!r} came free in {self.limits.wait_s_max:g} s") from None
        finally:
            self._changed(waiting=-1)
            self._waited(loop.time() - begun)

    def give_back(self, connection: C) -> None:
        """The connection as it was taken; one that is left inside a transaction is given up."""
        if not connection.is_closed():
            if connection.is_in_transaction():
                connection.terminate()
            else:
                self._idle.append(connection)
        self._changed(lent=-1)
        self._slots.release()

    async def close(self) -> None:
        """Wait for what is lent, then close every connection."""
        for _ in range(self.limits.connections):
            await self._slots.acquire()
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=self.limits.close_s_max)
            except (OSError, TimeoutError):
                connection.terminate()
        for _ in range(self.limits.connections):  # to close again is harmless
            self._slots.release()

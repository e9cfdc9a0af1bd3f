"""The port that every store implements.

Logic above it is written once, as programs: generators that yield built queries and get rows. A program runs against
one snapshot (`read`) or in one transaction (`write`). On SQLite a whole program costs one thread hop; on PostgreSQL it
runs on one connection. A program may be run again after a lost race, so it is passed as a function that makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from querybuilder import Built, Dialect

T = TypeVar("T")

Row = Sequence[Any]
Rows = list[Row]
# Yields a query and is sent its rows. A write without RETURNING answers one row: the number of rows it touched.
Program = Generator[Built, Rows, T]


class StoreSize(NamedTuple):
    """How large a store is; `disk_free_bytes` None where its disk is another machine's."""

    store_bytes: int
    disk_free_bytes: int | None


class Store(Protocol):
    """Executes programs; the only way to the data."""

    dialect: Dialect
    sole_writer: bool  # nobody else writes here, one transaction after the other: no board goes away within one
    damaged: asyncio.Event  # set once what is stored is found to be damaged: nothing is written any more
    writes_at_once: int  # write programs that may run at the same time; more would stand in line

    def of(self, board_id: str) -> Store:
        """This store by the connections that are there for a board: the same object for boards that share them."""
        ...

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        """Run against one snapshot that holds every write acknowledged before the call.

        `heavy` programs (long scans) have connections of their own, so that they never stand before point reads.

        Raises:
            StoreBusy: the store did not answer within its bounds.
        """
        ...

    async def read_one(self, query: Built) -> Rows:
        """The rows of one query: `read` without what only several queries need.

        Raises:
            StoreBusy: the store did not answer within its bounds.
        """
        ...

    async def write(self, program: Callable[[], Program[T]]) -> T:
        """Run in one transaction, durable when this returns; any exception of the program rolls it back.

        Raises:
            StoreDamaged, StoreFull: nothing was written, and trying again does not help by itself.
            StoreBusy: the store did not answer within its bounds.
        """
        ...

    async def write_one(self, query: Built) -> Rows:
        """The rows of one statement that is a transaction of its own: `write` without what only several queries need.

        Raises:
            LostRace: another transaction came between, or what `Chained.exactly` asks for was not so: nothing changed.
            OutcomeUnknown: the connection was lost before the answer.
            StoreBusy: the store did not answer within its bounds.
        """
        ...

    async def size(self) -> StoreSize:
        """Return how large the store is now.

        Raises:
            StoreBusy: the store did not answer within its bounds.
        """
        ...

    async def close(self) -> None:
        """Finish what runs and let the store go."""
        ...

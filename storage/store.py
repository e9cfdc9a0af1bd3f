"""The interface through which programs read and write stored data. Every engine implements it.

The docstring of the package `storage` explains programs with an example. On SQLite, a whole program costs at most one
hop to another thread. On PostgreSQL, it runs on one connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from querybuilder import Bound, Dialect

T = TypeVar("T")

Row = Sequence[Any]
Rows = list[Row]
# A program yields a query and receives its rows. After a write without RETURNING, the program receives one row, which
# holds the number of rows written.
Program = Generator[Bound, Rows, T]
# The partition for the catalog, the keys and everything else that belongs to no board. See `schema.placement`.
CONTROL = -1


class PartitionSize(NamedTuple):
    """The size and location of a partition with boards, or of the control partition if it has its own schema."""

    number: int
    store_bytes: int | None  # None: the server that holds the partition does not answer
    schema: str | None = None  # None: the partition has no schema of its own
    node: str | None = None  # with Citus, the server that holds the partition, as host:port


class StoreSize(NamedTuple):
    """The size of a store. `disk_free_bytes` is None if the store's disk is on another machine."""

    store_bytes: int
    disk_free_bytes: int | None
    partitions: tuple[PartitionSize, ...] = ()  # in the order of their numbers


class Store(Protocol):
    """Runs programs. Code outside the engines has no other way to read or write stored data.

    Every method that reads or writes raises `StoreBusyError` if the store does not respond within the allowed time.
    """

    dialect: Dialect
    sole_writer: bool  # only this process writes, one program at a time, so no board is deleted while a program writes
    damaged: asyncio.Event  # set when the store finds damaged data; from then on the store refuses to write
    writes_at_once: int  # how many write programs may run at the same time; further ones wait

    @property
    def partitions(self) -> int:
        """The number of partitions that hold boards, as far as this process knows. They are numbered from 0."""
        ...

    def at(self, partition: int) -> Store:
        """Return a store that runs programs in one partition. Without `at`, programs run in partition `CONTROL`."""
        ...

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        """Run a program against one snapshot, which includes every write that was acknowledged before the call.

        `heavy` programs (long scans) use separate connections, so that point reads never wait for them.
        """
        ...

    async def read_query(self, query: Bound) -> Rows:
        """Read the rows of one query. Other modules call `read_single` instead, which takes a program."""
        ...

    async def write(self, program: Callable[[], Program[T]]) -> T:
        """Run a program in one transaction. When this method returns, the transaction is durable.

        Any exception from the program rolls the transaction back and reaches the caller.

        Raises:
            StoreDamagedError, StoreFullError: nothing was written. Trying again does not help until an operator acts.
            OutcomeUnknownError: the connection was lost before the commit was confirmed.
        """
        ...

    async def size(self) -> StoreSize: ...

    async def close(self) -> None:
        """Wait until running programs have finished, then release the store."""
        ...


def in_partition(partition: int, program: Program[T]) -> Program[T]:
    """Run a program in a partition, as a part of a program that runs in another partition.

    For a single query, use `Bound.at`.
    """
    try:
        query = next(program)
        while True:
            query = program.send((yield query.at(partition)))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        program.close()


def count_changed(program: Program[T]) -> Program[tuple[T, int]]:
    """Run a program as a part of another one. Return its result, and how many rows its statements changed."""
    changed = 0
    try:
        query = next(program)
        while True:
            rows = yield query
            changed += query.query.count_changed(rows)
            query = program.send(rows)
    except StopIteration as done:
        return done.value, changed
    finally:
        program.close()


async def read_single(store: Store, program: Callable[[], Program[T]]) -> T:
    """Run a program of one query. This is cheaper than `Store.read`: a single query needs no transaction around it."""
    running = program()
    try:
        running.send(await store.read_query(next(running)))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    running.close()
    raise RuntimeError("this program has several queries: run it with Store.read")


async def read_steps(store: Store, program: Callable[[], Program[T]]) -> T:
    """Run a program's queries one by one, without a common snapshot. On PostgreSQL this saves a transaction."""
    running = program()
    try:
        query = next(running)
        while True:
            query = running.send(await store.read_query(query))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        running.close()

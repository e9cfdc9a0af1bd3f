"""A store that forwards every call to another store. Test stores override single methods of this store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from querybuilder import Bound, Dialect
from storage.store import Program, Rows, Store, StoreSize, in_partition

T = TypeVar("T")


class PassingStore:
    """A store that forwards every call to the store that it was created with. `Store` describes the methods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dialect, self.sole_writer, self.writes_at_once = store.dialect, store.sole_writer, store.writes_at_once
        self.damaged = store.damaged
        self._views: dict[int, PartitionView] = {}

    @property
    def partitions(self) -> int:
        return self._store.partitions

    def at(self, partition: int) -> Store:
        """Return a view that forwards every call to this store, so that a subclass receives the calls of all views."""
        if partition not in self._views:
            self._views[partition] = PartitionView(self, partition, self._store.at(partition).dialect)
        return self._views[partition]

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        return await self._store.read(program, heavy=heavy)

    async def read_query(self, query: Bound) -> Rows:
        return await self._store.read_query(query)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._store.write(program)

    async def size(self) -> StoreSize:
        return await self._store.size()

    async def close(self) -> None:
        await self._store.close()


class PartitionView(PassingStore):
    """A view of a passing store, whose programs run for one partition."""

    def __init__(self, store: PassingStore, partition: int, dialect: Dialect) -> None:
        super().__init__(store)
        self._partition, self.dialect = partition, dialect

    def at(self, partition: int) -> Store:
        return self._store.at(partition)

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        return await self._store.read(lambda: in_partition(self._partition, program()), heavy=heavy)

    async def read_query(self, query: Bound) -> Rows:
        return await self._store.read_query(self._place(query))

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._store.write(lambda: in_partition(self._partition, program()))

    def _place(self, query: Bound) -> Bound:
        return query if query.partition is not None else structs.replace(query, partition=self._partition)

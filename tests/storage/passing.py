"""A store that forwards every call to another store. Test stores override single methods of this store."""

from collections.abc import Callable
from typing import TypeVar

from querybuilder import Bound
from storage.records import Board
from storage.store import Program, Rows, Store, StoreSize

T = TypeVar("T")


class PassingStore:
    """A store that forwards every call to the store that it was created with. `Store` describes the methods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dialect, self.sole_writer, self.writes_at_once = store.dialect, store.sole_writer, store.writes_at_once
        self.damaged = store.damaged

    @property
    def partitions(self) -> int:
        return self._store.partitions

    def at(self, partition: int) -> Store:
        """Return this store, so that a subclass receives the calls for every partition."""
        return self

    def for_board(self, board: Board) -> Store:
        """Return this store, so that a subclass receives the calls for every board."""
        return self

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        return await self._store.read(program, heavy=heavy)

    async def read_query(self, query: Bound) -> Rows:
        return await self._store.read_query(query)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._store.write(program)

    async def write_query(self, query: Bound) -> Rows:
        return await self._store.write_query(query)

    async def size(self) -> StoreSize:
        return await self._store.size()

    async def close(self) -> None:
        await self._store.close()

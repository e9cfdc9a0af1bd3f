"""A store that runs another writer's query between a program's statements, in the program's own transaction."""

import asyncio
import itertools
from collections.abc import Callable
from typing import TypeVar

from querybuilder import Bound, col, plus, update
from storage.boards.row_tables import layout_of, scope_of
from storage.records import Board
from storage.store import Program, Rows, Store
from tests.storage.passing import PassingStore

T = TypeVar("T")

READS_OF_A_GROUP = 1  # a group has read its rows after this many statements


def version_moved(store: Store, board: Board, owner: str) -> Bound:
    """Return a query that changes the version of a row, as another writer would do."""
    layout = layout_of(board)
    moved = update(layout.table).set(updated_at=plus(col("updated_at"), 1)).where(*layout.scope())
    return moved.where(col("owner").eq(owner)).bind(**scope_of(board))


def interpose(program: Program[T], before: Callable[[Bound], Program[None] | None]) -> Program[T]:
    """Run a program. Before each of its queries, call `before`, and run the program that it returns."""
    try:
        query = next(program)
        while True:
            yield from before(query) or ()
            query = program.send((yield query))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


class MeddlingStore(PassingStore):
    """Run a query of `meddle` in each transaction, before its statement `before_statement` (0-based)."""

    def __init__(
        self, store: Store, meddle: list[Bound | Exception] | None = None, *, before_statement: int = READS_OF_A_GROUP
    ) -> None:
        super().__init__(store)
        self.sole_writer = False
        self.meddle, self._before_statement = meddle or [], before_statement
        self._free, self._begun = asyncio.Event(), asyncio.Event()
        self._free.set()
        self.writes = 0

    def hold(self) -> None:
        """Block every write until `release` is called."""
        self._free.clear()
        self._begun.clear()

    async def wait_for_write(self) -> None:
        await self._begun.wait()

    def release(self) -> None:
        self._free.set()

    async def write(self, program: Callable[[], Program[T]]) -> T:
        self.writes += 1
        what = self.meddle.pop(0) if self.meddle else None
        self._begun.set()
        await self._free.wait()
        return await self._store.write(lambda: self._meddled(program(), what))

    def _meddled(self, program: Program[T], what: Bound | Exception | None) -> Program[T]:
        statements = itertools.count()

        def meddle(_query: Bound) -> Program[None]:
            if next(statements) == self._before_statement:
                if isinstance(what, Exception):
                    raise what
                if what is not None:
                    yield what

        return interpose(program, meddle)


class SlowReads(MeddlingStore):
    """A store whose reads return their rows only after the test calls `release`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.answered, self.go = asyncio.Event(), asyncio.Event()

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        try:
            return await super().read(program, heavy=heavy)
        finally:
            self.answered.set()
            await self.go.wait()


def run_query(query: Bound) -> Program[Rows]:
    """Run one query, and return its rows."""
    return (yield query)

"""A store that runs another writer's query between a program's statements, in the program's own transaction."""

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import TypeVar

from querybuilder import Bound, col, plus, update
from storage.errors import StoreAwayError
from storage.leaves.row_tables import layout_of, scope_of
from storage.records import Board
from storage.store import Program, Rows, Store
from tests.storage.passing import PassingStore

T = TypeVar("T")

READS_OF_A_GROUP = 1  # a group has read its rows after this many statements


def version_moved(store: Store, board: Board, owner: str) -> Bound:
    """Return a query that changes the version of a row, as another writer would do."""
    layout = layout_of(board.leaf)
    moved = update(layout.table).set(updated_at=plus(col("updated_at"), 1)).where(*layout.scope())
    return moved.where(col("owner").eq(owner)).bind(**scope_of(board.leaf))


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
        self.reads = self.writes = 0

    def hold(self) -> None:
        """Block every write until `release` is called."""
        self._free.clear()
        self._begun.clear()

    async def wait_for_write(self) -> None:
        await self._begun.wait()

    def release(self) -> None:
        self._free.set()

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        self.reads += 1
        return await super().read(program, heavy=heavy)

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


class RecordingStore(PassingStore):
    """A store that records the partition and the tables of each statement, by transaction.

    Statements that reach the partition `away` fail.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sole_writer = False
        self.writes: list[list[tuple[str, str]]] = []  # pairs of the first word of a statement and its table
        self.away: int | None = None

    def list_written_partitions(self) -> list[set[str]]:
        """Return the partitions that each transaction named, without transactions that named none."""
        named = [{table.partition(".")[0] for _, table in seen} for seen in self.writes]
        return [each for each in named if each]

    def _reach(self, query: Bound) -> None:
        if query.partition is not None and query.partition == self.away:
            raise StoreAwayError("away")

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        return await self._store.read(lambda: interpose(program(), self._reach), heavy=heavy)

    async def read_query(self, query: Bound) -> Rows:
        self._reach(query)
        return await super().read_query(query)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        seen: list[tuple[str, str]] = []
        self.writes.append(seen)

        def record(query: Bound) -> None:
            self._reach(query)
            dialect = self.dialect if query.partition is None else self._store.at(query.partition).dialect
            sql = query.build(dialect).sql
            seen.extend((sql.split()[0], f"{schema}.{table}") for schema, table in _TABLES.findall(sql))

        return await self._store.write(lambda: interpose(program(), record))


_TABLES = re.compile(r'"\w+_(control|p\d+)"\."(\w+?)(?:_\d+)?"')


def run_query(query: Bound) -> Program[Rows]:
    """Run one query, and return its rows."""
    return (yield query)

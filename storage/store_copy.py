"""Copies a whole store to another one, such as a SQLite file to PostgreSQL or back, while nothing writes to either.

    source   ── COPYING_TO: it serves reads only ────────────────────────> COPIED_TO: it is no longer served
    target   ── COPIED_FROM: it is not served ── pages ── all compared ──> in use, without a mark

These marks are rows of the table `meta`. Each transaction on the target writes a page of rows, and where the next page
starts, so that a copy that was killed continues after its last page. At the end, all rows of both stores are compared.

If both stores have the same partitions, every row stays as it is. Otherwise boards are redistributed: all boards of a
family go to one partition, and so do those of a shared table, with everything that belongs to them. The logs of all
partitions are merged by time, so changes get new positions. Data that refers to positions is left out: live counts,
curves' marks, and the index by owner.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from querybuilder import BLOB, CreateTable, col, delete, lit, max_, param, select, truncate
from storage.boards.shared_tables import BETWEEN, sweep_rows
from storage.curves.refresh_requests import store_refresh_request
from storage.errors import StoreCopyError
from storage.leaves.catalog_rows import CATALOG_ROWS, FAMILY_ROWS, RowKind, read_families, read_rows
from storage.leaves.leaf_copy import PAGE_PARTS, TableCopy
from storage.leaves.row_tables import Layout, create_row_table, define_row_table, layout_of, name_columns
from storage.log.change_log import change_log
from storage.schema import ingest_tables, tables
from storage.schema.creation import COPIED_FROM, COPIED_TO, COPYING_TO, check_meta, create_schema, is_apart, read_meta
from storage.schema.placement import TABLES, list_tables, prepare_put
from storage.store import CONTROL, Program, Row, Rows, Store, in_partition

Routed = list[tuple[int, Row]]  # pairs of a partition of the target and a row that goes there
# Each page, and where the next one begins, as a JSON value. None: it was the last page.
Pages = AsyncIterator[tuple[Routed, Any]]

_IN_NEW_STORES = (tables.SEQUENCES, tables.LOG_COUNTER)  # these tables have rows from the beginning
# If the partitions differ, the first tables have to be empty. The others are left out; services and jobs fill them.
_UNFINISHED = (ingest_tables.INGEST_BLOCKS, tables.OWNER_CHANGES)
_LEFT_OUT = (
    tables.LIVE_COUNTS, tables.LIVE_MARK, tables.JOURNAL_BLOCKS, tables.WORK_LEASES, ingest_tables.INGEST_SHARDS,
    tables.DROPPED_ROWS,
)  # fmt: skip
_OF_BOARDS = {name for place, name in list_tables(1, apart=True) if place != CONTROL}
_PLACED = (tables.BOARDS, tables.FAMILIES, tables.SHARED_TABLES)  # these tables say where a board is
_CURVE_VERSION = "curve_version"  # a sequence
_PROGRESS = "copy of "  # in `meta`, the names of the rows that say where the next page of a table begins
_DIGEST_BYTES = 16
_SET, _SET_SEQUENCE, _SET_COUNTER = map(prepare_put, (tables.META, *_IN_NEW_STORES))
_UNSET = delete(tables.META).where(col("name").ge(param("name")), col("name").le(param("last"))).prepared()


def begin_copy(target: str) -> Program[dict[str, str]]:
    """Mark a store as the source of a copy to `target`. Return what its `meta` contained before.

    From now on, no service that may write starts to serve it.

    Raises:
        StoreCopyError: the store is itself an incomplete copy.
    """
    meta = yield from read_meta()
    check_meta(meta)
    if COPIED_FROM in meta:
        raise StoreCopyError("the source is a copy that is not complete")
    if COPIED_TO not in meta:
        yield _SET.bind(name=COPYING_TO, content=target)
    return meta


def reopen_store() -> Program[None]:
    for name in (COPYING_TO, COPIED_TO):
        yield from _unset(name)


def _unset(name: str) -> Program[None]:
    yield _UNSET.bind(name=name, last=f"{name}\x7f")


class Spread:
    """Decides where rows go if the target's partitions differ from the source's."""

    def __init__(self, keys: Rows, sources: int, partitions: int, home: int) -> None:
        """Prepare the routes from `sources` partitions to `partitions`, one of which, `home`, has the catalog.

        `keys`: for each board, its own key, its family's key and its shared table's key.
        """
        self.sources, self.partitions, self._home = sources, partitions, home
        self._together: dict[int, int] = {key: family or table or key for key, family, table in keys}

    def find_place(self, key: int | None) -> int:
        """Find the partition for what belongs to the board, family or shared table with this key, even if deleted."""
        return 0 if key is None else self._together.get(key, key) % self.partitions

    def route(self, table: str, place: int, row: Row) -> Routed:
        """Decide where a row from a table in the source's partition `place` goes, and what it becomes there."""
        if table == tables.HIDDEN_OWNERS:  # every partition has all of them
            return [(partition, row) for partition in range(self.partitions)] if place == 0 else []
        if table == tables.FOLLOWERS:  # the changes get other numbers, so each follower finds that it has lost some
            return [(partition, (row[0], -1)) for partition in range(self.partitions)] if place == 0 else []
        values = dict(zip(TABLES[table].kinds, row, strict=True))
        if table in _PLACED:
            values["partition"] = self.find_place(row[0])
        if table == tables.SHARED_TABLES and self.sources > 1:
            values["layout"] += f" {row[0]}"  # two partitions may have equal tables: new boards get another one
        if table == tables.CURVES:  # versions of different partitions have to differ
            values |= {"version": values["version"] * self.sources + place, "mark": None}
        return [(self.find_place(row[0]) if table in _OF_BOARDS else self._home, tuple(values.values()))]


class CopiedTable(NamedTuple):
    """A table in the partition `place`, whose rows go unchanged to `there`, or to wherever `spread` routes them.

    `layout` is set if the table has boards' rows, in which case the target does not have the table yet.
    """

    table: CreateTable
    place: int
    there: int
    spread: Spread | None = None
    layout: Layout | None = None

    async def read_pages(self, store: Store, after: Any = ()) -> Pages:
        """Yield the pages after the key `after`. The empty key stands for the beginning."""
        copy = TableCopy(self.table, self.table, {})
        while after is not None:
            rows, after = await store.at(self.place).read(partial(copy.read_page, after), heavy=True)
            yield [routed for row in rows for routed in self._route(row)], after

    def _route(self, row: Row) -> Routed:
        if self.spread is None:
            return [(self.there, row)]
        return self.spread.route(self.table.name, self.place, row)


class MergedLog:
    """The logs of all the source's partitions, merged by time. The positions in each target begin with `first`.

    Changes before `since_us` are left out. All pruned logs begin then or earlier, so the merged ones have no gaps.
    """

    table, place = TABLES[tables.CHANGE_LOG], CONTROL

    def __init__(self, spread: Spread, first: int, since_us: int) -> None:
        self._spread, self._first, self._since_us = spread, first, since_us

    async def read_pages(self, store: Store, after: Any = ()) -> Pages:
        """Yield the pages after `after`, which holds each log's last read position and each target's next one."""
        read, following = after or ([0] * self._spread.sources, [self._first] * self._spread.partitions)
        logs = [self._read_rows(store, log, position) for log, position in enumerate(read)]
        heads = [await anext(log, None) for log in logs]
        page: Routed = []
        parts = 0
        while waiting := [(head[2], log) for log, head in enumerate(heads) if head is not None]:
            _, log = min(waiting)
            read[log], leaf_key, *rest = heads[log] or ()
            heads[log] = await anext(logs[log], None)
            target = self._spread.find_place(leaf_key)
            page.append((target, (following[target], leaf_key, *rest)))
            following[target] += 1
            parts += rest[1]
            if parts >= PAGE_PARTS:
                yield page, ([*read], [*following])
                page, parts = [], 0
        yield page, None

    async def _read_rows(self, store: Store, log: int, position: int) -> AsyncIterator[Row]:
        async for page, _ in CopiedTable(self.table, log, log).read_pages(store, [position]):
            for _, row in page:
                if row[2] >= self._since_us:
                    yield row


class StoreCopy:
    """One run of a copy, which continues where an earlier run stopped. `begin_copy` has marked the source."""

    def __init__(self, source: Store, target: Store, names: tuple[str, str], report: Callable[[str], object]) -> None:
        """Prepare a run. `names`: the stores' names, for messages. `report` receives a line after each step."""
        self._source, self._target, self._names, self._report = source, target, names, report
        self._here, self._there = _list_plain(source), _list_plain(target)
        self._copied: list[CopiedTable | MergedLog] = []
        self._pruned_before = 0  # of merged logs
        self._sequences: dict[str, int] = {}  # of a target with other partitions

    async def prepare(self, meta: dict[str, str]) -> bool:
        """Plan the copy, and mark the target. `meta`: from `begin_copy`. Return False if the copy is already complete.

        Raises:
            StoreCopyError: the target is not an empty store, or the source has work to finish first.
        """
        keys, layouts = await self._source.read(_read_catalog, heavy=True)
        spread = Spread(keys, self._source.partitions, self._target.partitions, self._there[0].place)
        is_same = [each[:2] for each in self._here] == [each[:2] for each in self._there]
        if is_same:
            self._copied += self._here
        else:
            await self._spread_rows(spread)
        for key, place, layout in layouts:
            there = place if is_same else spread.find_place(key)
            self._copied.append(CopiedTable(define_row_table(layout), place, there, layout=layout))
        return await self._target.write(partial(self._mark_target, meta))

    async def _spread_rows(self, spread: Spread) -> None:
        since_us = 0
        for table in self._here:
            name, read = table.table.name, self._source.at(table.place).read
            if name in _UNFINISHED and (await anext(table.read_pages(self._source)))[0]:
                raise StoreCopyError(f"for other partitions, {name} has to be empty: serve the source until it is")
            # Rows that no board uses could meet others of the same keys.
            while name == tables.DROPPED_ROWS and (await anext(table.read_pages(self._source)))[0]:
                await self._source.at(table.place).write(partial(sweep_rows, rows_max=PAGE_PARTS))
            if name == tables.SEQUENCES:
                page, _ = await anext(table.read_pages(self._source))
                for _, (sequence, number) in page:
                    number = (number + 1) * spread.sources if sequence == _CURVE_VERSION else number
                    self._sequences[sequence] = max(number, self._sequences.get(sequence, 0))
            if name == tables.LOG_COUNTER and (pruned_before := (await read(change_log.read_counter)).pruned_before):
                oldest_us = await read(change_log.oldest_us)
                since_us, self._pruned_before = max(since_us, oldest_us or 0), max(pruned_before, self._pruned_before)
            if name not in (*_UNFINISHED, *_LEFT_OUT, *_IN_NEW_STORES, tables.CHANGE_LOG):
                self._copied.append(table._replace(spread=spread))
        self._copied.append(MergedLog(spread, max(1, self._pruned_before), since_us))

    def _mark_target(self, meta: dict[str, str]) -> Program[bool]:
        if not is_apart(self._target.dialect):
            yield tables.META_TABLE.bind()
        found = yield from read_meta()
        if not found:
            yield from create_schema()
        elif check_meta(found) == meta["salt"]:
            if COPIED_FROM not in found and COPIED_TO not in meta:
                raise StoreCopyError("the target is the source itself, or an earlier copy of it")
            return COPIED_FROM in found
        for table in self._there:
            if table.table.name in _IN_NEW_STORES:
                yield truncate(table.table.name).bind().at(table.place)
            elif (yield select(lit(1)).from_(table.table.name).limit(1).bind().at(table.place)):
                raise StoreCopyError(f"the target is not empty: there are rows in {table.table.name}")
        yield _SET.bind(name="salt", content=meta["salt"])
        yield _SET.bind(name=COPIED_FROM, content=self._names[0])
        return True

    async def run(self) -> None:
        """Copy all rows, compare the stores, and mark the source as copied.

        Raises:
            StoreCopyError: the stores differ at the end.
        """
        progress = await self._target.read(read_meta)
        for table in self._copied:
            name = f"{_PROGRESS}{table.place}:{table.table.name}"
            after = json.loads(progress.get(name, "[]"))
            if after is None:
                continue
            if isinstance(table, CopiedTable) and table.layout is not None and name not in progress:
                await self._target.write(partial(_create_table, table.layout, table.there, name))
            writing = partial(_write_page, TableCopy(table.table, table.table, {}), table.table, name)
            async for page, following in table.read_pages(self._source, after):
                await self._target.write(partial(writing, page, json.dumps(following)))
            self._report(f"copied {table.table.name}")
        await self._compare()
        await self._source.write(self._finish_source)
        await self._target.write(self._finish_target)

    async def _compare(self) -> None:
        made = [each for each in self._copied if isinstance(each, CopiedTable) and each.layout is not None]
        copied = await _digest_rows(self._source, self._copied)
        found = await _digest_rows(self._target, [*self._there, *(each._replace(place=each.there) for each in made)])
        for place, name in sorted(copied.keys() | found.keys()):
            if copied[place, name] != found[place, name]:
                raise StoreCopyError(
                    f"the rows of {name} in partition {place} differ, because something else wrote to one of the "
                    "stores: begin again with an empty target"
                )
        self._report("compared all rows")

    def _finish_source(self) -> Program[None]:
        yield _SET.bind(name=COPIED_TO, content=self._names[1])
        yield from _unset(COPYING_TO)

    def _finish_target(self) -> Program[None]:
        if self._sequences:
            yield from self._finish_spread()
        yield from _unset(_PROGRESS)
        yield from _unset(COPIED_FROM)

    def _finish_spread(self) -> Program[None]:
        """Continue numbering after all partitions' numbers. Request curves, because the copied ones have no marks."""
        for table in self._there:
            if table.table.name == tables.SEQUENCES:
                for name, number in self._sequences.items():
                    yield _SET_SEQUENCE.bind(name=name, next=number).at(table.place)
            elif table.table.name == tables.LOG_COUNTER:
                [[last]] = yield select(max_(col("position"))).from_(tables.CHANGE_LOG).bind().at(table.place)
                # A log without changes counts as whole. Where there are some, the log of each board begins late enough.
                following, pruned_before = (1, 0) if last is None else (last + 1, self._pruned_before)
                counter = {"next": following, "changed_at": 0, "pruned_before": pruned_before, "facts": 0}
                yield _SET_COUNTER.bind(counter_key=0, **counter).at(table.place)
        for partition in range(self._target.partitions):
            curves = select(col("leaf_key"), col("column_index")).from_(tables.CURVES)
            for leaf_key, column_index in (yield curves.bind().at(partition)):
                yield from store_refresh_request((leaf_key, column_index))


def _list_plain(store: Store) -> list[CopiedTable]:
    """List the tables that the schema declares, starting with the catalog's. Their rows stay as they are."""
    names = list_tables(store.partitions, apart=is_apart(store.dialect))
    return [CopiedTable(TABLES[name], place, place) for place, name in names]


def _read_catalog() -> Program[tuple[Rows, list[tuple[int, int, Layout]]]]:
    keys = yield select(*map(col, ("board_key", "family_key", "table_key"))).from_(tables.BOARDS).packed().bind()
    shared = yield select(*map(col, ("table_key", "partition", "columns"))).from_(tables.SHARED_TABLES).bind()
    layouts = [(key, place, name_columns(key, columns.split(BETWEEN))) for key, place, columns in shared]
    for family in (yield from read_families(FAMILY_ROWS.bind())):
        layouts.append((family.key, family.partition, layout_of(family.template_board.leaf)))
    own = CATALOG_ROWS.where(col("archived_at").is_null(), col("table_key").is_null())
    for row in (yield from read_rows(own.bind())):
        if row.kind is not RowKind.SPREAD:
            layouts.append((row.leaf.key, row.leaf.partition, layout_of(row.leaf)))
    return keys, layouts


def _create_table(layout: Layout, place: int, name: str) -> Program[None]:
    yield from in_partition(place, create_row_table(layout))
    yield _SET.bind(name=name, content="[]")


def _write_page(copy: TableCopy, table: CreateTable, name: str, page: Routed, following: str) -> Program[None]:
    by_place: dict[int, Rows] = defaultdict(list)
    for place, row in page:
        by_place[place].append(row)
    for place, rows in by_place.items():
        if BLOB in table.kinds.values():  # SQLite takes many rows as JSON, which has no form for bytes
            put = prepare_put(table.name)
            for row in rows:
                yield put.bind(**dict(zip(table.kinds, row, strict=True))).at(place)
        else:
            yield from in_partition(place, copy.write_rows(rows))
    yield _SET.bind(name=name, content=following)


async def _digest_rows(store: Store, copied: Iterable[CopiedTable | MergedLog]) -> Counter[tuple[int, str]]:
    """Sum up the hashes of all rows, by partition and table, so that the result does not depend on the rows' order."""
    digests = Counter[tuple[int, str]]()
    for table in copied:
        async for page, _ in table.read_pages(store):
            for place, row in page:
                hashed = hashlib.blake2b(msgspec.msgpack.encode(tuple(row)), digest_size=_DIGEST_BYTES)
                digests[place, table.table.name] += int.from_bytes(hashed.digest())
    return digests

"""Copies a leaf's rows and post ids to other leaves while posts continue, and catches up with what they change.

- The change log names the owners whose rows have changed since it was last read. These rows are copied again.
- New post ids are found by time, because a transaction stores the same time in the log and with its post ids.
- An erased owner has no name in the log. So after an erasure, the rows of all copied owners are copied again.

A statement only reaches the tables of one partition. So this process reads rows in the leaf's partition, and writes
them in the partitions of the target leaves.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from querybuilder import (
    BLOB,
    INTEGER,
    CreateTable,
    Prepared,
    Select,
    asc,
    col,
    delete,
    hold_table,
    insert,
    param,
    select,
)
from storage.errors import JournalIncompleteError, LostRaceError
from storage.log.bundles import NAMELESS, owners_of
from storage.log.change_log import LogPages, change_log, count_rows_holding, last_number_before
from storage.records import Leaf, segment_of
from storage.schema.ingest_tables import INGEST_BLOCKS
from storage.schema.placement import TABLES
from storage.schema.sequences import take_number
from storage.schema.tables import CHANGE_LOG, CURVES, HIDDEN_ENTRIES, OF_OWNERS, POST_IDS
from storage.store import Program, Row, Rows, in_partition

from .hidden_owners import find_hidden_owners
from .row_tables import define_row_table, layout_of, scope_of

T = TypeVar("T")

PAGE_ROWS = 5_000
PAGE_DOCUMENTS = 50  # rows in a page of a table with large documents: archive blocks or curves
PAGE_PARTS = 20_000  # about how many changes or posts a page has if its rows have several
_PARTS = {CHANGE_LOG: "changes", INGEST_BLOCKS: "posts"}  # the columns that count them


class TableCopy:
    """Programs that copy the rows of one table, page by page in the order of the table's key."""

    def __init__(self, source: CreateTable, target: CreateTable, scope: dict[str, int]) -> None:
        """Prepare the statements. `scope`: name and value of the first key column, to copy only one leaf's rows."""
        self._scope, self._keys = scope, source.keys[len(scope) :]
        self._key_at = [[*source.kinds].index(key) for key in self._keys]  # where a row has them
        self.page_rows = PAGE_DOCUMENTS if BLOB in source.kinds.values() else PAGE_ROWS
        self._rows = self._select(source, *source.kinds)
        self._pages = self._prepare_pages(self._rows)
        parts = _PARTS.get(source.name)
        self._parts = None if parts is None else self._prepare_pages(self._select(source, parts))
        written = insert(target.name).rows(param("rows"), **target.kinds)
        self._write = written.on_conflict(*target.keys).overwrite().prepared()

    def _select(self, source: CreateTable, *names: str) -> Select:
        theirs = (col(name).eq(param(name, INTEGER)) for name in self._scope)
        return select(*map(col, names)).from_(source.name).where(*theirs)

    def _prepare_pages(self, rows: Select) -> list[Prepared]:
        """Prepare a statement for each length of the key after which a page starts. Each reads a range of an index."""
        page = rows.order_by(*(asc(col(key)) for key in self._keys)).limit(param("limit"))
        pages = [page.prepared()]
        for index, last in enumerate(self._keys):
            same = (col(key).eq(param(key)) for key in self._keys[:index])
            pages.append(page.where(*same, col(last).gt(param(last))).prepared())
        return pages

    def read_page(self, after: Row) -> Program[tuple[Rows, Row | None]]:
        """Read a page of rows after the key `after`, and the key to pass for the next page, or None at the end.

        An empty `after` gives the first page. A row has all columns, while a key has the key columns that are not in
        `scope`. A shorter key covers all rows with its values, so that a page starts after all of them.
        """
        bound, limit = {**self._scope, **dict(zip(self._keys, after, strict=False))}, self.page_rows
        if self._parts is not None:
            sizes = yield self._parts[len(after)].bind(**bound, limit=limit)
            limit = max(1, count_rows_holding(sizes, PAGE_PARTS))
        rows = yield self._pages[len(after)].bind(**bound, limit=limit)
        return rows, self.key_of(rows[-1]) if len(rows) == limit else after[:-1] or None

    def key_of(self, row: Row) -> Row:
        return [row[index] for index in self._key_at]

    def write_rows(self, rows: Rows) -> Program[None]:
        if rows:
            yield self._write.bind(rows=[tuple(row) for row in rows])


class RowsCopy(TableCopy):
    """Programs that copy a leaf's rows, and recopy the rows of given owners after posts have changed them."""

    def __init__(self, here: Leaf, there: Leaf) -> None:
        source, target = layout_of(here), layout_of(there)
        super().__init__(define_row_table(source), define_row_table(target), scope_of(here))
        theirs = col("owner").in_(param("owners"))
        self._by_owners = self._rows.where(theirs).prepared()
        self._remove = delete(target.table).where(*target.scope(), theirs).prepared()

    def owner_of(self, row: Row) -> str:
        return str(self.key_of(row)[0])

    def read_owners(self, owners: Sequence[str]) -> Program[Rows]:
        rows: Rows = []
        for some in _chunks(owners):
            rows += yield self._by_owners.bind(owners=some, **self._scope)
        return rows

    def write_owners(self, owners: Iterable[str], rows: Rows) -> Program[None]:
        """Write `rows`, and remove the rows of those `owners` who have none in `rows`."""
        for some in _chunks(rows):
            yield from self.write_rows([*some])
        kept = set(map(self.owner_of, rows))
        for some in _chunks([owner for owner in owners if owner not in kept]):
            yield self._remove.bind(owners=some, **self._scope)


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), PAGE_ROWS):
        yield items[start : start + PAGE_ROWS]


class LeafChanges(NamedTuple):
    until: int  # the second mark: the next read of changes begins there
    more: bool  # whether the log already has further changes
    owners: list[str]  # the owners whose rows may have changed
    rows: Rows  # the current rows of these owners
    post_ids: Rows  # the rows of the post ids that were stored with these changes
    erased: bool  # whether an owner of a change was erased: then the rows of all copied owners must be copied again


class LeafCopy:
    """Programs that copy one leaf to others. Run them in the control partition unless a docstring says otherwise."""

    def __init__(self, leaf: Leaf, targets: Sequence[Leaf]) -> None:
        """Prepare to copy a leaf to one target, or to several targets that share its owners between them."""
        self.source, self.targets = leaf, tuple(targets)
        self.rows: list[RowsCopy] = []  # one for each target; empty: the leaf has an archive instead of rows
        if leaf.archived_us is None:
            self.rows = [RowsCopy(leaf, target) for target in targets]
        self.post_ids = self._copy_table(POST_IDS)

    def _copy_table(self, table: str) -> TableCopy:
        return TableCopy(TABLES[table], TABLES[table], {"leaf_key": self.source.key})

    def share(self, items: Iterable[T], owner_of: Callable[[T], str]) -> list[list[T]]:
        shares: list[list[T]] = [[] for _ in self.targets]
        for item in items:
            shares[segment_of(owner_of(item), len(shares))].append(item)
        return shares

    def write_owners(self, owners: Sequence[str], rows: Rows) -> Program[None]:
        """Write `rows` to the targets, and remove there the rows of those `owners` who have none in `rows`."""
        shares = zip(self.share(owners, str), self.share(rows, self.rows[0].owner_of), strict=True)
        for target, table, (theirs, their_rows) in zip(self.targets, self.rows, shares, strict=True):
            yield from in_partition(target.partition, table.write_owners(theirs, their_rows))

    def write_post_ids(self, rows: Rows) -> Program[None]:
        """Copy all post ids to every target, because an owner's stored hash does not reveal the owner's segment."""
        for target in self.targets:
            theirs = rows if target.key == self.source.key else [_rename_post_id(row, target.key) for row in rows]
            yield from in_partition(target.partition, self.post_ids.write_rows(theirs))

    def read_changes(self, mark: int) -> Program[LeafChanges]:
        """Read what has changed in the leaf since `mark`, a log position. Run this in the leaf's partition.

        Raises:
            JournalIncompleteError: some of these changes were pruned from the log.
        """
        log = yield from change_log.read_counter()
        if log.pruned_before > mark:
            raise JournalIncompleteError("the log was pruned during the move; raise change_log_retention_s")
        read = _PAGES.read_page(last_number_before(mark), changes_max=PAGE_ROWS, boards=[self.source.key])
        bundles = [bundle for bundle in (yield from read) if bundle[0] < log.mark]
        more = sum(changes for *_, changes in bundles) >= PAGE_ROWS
        owners, has_nameless = _list_names([row[2] for row in bundles])
        rows = (yield from self.rows[0].read_owners(owners)) if self.rows else []
        ids = yield from self._read_new_post_ids(sorted({row[1] for row in bundles}))
        erased = has_nameless and bool(self.rows)
        return LeafChanges(bundles[-1][0] + 1 if more else log.mark, more, owners, rows, ids, erased)

    def _read_new_post_ids(self, times_us: list[int]) -> Program[Rows]:
        found = (yield _NEW_POST_IDS.bind(times=times_us)) if times_us else []
        return [row for row in found if row[0] == self.source.key]

    def write_changes(self, changes: LeafChanges) -> Program[None]:
        if self.rows:
            yield from self.write_owners(changes.owners, changes.rows)
        yield from self.write_post_ids(changes.post_ids)

    def hold(self, mark: int) -> Program[LeafChanges]:
        """Lock the leaf's table, so that posts wait, and return the changes after `mark`. See `BoardCopy.switch`."""
        if self.rows:
            yield hold_table(layout_of(self.source).table).bind().at(self.source.partition)
        found = yield from in_partition(self.source.partition, self.read_changes(mark))
        if found.more or found.erased:
            raise LostRaceError("too much has changed since the rows were copied")
        return found

    def copy_small_table(self, name: str) -> Program[None]:
        """Copy the leaf's rows in the table `name`, which must be one of `OF_OWNERS` if there are several targets.

        Raises:
            LostRaceError: a hidden owner is being shown again.
        """
        table, after = self._copy_table(name), _BEGINNING
        while after is not None:
            rows, after = yield from in_partition(self.source.partition, table.read_page(after))
            shares = self.share(rows, lambda row: str(row[1])) if name in OF_OWNERS else [rows]
            for target, theirs in zip(self.targets, shares, strict=True):
                yield from in_partition(target.partition, _write_small_rows(table, name, target, theirs))


def _list_names(texts: Iterable[str]) -> tuple[list[str], bool]:
    names = {name for text in texts for name in owners_of(text)} - {""}
    owners = sorted(name for name in names if not name.startswith(NAMELESS))
    return owners, len(owners) < len(names)


def _write_small_rows(table: TableCopy, name: str, target: Leaf, rows: Rows) -> Program[None]:
    if name == HIDDEN_ENTRIES:
        yield from _hold_hidden([row[1] for row in rows])
    if name == CURVES:
        rows = yield from _number_curves(rows)
    yield from table.write_rows([(target.key, *row[1:]) for row in rows])


def _hold_hidden(owners: Sequence[str]) -> Program[None]:
    """Check that these owners are hidden, and lock their states so that they stay hidden until the transaction ends.

    Raises:
        LostRaceError: an owner is being shown again. To show an owner, one partition after the other is searched for
            the owner's boards, so a board must not move during that time.
    """
    if owners and len((yield from find_hidden_owners(owners, held=True))) < len(owners):
        raise LostRaceError("an owner is being shown")


def _rename_post_id(row: Row, leaf_key: int) -> Row:
    values = dict(zip(TABLES[POST_IDS].kinds, row, strict=True))
    outcome = [[leaf_key, *part[1:]] for part in json.loads(values["outcome"])]
    return tuple((values | {"leaf_key": leaf_key, "outcome": json.dumps(outcome)}).values())


def _number_curves(rows: Rows) -> Program[Rows]:
    """Assign new version numbers to copied curves, and remove their marks, which are positions in the source's log.

    The new versions exceed the old ones, so that a process that has the old curves recognizes the copies as newer.
    """
    numbered: Rows = []
    names = list(TABLES[CURVES].kinds)
    for row in rows:
        curve = dict(zip(names, row, strict=True))
        taken = yield from take_number("curve_version")
        if taken <= curve["version"]:
            taken = yield from take_number("curve_version", curve["version"] - taken + 1)
        numbered.append(tuple((curve | {"version": taken, "mark": None}).values()))
    return numbered


_BEGINNING: Row | None = ()  # with this key, `TableCopy.read_page` returns the first page
_PAGES = LogPages("position", "updated_at", "owners", "changes")
_new_post_ids = select(*map(col, TABLES[POST_IDS].kinds)).from_(POST_IDS)
_NEW_POST_IDS = _new_post_ids.where(col("remembered_at").in_(param("times"))).packed().prepared()

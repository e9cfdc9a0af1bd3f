"""Finds, writes (for posts) and erases rows by owner: `Entries` does this for a leaf, `TableRows` for a table."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Insert,
    Lock,
    Prepared,
    all_of,
    asc,
    col,
    delete,
    excluded,
    insert,
    null,
    param,
    plus,
    rows,
    select,
    union_all,
    update,
)
from storage.errors import LostRaceError
from storage.log.bundles import ChangeKind, record_of_event
from storage.log.cells import RankedCells
from storage.log.change_log import Logged, NewChange, change_log
from storage.log.merging import Merger
from storage.records import BoardSpec, Entry, Leaf
from storage.schema.tables import TOTALS
from storage.store import Program

from .gates import hold_rows_key
from .rankings import OpenLeaf
from .row_rankings import RowRanking, decode_entry
from .row_tables import ROWS_KEY, SHARED_STATEMENTS_MAX, Layout, layout_of, scope_of
from .totals import ALL_ENTRIES, CHANGES, check_copy, totals_and_edition

UPDATE_STATEMENTS_MAX = 256  # the most compiled updates kept for a table, one for each set of changed columns
_ROW_ALIAS = "v"
_HELD = "e"

RowId = tuple[int, str]  # the leaf's key in the table, and the owner


class TableRows:
    """Programs that find, lock and write the rows of one table, for a single leaf or for several leaves that share it.

    One statement covers all leaves that share a table, so the cost of a transaction does not grow with the number of
    leaves. In a shared table, a row is identified by the leaf's key in that table and the owner. In a leaf's own table,
    the owner alone identifies the row. An update writes a row only if the row's version is unchanged.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._kinds = layout.kinds
        self._key_kinds = layout.key_kinds
        self._begin = 0 if layout.shared else 1  # a row of a leaf's own table has no key before the owner
        self._hold = self._compile_hold()
        self._insert = (
            insert(layout.table)
            .rows(param("rows"), **self._key_kinds, updated_at=INTEGER, **self._kinds)
            .on_conflict(*layout.key_kinds)
            .do_nothing()
            .prepared()
        )
        self._updates: dict[tuple[int, ...], Prepared] = {}
        table, row, scope = layout.table, layout.row_columns(), layout.scope()
        theirs = select(*row).from_(table).where(*scope, col("owner").in_(param("owners")))
        self._by_owners = theirs.packed().prepared()
        # One statement reads the owners' rows and the leaf's totals, so a point read costs one round trip. A result
        # row with an edition is a total, unless the leaf has none, and one without is an entry.
        no_entry = (null(kind) for kind in (TEXT, INTEGER, *layout.kinds.values()))
        entries = select(*map(null, (TEXT, INTEGER, INTEGER)), *row).from_(table)
        entries = entries.where(*scope, col("owner").in_(param("owners")))
        self._with_totals = union_all(entries, totals_and_edition(*no_entry)).packed().prepared()
        self._erase = delete(table).where(*scope, col("owner").in_(param("owners"))).prepared()
        on_boards = select(col(ROWS_KEY), *row).from_(table).where(col(ROWS_KEY).in_(param("keys")))
        self._on_boards = on_boards.where(col("owner").eq(param("owner"))).packed().prepared()

    def _compile_hold(self) -> Prepared:
        # All writers lock rows in this order, so they never deadlock. The statement also locks the table, so nobody
        # drops or empties it before the transaction ends.
        table, row = self._layout.table, self._layout.row_columns(_HELD)
        if not self._layout.shared:
            asked = select(*row).from_(table, _HELD).where(col("owner", _HELD).in_(param("owners")))
            return asked.packed().locked(Lock.NO_KEY_UPDATE, asc(col("owner", _HELD))).prepared()
        key, owner = col(ROWS_KEY, _HELD), col("owner", _HELD)
        return (
            select(key, *row)
            .from_(rows(_ROW_ALIAS, param("rows"), **self._key_kinds))
            .join(table, all_of(key.eq(col(ROWS_KEY, _ROW_ALIAS)), owner.eq(col("owner", _ROW_ALIAS))), alias=_HELD)
            .packed()
            .locked(Lock.NO_KEY_UPDATE, asc(key), asc(owner))
            .prepared()
        )

    def lock_rows(self, wanted: Sequence[RowId]) -> Program[list[tuple[int, Entry]]]:
        """Lock the wanted rows that exist until the transaction ends. Return each with its leaf's key in the table."""
        if self._layout.shared:
            found = yield self._hold.bind(rows=sorted(wanted))
            return [(key, Entry(owner, version, cells)) for key, owner, version, *cells in found]
        key = wanted[0][0] if wanted else 0
        found = yield self._hold.bind(owners=[owner for _, owner in wanted])
        return [(key, Entry(owner, version, cells)) for owner, version, *cells in found]

    def insert_rows(self, entries: Iterable[tuple[int, Entry]]) -> Program[int]:
        """Insert the rows that the table does not have yet. Return how many were inserted."""
        made = [(key, entry.owner, entry.updated_at_us, *entry.cells)[self._begin :] for key, entry in entries]
        made.sort(key=itemgetter(0, 1))  # all writers use one order, so they never deadlock
        inserted = yield self._insert.bind(rows=made)
        return int(inserted[0][0])

    def update_rows(self, indexes: tuple[int, ...], changed: Iterable[tuple[int, Entry, int]]) -> Program[int]:
        """Write some columns of the entries whose stored version is the expected one. Return how many were written.

        `changed`: key, new entry and expected version of each row. `indexes`: the columns to write. Pass only columns
        that changed, because writing an unchanged column that has a database index makes the update at least twice as
        expensive.
        """
        statement = self._updates.get(indexes)
        if statement is None:
            if len(self._updates) >= UPDATE_STATEMENTS_MAX:
                self._updates.clear()
            statement = self._updates[indexes] = self._compile_update(indexes)
        values = [
            (key, entry.owner, expected, entry.updated_at_us, *[entry.cells[index] for index in indexes])[self._begin :]
            for key, entry, expected in changed
        ]
        written = yield statement.bind(rows=values)
        return int(written[0][0])

    def _compile_update(self, indexes: tuple[int, ...]) -> Prepared:
        table, names = self._layout.table, [self._layout.columns[index].name for index in indexes]
        cells = {name: col(name, _ROW_ALIAS) for name in names}
        same_row = [col(name, table).eq(col(name, _ROW_ALIAS)) for name in self._key_kinds]
        return (
            update(table)
            .set(updated_at=col("next", _ROW_ALIAS), **cells)
            .from_rows(
                _ROW_ALIAS,
                param("rows"),
                **self._key_kinds,
                expected=INTEGER,
                next=INTEGER,
                **{name: self._kinds[name] for name in names},
            )
            .where(*same_row, col("updated_at", table).eq(col("expected", _ROW_ALIAS)))
            .prepared()
        )


_rows_of = lru_cache(maxsize=SHARED_STATEMENTS_MAX)(TableRows)


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _rules_of(spec: BoardSpec) -> tuple[RankedCells, Merger]:
    return RankedCells(spec), Merger(spec)


class RankingChange(NamedTuple):
    entry: Entry
    change: NewChange
    totals: dict[int, int]  # what the change adds to the leaf's totals, by column index


class Entries(OpenLeaf):
    """A leaf that has rows: programs to read and write them, its merge rules, and a `Ranking` for each sorted column.

    Leaves with the same table and columns share statements, and leaves with the same spec share merge rules.
    """

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.layout = layout_of(leaf)
        self.table = _rows_of(self.layout)
        self.ranked_cells, self.merger = _rules_of(leaf.spec)
        self._scope = scope_of(leaf)

    @cached_property
    def rankings(self) -> Mapping[int, RowRanking]:
        """The rankings by column index. They are created on first use, because posts need none."""
        return {index: RowRanking(self.leaf, index) for index in self.leaf.sorted_indexes}

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        rows = yield self.table._by_owners.bind(owners=owners, **self._scope)
        return {row[0]: decode_entry(row) for row in rows}

    def read_by_owner(self, after: str, limit: int) -> Program[list[Entry]]:
        rows = yield _owners_after(self.layout).bind(owner=after, limit=limit, **self._scope)
        return [decode_entry(row) for row in rows]

    def find_entries_with_totals(self, owners: Sequence[str]) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
        """Find the entries by owner and the leaf's totals by column index, with one statement.

        Raises:
            UnknownBoardError, BoardChangedError: see `check_copy`.
        """
        rows = yield self.table._with_totals.bind(owners=owners, totals_key=self.leaf.key, **self._scope)
        entries: dict[str, Entry] = {}
        totals: dict[int, int] = {}
        stored = None
        for edition, index, total, *row in rows:
            if edition is None:
                entries[row[0]] = Entry(row[0], row[1], row[2:])
            elif index is not None:
                totals[index] = total
            stored = edition or stored
        check_copy(self.leaf, stored)
        return entries, totals

    def remove_entry(self, owner: str, happened: ChangeKind) -> Program[RankingChange | None]:
        """Remove an owner's row, as `remove_entries` does. Return None if there is no row."""
        return next(iter((yield from self.remove_entries([owner], happened))), None)

    def remove_entries(
        self, owners: Sequence[str], happened: ChangeKind, is_wanted: Callable[[Entry], bool] = lambda _: True
    ) -> Program[list[RankingChange]]:
        """Remove those of these owners' rows that `is_wanted` accepts. Return the changes for `log_ranking_changes`.

        Raises:
            UnknownBoardError, BoardChangedError: the leaf was deleted, archived or moved to another partition.
        """
        if self.leaf.is_unreached:
            return []
        rows_key = yield from hold_rows_key(self.leaf)
        locked = yield from self.table.lock_rows([(rows_key, owner) for owner in owners])
        held = [entry for _, entry in locked if is_wanted(entry)]
        if held:
            gone = [entry.owner for entry in held]
            yield self.table._erase.bind(owners=gone, **(self._scope and {ROWS_KEY: rows_key}))
        return [self._removal_of(entry, happened) for entry in held]

    def _removal_of(self, entry: Entry, happened: ChangeKind) -> RankingChange:
        said = record_of_event(happened, entry.cells if happened is ChangeKind.HIDDEN else (), entry.updated_at_us)
        previous = self.ranked_cells.join_cells(entry.cells)
        change = NewChange(self.leaf.key, entry.owner, previous, self.ranked_cells.none, said)
        return RankingChange(entry, change, self._count_totals(entry, -1))

    def restore_entry(self, entry: Entry) -> Program[RankingChange]:
        """Insert the row of an owner who is shown again. Return the change for `log_ranking_changes`.

        Raises:
            LostRaceError: the owner has a row already.
        """
        rows_key = yield from hold_rows_key(self.leaf)
        inserted = yield from self.table.insert_rows([(rows_key, entry)])
        if inserted != 1:
            raise LostRaceError(f"{entry.owner!r} has a row already")
        others = [entry.cells[index] for index in self.ranked_cells.others]
        said = record_of_event(ChangeKind.SHOWN, others, entry.updated_at_us)
        following = self.ranked_cells.join_cells(entry.cells)
        change = NewChange(self.leaf.key, entry.owner, self.ranked_cells.none, following, said)
        return RankingChange(entry, change, self._count_totals(entry, 1))

    def _count_totals(self, entry: Entry, more: int) -> dict[int, int]:
        ranked = (index for index in self.leaf.sorted_indexes if entry.cells[index] is not None)
        return {ALL_ENTRIES: more, CHANGES: 1, **dict.fromkeys(ranked, more)}


def log_ranking_changes(changes: Iterable[RankingChange], *, now_us: int) -> Program[Logged]:
    """Log changes and adjust the totals. Call this at the end of the transaction."""
    logged = list(changes)
    state = yield from change_log.append_changes([each.change for each in logged], now_us=now_us)
    totals: dict[int, Counter[int]] = defaultdict(Counter)
    for each in logged:
        totals[each.change.leaf_key].update(each.totals)
    yield from add_totals({key: {**theirs} for key, theirs in totals.items()})
    return state


def find_on_leaves(leaves: Iterable[OpenLeaf], owner: str) -> Program[dict[int, Entry]]:
    """Find an owner's entries by leaf key, with one statement for each shared table and one for each other leaf.

    A deleted leaf may have left rows in a shared table, so the result may include entries of such a leaf.
    """
    tables: dict[TableRows, dict[int, int]] = defaultdict(dict)  # leaf keys, by shared table and by rows key
    found: dict[int, Entry] = {}
    for entries in leaves:
        leaf = entries.leaf
        if leaf.table_key is not None and isinstance(entries, Entries):
            tables[entries.table][leaf.rows_key] = leaf.key
        elif (entry := (yield from entries.find_entries([owner])).get(owner)) is not None:
            found[leaf.key] = entry
    for table, by_rows_key in tables.items():
        rows = yield table._on_boards.bind(keys=list(by_rows_key), owner=owner)
        found |= {by_rows_key[row[0]]: decode_entry(row[1:]) for row in rows}
    return found


def lock_boards_with_owner(boards: Iterable[Entries], owner: str) -> Program[list[Entries]]:
    """Lock the owner's entries on `boards`, which must be in shared tables. Return the boards that have one."""
    tables: dict[TableRows, dict[int, Entries]] = defaultdict(dict)
    for entries in boards:
        tables[entries.table][entries.leaf.rows_key] = entries
    found: list[Entries] = []
    for table, by_key in sorted(tables.items(), key=lambda table: min(table[1])):
        held = yield from table.lock_rows([(rows_key, owner) for rows_key in by_key])
        found += [by_key[rows_key] for rows_key, _ in held]
    return found


@lru_cache(maxsize=SHARED_STATEMENTS_MAX)
def _owners_after(layout: Layout) -> Prepared:
    rows = select(*layout.row_columns()).from_(layout.table).where(*layout.scope(), col("owner").gt(param("owner")))
    return rows.order_by(asc(col("owner"))).limit(param("limit")).packed().prepared()


def add_totals(changes: dict[int, dict[int, int]]) -> Program[None]:
    """Add to the totals of leaves. Call this last in the transaction that changes their rows.

    `changes`: the amounts to add, by leaf key and column index.
    """
    rows = total_rows(changes)
    if len(rows) == 1:
        yield _ADD_TOTAL.bind(**dict(zip(_TOTAL_ROW, rows[0], strict=True)))
    elif rows:
        yield _ADD_TOTALS.bind(total_rows=rows)


def total_rows(changes: dict[int, dict[int, int]]) -> list[tuple[int, int, int]]:
    """List changes to totals as rows, in the order in which all transactions write them."""
    return sorted([(key, index, more) for key, by_index in changes.items() for index, more in by_index.items() if more])


def build_totals_upsert() -> Insert:
    """Build the part of a statement that adds the rows in the parameter `total_rows` to the stored totals."""
    return _add_to_stored(insert(TOTALS).rows(param("total_rows"), **_TOTAL_ROW))


def _add_to_stored(added: Insert) -> Insert:
    more = plus(col("entries", TOTALS), excluded("entries"))
    return added.on_conflict("leaf_key", "column_index").do_update(entries=more)


_TOTAL_ROW = dict.fromkeys(("leaf_key", "column_index", "entries"), INTEGER)
_ADD_TOTALS = build_totals_upsert().prepared()
# Nearly every post changes one total. Citus plans this statement in half the time.
_one_total = insert(TOTALS).values(**{name: param(name, kind) for name, kind in _TOTAL_ROW.items()})
_ADD_TOTAL = _add_to_stored(_one_total).prepared()

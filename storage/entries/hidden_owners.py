"""Entries of hidden owners. No ranking holds them, because they are in the hidden table. Posts still merge into them.

    shown ── a mark, in a transaction ──> hidden ── one transaction after the other ──> all rows in the hidden table
    hidden ── no mark ──> shown ── one transaction after the other ──> all rows in the tables of their boards

The most important rule: an owner's row on a board is either in the board's table or in the hidden table. A post reads
the board's table first and the hidden table second. If the row is moved between the two reads, the post either finds it
or loses the race.

The mark decides into which table a new row goes, so the mark must not change before the new row is committed. The
counter of the change log says how often an owner was hidden or shown. A post reads this number together with the mark,
and again when it holds the counter. If the number has changed, the post reads the mark again, and the race is lost if
the mark has changed, too. A mark that changes later is committed after the new row.

Every partition has the marks of all hidden owners, so a post reads those of its own partition.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from querybuilder import INTEGER, TEXT, asc, col, delete, insert, null, param, select, union_all, update
from storage.boards.gates import hold_rows_key
from storage.errors import LostRaceError
from storage.log.cells import Cell
from storage.log.change_log import NewChange, change_log
from storage.log.log_record import ChangeKind, record_of_event
from storage.records import Entry
from storage.schema.creation import hold_partitions
from storage.schema.placement import TABLES
from storage.schema.tables import HIDDEN_ENTRIES, LOG_COUNTER
from storage.store import Program, in_partition

from .entries import Entries, RankingChange, log_ranking_changes

HIDDEN_KEY = 0  # a row with this key, which belongs to no board, marks a hidden owner
_NO_CELLS = "[]"  # the cells of such a row
# For more owners than this, a program first asks the store whether any owner at all is hidden, because a look-up of
# 1,000 owners takes 1 ms.
_ASKED_SINGLY = 20
MARKS_A_PAGE = 1_000  # marks that are copied to a new partition at a time
_KEY = ("board_key", "owner")
_ALIAS = "v"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Cell]).decode


class HiddenEntry(NamedTuple):
    """An entry that its board does not show."""

    board_key: int
    entry: Entry

    def widen_cells(self, columns: int) -> Entry:
        """Return the entry with a cell for every column: columns may have been added since the entry was written."""
        self.entry.cells.extend([None] * (columns - len(self.entry.cells)))
        return self.entry


class HiddenFound(NamedTuple):
    """The marks and the entries of some owners in the hidden table."""

    hides: int  # how often an owner was hidden or shown
    hidden_owners: set[str]
    entries: list[HiddenEntry]


_row = TABLES[HIDDEN_ENTRIES].kinds
_rows = select(*map(col, _row)).from_(HIDDEN_ENTRIES)
_theirs = col("owner").eq(param("owner"))
_found = _rows.where(col("board_key").in_(param("keys")), col("owner").in_(param("owners")))
_hides = select(null(INTEGER), null(TEXT), col("hides"), null(TEXT)).from_(LOG_COUNTER)
_FIND = union_all(_hides, _found).packed().prepared()
_anybody = select(col("board_key")).from_(HIDDEN_ENTRIES).limit(1).scalar()
_ANYBODY = select(col("hides"), _anybody).from_(LOG_COUNTER).prepared()
_of_owner = _rows.where(_theirs, col("board_key").gt(HIDDEN_KEY)).order_by(asc(col("board_key")))
_OF_OWNER = _of_owner.limit(param("limit")).packed().prepared()
_fresh = insert(HIDDEN_ENTRIES).rows(param("rows"), **_row).on_conflict(*_KEY)
_INSERT = _fresh.do_nothing().prepared()
_UPDATE = (
    update(HIDDEN_ENTRIES)
    .set(updated_at=col("updated_at", _ALIAS), cells=col("cells", _ALIAS))
    .from_rows(_ALIAS, param("rows"), expected=INTEGER, **_row)
    .where(
        *(col(name, HIDDEN_ENTRIES).eq(col(name, _ALIAS)) for name in ("board_key", "owner")),
        col("updated_at", HIDDEN_ENTRIES).eq(col("expected", _ALIAS)),
    )
    .prepared()
)
_marks = _rows.where(col("board_key").eq(HIDDEN_KEY), col("owner").gt(param("after"))).order_by(asc(col("owner")))
_MARKS = _marks.limit(MARKS_A_PAGE).packed().prepared()
_here = delete(HIDDEN_ENTRIES).where(_theirs, col("board_key").eq(param("key")))
_TAKE = _here.returning(col("updated_at"), col("cells")).prepared()


def find_hidden(board_keys: Sequence[int], owners: Sequence[str]) -> Program[HiddenFound]:
    """Read the marks of these owners, and their hidden entries on these boards."""
    if len(owners) > _ASKED_SINGLY:
        [[hides, anybody]] = yield _ANYBODY.bind()
        if anybody is None:
            return HiddenFound(hides, set(), [])
    rows = yield _FIND.bind(keys=[HIDDEN_KEY, *board_keys], owners=owners)
    hides = next(row[2] for row in rows if row[0] is None)
    marked = {row[1] for row in rows if row[0] == HIDDEN_KEY}
    return HiddenFound(hides, marked, [HiddenEntry(row[0], _entry(*row[1:])) for row in rows if row[0]])


def insert_rows(rows: Iterable[HiddenEntry]) -> Program[int]:
    inserted = yield _INSERT.bind(rows=list(map(_encode_row, rows)))
    return int(inserted[0][0])


def update_rows(rows: Iterable[tuple[HiddenEntry, int]]) -> Program[int]:
    written = yield _UPDATE.bind(rows=[(expected, *_encode_row(row)) for row, expected in rows])
    return int(written[0][0])


def _encode_row(row: HiddenEntry) -> tuple[int, str, int, str]:
    key, entry = row
    return key, entry.owner, entry.updated_at_us, _encode(entry.cells).decode()


def mark_owner(owner: str, *, now_us: int, hide: bool) -> Program[None]:
    """Hide or show an owner on all boards, also on future ones. The owner's rows are moved afterwards.

    Call this last in its transaction.
    """
    partitions = range((yield from hold_partitions()))
    mark = [(HIDDEN_KEY, owner, now_us, _NO_CELLS)]
    for partition in partitions:
        writing = _INSERT.bind(rows=mark) if hide else _TAKE.bind(owner=owner, key=HIDDEN_KEY)
        yield writing.at(partition)
    for partition in partitions:
        yield from in_partition(partition, change_log.count_hide())


def copy_marks(number: int) -> Program[None]:
    """Copy the marks of all hidden owners to a new partition, in the transaction that adds the partition."""
    after: str | None = ""
    while after is not None:
        marks = [HiddenEntry(row[0], _entry(*row[1:])) for row in (yield _MARKS.bind(after=after).at(0))]
        if marks:
            yield from in_partition(number, insert_rows(marks))
        after = marks[-1].entry.owner if len(marks) == MARKS_A_PAGE else None


def hide_owner(boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
    changes: list[RankingChange] = []
    moved: list[HiddenEntry] = []
    for entries in boards:
        change = yield from entries.remove_entry(owner, ChangeKind.HIDDEN)
        if change is not None:
            changes.append(change)
            moved.append(HiddenEntry(entries.board.key, change.entry))
    if moved:
        inserted = yield from insert_rows(moved)
        if inserted != len(moved):
            raise LostRaceError(f"{owner!r} has a hidden row already")
    yield from log_ranking_changes(changes, now_us=now_us)


def show_owner(boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
    """Move the owner's rows to the tables of these boards.

    Raises:
        BoardChangedError: a board was archived, or moved to another partition.
    """
    changes: list[RankingChange] = []
    for entries in boards:
        if not entries.board.is_unreached:
            yield from hold_rows_key(entries.board)
        for row in (yield _TAKE.bind(owner=owner, key=entries.board.key)):
            found = HiddenEntry(entries.board.key, _entry(owner, *row))
            changes.append((yield from entries.restore_entry(found.widen_cells(len(entries.board.spec.columns)))))
    yield from log_ranking_changes(changes, now_us=now_us)


def list_hidden_boards(owner: str, *, limit: int) -> Program[list[int]]:
    rows = yield _OF_OWNER.bind(owner=owner, limit=limit)
    return [row[0] for row in rows]


def erase_hidden_entry(entries: Entries, owner: str) -> Program[RankingChange | None]:
    """Erase the owner's hidden row on a board. Return what `log_ranking_changes` logs, or None without a row."""
    rows = yield _TAKE.bind(owner=owner, key=entries.board.key)
    if not rows:
        return None
    none = entries.ranked_cells.none
    change = NewChange(entries.board.key, owner, none, none, record_of_event(ChangeKind.ERASED))
    return RankingChange(_entry(owner, *rows[0]), change, {})


def _entry(owner: str, updated_at_us: int, cells: str) -> Entry:
    return Entry(owner, updated_at_us, _decode(cells))

"""Entries of hidden owners. No ranking holds them, because they are in the hidden table. Posts still merge into them.

    shown ──> changing ── transactions that read "shown" have ended ──> hidden: all rows go to the hidden table
    hidden ──> changing ── transactions that read "hidden" have ended ──> shown: all rows go to the boards' tables

The most important rule: an owner's row on a board is either in the board's table or in the hidden table. A post reads
the board's table first and the hidden table second. If the row is moved between the two reads, the post either finds it
or loses the race.

While an owner is changing, no transaction inserts a new row of this owner. Otherwise two posts could insert one row in
each table. An inserting transaction takes its id before it checks whether the owner is changing. If its check came too
early to see the change, its id is smaller than all ids that are given out after the change began. The process that
hides or shows the owner therefore takes an id then, and waits until all transactions with smaller ids have ended.

Until a change ends, the owner counts as hidden or shown as before. If the change takes too long, the owner's next post
undoes it. The process that then tries to end the change gets `LostRaceError`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from querybuilder import INTEGER, TEXT, asc, col, delete, excluded, insert, param, select, this_transaction, update
from storage.errors import LostRaceError
from storage.log.cells import Cell
from storage.log.change_log import NewChange, change_log
from storage.log.log_record import ChangeKind, record_of_event
from storage.records import Entry
from storage.schema.tables import HIDDEN_ENTRIES
from storage.store import Program

from .entries import Entries

# Two kinds of rows only mark an owner. Their board keys belong to no board.
HIDDEN_KEY = 0  # the owner is hidden
CHANGING_KEY = -1  # the owner is being hidden or shown; this may last until the time in `updated_at`
_NO_CELLS = "[]"  # the cells of these rows
# For more owners than this, a program first asks the store whether any owner at all is hidden, because a look-up of
# 1,000 owners takes 1 ms.
_ASKED_SINGLY = 20
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

    hidden_owners: set[str]  # those who are being shown are among them until the change ends
    changing: dict[str, int]  # for each owner who is being hidden or shown, the latest time at which this change ends
    entries: list[HiddenEntry]


_NOTHING = HiddenFound(set(), {}, [])


class HiddenStatements:
    """Programs over the hidden table."""

    def __init__(self) -> None:
        row = {"board_key": INTEGER, "owner": TEXT, "updated_at": INTEGER, "cells": TEXT}
        rows = select(*map(col, row)).from_(HIDDEN_ENTRIES)
        theirs = col("owner").eq(param("owner"))
        found = rows.where(col("board_key").in_(param("keys")), col("owner").in_(param("owners")))
        self._find = found.packed().prepared()
        self._anybody = select(col("board_key")).from_(HIDDEN_ENTRIES).limit(1).prepared()
        of_owner = rows.where(theirs, col("board_key").gt(HIDDEN_KEY)).order_by(asc(col("board_key")))
        self._of_owner = of_owner.limit(param("limit")).packed().prepared()
        fresh = insert(HIDDEN_ENTRIES).rows(param("rows"), **row).on_conflict(*_KEY)
        self._insert = fresh.do_nothing().prepared()
        self._begin = fresh.do_update(updated_at=excluded("updated_at")).prepared()
        self._update = (
            update(HIDDEN_ENTRIES)
            .set(updated_at=col("updated_at", _ALIAS), cells=col("cells", _ALIAS))
            .from_rows(_ALIAS, param("rows"), expected=INTEGER, **row)
            .where(
                *(col(name, HIDDEN_ENTRIES).eq(col(name, _ALIAS)) for name in ("board_key", "owner")),
                col("updated_at", HIDDEN_ENTRIES).eq(col("expected", _ALIAS)),
            )
            .prepared()
        )
        here = delete(HIDDEN_ENTRIES).where(theirs, col("board_key").eq(param("key")))
        self._take = here.returning(col("updated_at"), col("cells")).prepared()
        self._undo = here.where(col("updated_at").eq(param("until_us"))).prepared()
        self._now = select(this_transaction()).prepared()

    def find_hidden(self, board_keys: Sequence[int], owners: Sequence[str]) -> Program[HiddenFound]:
        """Read the marks of these owners, and their hidden entries on these boards."""
        if len(owners) > _ASKED_SINGLY and not (yield self._anybody.bind()):
            return _NOTHING
        rows = yield self._find.bind(keys=[CHANGING_KEY, HIDDEN_KEY, *board_keys], owners=owners)
        if not rows:  # the usual case: none of these owners is hidden
            return _NOTHING
        marked = {row[1] for row in rows if row[0] == HIDDEN_KEY}
        changing = {row[1]: row[2] for row in rows if row[0] == CHANGING_KEY}
        entries = [HiddenEntry(row[0], _entry(*row[1:])) for row in rows if row[0] > HIDDEN_KEY]
        return HiddenFound(marked, changing, entries)

    def find_for_write(self, board_keys: Sequence[int], owners: Sequence[str], *, now_us: int) -> Program[HiddenFound]:
        """Do what `find_hidden` does, and undo every change of an owner that takes too long. Only writers call this.

        Raises:
            LostRaceError: another transaction ended such a change.
        """
        found = yield from self.find_hidden(board_keys, owners)
        for owner in sorted(owner for owner, until_us in found.changing.items() if until_us < now_us):
            [[undone]] = yield self._undo.bind(owner=owner, key=CHANGING_KEY, until_us=found.changing.pop(owner))
            if not undone:
                raise LostRaceError(f"{owner!r} was hidden or shown by another transaction")
        return found

    def insert_rows(self, rows: Iterable[HiddenEntry]) -> Program[int]:
        inserted = yield self._insert.bind(
            rows=[(key, entry.owner, entry.updated_at_us, _encode(entry.cells).decode()) for key, entry in rows]
        )
        return int(inserted[0][0])

    def update_rows(self, rows: Iterable[tuple[HiddenEntry, int]]) -> Program[int]:
        written = yield self._update.bind(
            rows=[
                (expected, key, entry.owner, entry.updated_at_us, _encode(entry.cells).decode())
                for (key, entry), expected in rows
            ]
        )
        return int(written[0][0])

    def begin_change(self, owner: str, *, until_us: int, hide: bool) -> Program[bool]:
        """Begin to hide or show an owner. Until the change ends, no transaction inserts new rows of this owner.

        The change may last until `until_us`. If a hidden owner is to be hidden, begin nothing and return False.
        """
        found = yield from self.find_hidden([], [owner])
        if hide and owner in found.hidden_owners and owner not in found.changing:
            return False
        yield self._begin.bind(rows=[(CHANGING_KEY, owner, until_us, _NO_CELLS)])
        return True

    def end_change(self, owner: str, *, now_us: int, hide: bool | None) -> Program[None]:
        """End a change. Afterwards the owner is hidden (`hide`), shown (not `hide`), or as before the change (None).

        Raises:
            LostRaceError: another transaction has ended the change.
        """
        if not (yield self._take.bind(owner=owner, key=CHANGING_KEY)):
            raise LostRaceError(f"{owner!r} was hidden or shown by another transaction")
        if hide:
            yield self._insert.bind(rows=[(HIDDEN_KEY, owner, now_us, _NO_CELLS)])
        elif hide is not None:
            yield self._take.bind(owner=owner, key=HIDDEN_KEY)

    def delete_marks(self, owner: str) -> Program[None]:
        for key in (HIDDEN_KEY, CHANGING_KEY):
            yield self._take.bind(owner=owner, key=key)

    def take_transaction_id(self) -> Program[int]:
        """Return the id of this transaction. The database assigns one if the transaction has none yet.

        A transaction of posts calls this method so that `have_earlier_ended` waits for the transaction. The process
        that hides an owner calls it in a second transaction, after the one of `begin_change` has committed.
        """
        rows = yield self._now.bind()
        return int(rows[0][0])

    def have_earlier_ended(self, transaction: int) -> Program[bool]:
        """Return whether all transactions up to this id have ended."""
        return (yield from change_log.find_horizon()) > transaction

    def hide_owner(self, boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
        moved: list[HiddenEntry] = []
        for entries in boards:
            entry = yield from entries.remove_entry(owner, ChangeKind.HIDDEN, now_us=now_us, place=len(moved))
            if entry is not None:
                moved.append(HiddenEntry(entries.board.key, entry))
        if moved:
            inserted = yield from self.insert_rows(moved)
            if inserted != len(moved):
                raise LostRaceError(f"{owner!r} has a hidden row already")

    def show_owner(self, boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
        place = 0
        for entries in boards:
            rows = yield self._take.bind(owner=owner, key=entries.board.key)
            if rows:
                found = HiddenEntry(entries.board.key, _entry(owner, *rows[0]))
                entry = found.widen_cells(len(entries.board.spec.columns))
                yield from entries.restore_entry(entry, now_us=now_us, place=place)
                place += 1

    def list_hidden_boards(self, owner: str, *, limit: int) -> Program[list[int]]:
        rows = yield self._of_owner.bind(owner=owner, limit=limit)
        return [row[0] for row in rows]

    def erase_hidden_entry(self, entries: Entries, owner: str, *, now_us: int, place: int = 0) -> Program[bool]:
        """Erase the owner's hidden row on a board and log the erasure; return whether there was such a row."""
        if not (yield self._take.bind(owner=owner, key=entries.board.key)):
            return False
        none = entries.ranked_cells.none
        gone = NewChange(entries.board.key, owner, none, none, record_of_event(ChangeKind.ERASED))
        yield from change_log.append_changes([gone], now_us=now_us, place=place)
        return True


def _entry(owner: str, updated_at_us: int, cells: str) -> Entry:
    return Entry(owner, updated_at_us, _decode(cells))


hidden_statements = HiddenStatements()

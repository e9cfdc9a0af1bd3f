"""Entries of hidden owners: they still merge posts, and stand in a table of their own, so that no ranking holds them.

    shown ──> changing ──> all who saw it shown have ended ──> hidden: new rows stand here, others are moved here
    hidden ──> changing ──> all who saw it hidden have ended ──> shown: new rows stand on boards, others are moved there

The rule: an owner's row on a board is in one of the two tables. A post looks for it in the board's first and here
second, so a row that is moved meanwhile is found, or the race is lost. Nobody makes a new row while an owner is
changing, so that two posts never make one in either table; who makes one has its transaction's number before it looks.
A change that takes too long is undone by the owner's next post, and who comes to end it finds that out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Built,
    Dialect,
    asc,
    col,
    delete,
    excluded,
    insert,
    param,
    select,
    this_transaction,
    update,
)

from .change_log import Appended, change_log
from .entries import Entries
from .errors import LostRace
from .merging import Cell
from .migrate import HIDDEN
from .posted import Happened, said_of_event
from .records import Entry
from .store import Program

MARK = 0  # no board has this key: the row says that the owner is hidden,
CHANGING = -1  # or is being hidden or shown, until the row's `updated_at` at the latest
_WAS_SHOWN, _WAS_HIDDEN = "[]", "[1]"  # the cells of such a row
_ASKED_SINGLY = 20  # owners: of more it is asked first whether anybody is hidden, since a thousand take a millisecond
_KEY = ("board_key", "owner")
_BEGUN = {"updated_at": param("until_us"), "cells": param("was")}
_ALIAS = "v"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Cell]).decode


class HiddenEntry(NamedTuple):
    """An entry that its board does not show."""

    board_key: int
    entry: Entry

    def widened(self, columns: int) -> Entry:
        """The entry with a cell for every column: some may have been added since it was written."""
        self.entry.cells.extend([None] * (columns - len(self.entry.cells)))
        return self.entry


class Found(NamedTuple):
    """What the table says of some owners."""

    hidden: set[str]
    changing: dict[str, int]  # being hidden or shown, and until when
    entries: list[HiddenEntry]


_NOTHING = Found(set(), {}, [])


class Hidden:
    """The statements, for one dialect; see `hidden`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        row = {"board_key": INTEGER, "owner": TEXT, "updated_at": INTEGER, "cells": TEXT}
        rows = select(*map(col, row)).from_(HIDDEN)
        theirs = col("owner").eq(param("owner"))
        found = rows.where(col("board_key").in_(param("keys")), col("owner").in_(param("owners")))
        self._find = found.packed().compile(dialect)
        self._anybody = select(col("board_key")).from_(HIDDEN).limit(1).compile(dialect)
        of_owner = rows.where(theirs, col("board_key").gt(MARK)).order_by(asc(col("board_key")))
        self._of_owner = of_owner.limit(param("limit")).packed().compile(dialect)
        fresh = insert(HIDDEN).rows(param("rows"), **row).on_conflict(*_KEY)
        self._insert = fresh.do_nothing().compile(dialect)
        self._update = (
            update(HIDDEN)
            .set(updated_at=col("updated_at", _ALIAS), cells=col("cells", _ALIAS))
            .from_rows(_ALIAS, param("rows"), expected=INTEGER, **row)
            .where(
                *(col(name, HIDDEN).eq(col(name, _ALIAS)) for name in ("board_key", "owner")),
                col("updated_at", HIDDEN).eq(col("expected", _ALIAS)),
            )
            .compile(dialect)
        )
        here = delete(HIDDEN).where(theirs, col("board_key").eq(param("key")))
        self._take = here.returning(col("updated_at"), col("cells")).compile(dialect)
        left = here.where(col("updated_at").eq(param("until_us")))
        self._take_left = left.returning(col("cells")).compile(dialect)
        begun = insert(HIDDEN).values(board_key=CHANGING, owner=param("owner"), **_BEGUN).on_conflict(*_KEY)
        self._begin = begun.do_update(updated_at=excluded("updated_at")).compile(dialect)
        self._now = select(this_transaction()).compile(dialect)

    def find(self, board_keys: Sequence[int], owners: Sequence[str]) -> Program[Found]:
        """What there is of these owners, on these boards."""
        if len(owners) > _ASKED_SINGLY and not (yield self._anybody.bind()):
            return _NOTHING
        rows = yield self._find.bind(keys=[CHANGING, MARK, *board_keys], owners=owners)
        if not rows:  # nearly always
            return _NOTHING
        marked = {row[1] for row in rows if row[0] == MARK}
        changing = {row[1]: row[2] for row in rows if row[0] == CHANGING}
        return Found(marked, changing, [_hidden(row) for row in rows if row[0] > MARK])

    def find_settled(self, board_keys: Sequence[int], owners: Sequence[str], *, now_us: int) -> Program[Found]:
        """As `find`, for a writer: who has been changing for too long is as before from this transaction on.

        Raises:
            LostRace: somebody else ends such a change.
        """
        found = yield from self.find(board_keys, owners)
        for owner in sorted(owner for owner, until_us in found.changing.items() if until_us < now_us):
            left = yield self._take_left.bind(owner=owner, key=CHANGING, until_us=found.changing.pop(owner))
            if not left:
                raise LostRace(f"{owner!r} was hidden or shown by somebody else")
            if left[0][0] == _WAS_HIDDEN:
                yield self._insert.bind(rows=[(MARK, owner, now_us, "[]")])
                found.hidden.add(owner)
        return found

    def insert_new(self, rows: Iterable[HiddenEntry]) -> Built:
        """Insert rows where there are none; answers how many."""
        return self._insert.bind(
            rows=[(key, entry.owner, entry.updated_at_us, _encode(entry.cells).decode()) for key, entry in rows]
        )

    def update_changed(self, rows: Iterable[tuple[HiddenEntry, int]]) -> Built:
        """Write rows whose version is still the expected one; answers how many were."""
        return self._update.bind(
            rows=[
                (expected, key, entry.owner, entry.updated_at_us, _encode(entry.cells).decode())
                for (key, entry), expected in rows
            ]
        )

    def begin(self, owner: str, *, until_us: int, hide: bool) -> Program[bool]:
        """Have no new rows of the owner made, for so long at most; False: who is to be hidden is."""
        if hide and owner in (yield from self.find([], [owner])).hidden:
            return False
        was_hidden = yield self._take.bind(owner=owner, key=MARK)
        yield self._begin.bind(owner=owner, until_us=until_us, was=_WAS_HIDDEN if was_hidden else _WAS_SHOWN)
        return True

    def end(self, owner: str, *, now_us: int, hide: bool | None) -> Program[None]:
        """Have new rows made here, or on their boards again; None: wherever they were made before.

        Raises:
            LostRace: somebody else has done so meanwhile.
        """
        taken = yield self._take.bind(owner=owner, key=CHANGING)
        if not taken:
            raise LostRace(f"{owner!r} was hidden or shown by somebody else")
        if taken[0][1] == _WAS_HIDDEN if hide is None else hide:
            yield self._insert.bind(rows=[(MARK, owner, now_us, "[]")])

    def forget(self, owner: str) -> Program[None]:
        """As if the owner had never been hidden."""
        for key in (MARK, CHANGING):
            yield self._take.bind(owner=owner, key=key)

    def number_transaction(self) -> Program[int]:
        """Have `settled` wait for this transaction from here on; answers its number.

        Of one that comes after `begin`: what to wait for before `end`.
        """
        rows = yield self._now.bind()
        return int(rows[0][0])

    def settled(self, transaction: int) -> Program[bool]:
        """Whether nobody who may have missed the `begin` still writes."""
        if not self._dialect.transaction:
            return True
        return (yield from change_log(self._dialect).horizon()) > transaction

    def hide(self, boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
        """Move the owner's rows away from these boards."""
        moved: list[HiddenEntry] = []
        for entries in boards:
            entry = yield from entries.take_out(owner, Happened.HIDDEN, now_us=now_us, place=len(moved))
            if entry is not None:
                moved.append(HiddenEntry(entries.board.key, entry))
        if moved:
            inserted = yield self.insert_new(moved)
            if inserted[0][0] != len(moved):
                raise LostRace(f"{owner!r} has a hidden row already")

    def show(self, boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
        """Move the owner's rows back to these boards."""
        place = 0
        for entries in boards:
            rows = yield self._take.bind(owner=owner, key=entries.board.key)
            if rows:
                found = HiddenEntry(entries.board.key, Entry(owner, rows[0][0], _decode(rows[0][1])))
                entry = found.widened(len(entries.board.spec.columns))
                yield from entries.put_back(entry, now_us=now_us, place=place)
                place += 1

    def of_owner(self, owner: str, *, limit: int) -> Program[list[int]]:
        """The keys of boards on which the owner has a hidden row."""
        rows = yield self._of_owner.bind(owner=owner, limit=limit)
        return [row[0] for row in rows]

    def remove(self, entries: Entries, owner: str, *, now_us: int, place: int = 0) -> Program[bool]:
        """Erase the owner's hidden row on a board; whether there was one."""
        if not (yield self._take.bind(owner=owner, key=entries.board.key)):
            return False
        none = entries.ranked_cells.none
        gone = Appended(entries.board.key, owner, none, none, said_of_event(Happened.ERASED))
        yield change_log(self._dialect).append([gone], now_us=now_us, place=place)
        return True


def _hidden(row: Sequence[object]) -> HiddenEntry:
    key, owner, updated_at_us, cells = row
    assert isinstance(key, int) and isinstance(owner, str) and isinstance(updated_at_us, int) and isinstance(cells, str)
    return HiddenEntry(key, Entry(owner, updated_at_us, _decode(cells)))


@lru_cache
def hidden(dialect: Dialect) -> Hidden:
    """The statements, compiled once."""
    return Hidden(dialect)

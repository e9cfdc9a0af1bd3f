"""What all topics of one look have in common, read at most once in its snapshot.

The rule: whatever a look costs a board or a column is not paid again by each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from querybuilder import Dialect
from storage.change_log import Mark, change_log
from storage.entries import Entries
from storage.gap_counts import Footing
from storage.journal import JournalRow
from storage.records import Board, Entry
from storage.store import Program

from ..positions import board_totals
from .moves import Column, Moves

Slot = tuple[int, int]  # of a board's key and a column's index


class Glance:
    """One snapshot, in which all rows of the journal up to a number are seen."""

    def __init__(self, dialect: Dialect, footings: Mapping[Slot, Footing]) -> None:
        self._dialect, self._footings = dialect, footings
        self.until = 0
        self._rows: dict[int, list[JournalRow]] = {}
        self._followed: dict[int, set[str]] = {}
        self._moves: dict[Slot, Moves] = {}
        self._totals: dict[int, dict[int, int]] = {}
        self._entries: dict[int, dict[str, Entry | None]] = {}
        self._mark: Mark | None = None

    def found(self, rows: Iterable[JournalRow], followed: Iterable[tuple[int, str]]) -> None:
        """Take the rows that topics follow from, and which owners are followed, by their boards."""
        for row in rows:
            self._rows.setdefault(row.board_key, []).append(row)
        for board_key, owner in followed:
            self._followed.setdefault(board_key, set()).add(owner)

    def rows(self, board: Board) -> Sequence[JournalRow]:
        """The new rows of a board."""
        return self._rows.get(board.key, ())

    def moves(self, board: Board, index: int, column: Column) -> Moves:
        """The new moves in a column."""
        slot = board.key, index
        found = self._moves.get(slot)
        if found is None:
            found = self._moves[slot] = column.moves(self.rows(board))
        return found

    def footing(self, board: Board, index: int) -> Footing | None:
        """What counts in a column start from; see `Locator.footing`."""
        return self._footings.get((board.key, index))

    def totals(self, board: Board) -> Program[dict[int, int]]:
        """See `board_totals`."""
        if board.key not in self._totals:
            self._totals[board.key] = yield from board_totals(self._dialect, board)
        return self._totals[board.key]

    def mark(self) -> Program[Mark]:
        """What this snapshot sees of the change log."""
        if self._mark is None:
            self._mark = yield from change_log(self._dialect).mark_now()
        return self._mark

    def entry(self, entries: Entries, owner: str) -> Program[Entry | None]:
        """An owner's entry; those of all who are followed and have moved are read with the first one."""
        key = entries.board.key
        kept = self._entries.setdefault(key, {})
        if owner not in kept:
            moved = {row.owner for row in self.rows(entries.board)} & self._followed.get(key, set())
            wanted = sorted({owner, *(each for each in moved if each is not None)} - kept.keys())
            found = yield from entries.by_owners(wanted)
            kept.update((each, found.get(each)) for each in wanted)
        return kept[owner]

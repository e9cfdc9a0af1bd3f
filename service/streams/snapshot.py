"""The data that all topics share during one poll. Each board, column and entry is read at most once for all topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from service.ranks.locator import read_board_totals
from storage.entries.entries import Entries
from storage.entries.exact_ranks import CountStart
from storage.log.change_log import LogMark, change_log
from storage.log.journal import JournalRow
from storage.records import Board, Entry
from storage.store import Program

from .rank_moves import MoveReader, Moves

RankedColumnId = tuple[int, int]  # a ranked column: the key of its board and its index
CountStarts = Mapping[RankedColumnId, CountStart | None]


class FeedSnapshot:
    """One snapshot of the store. It includes all rows of the journal up to the number `until`."""

    def __init__(self, starts: CountStarts, until: int) -> None:
        self._starts, self.until = starts, until
        self._rows: dict[int, list[JournalRow]] = {}
        self._followed: dict[int, set[str]] = {}
        self._moves: dict[RankedColumnId, Moves] = {}
        self._totals: dict[int, dict[int, int]] = {}
        self._entries: dict[int, dict[str, Entry | None]] = {}
        self._mark: LogMark | None = None

    def add_rows(self, rows: Iterable[JournalRow], followed: Iterable[tuple[int, str]]) -> None:
        """Store the new rows of the journal, and the followed owners as pairs of board key and owner."""
        for row in rows:
            self._rows.setdefault(row.board_key, []).append(row)
        for board_key, owner in followed:
            self._followed.setdefault(board_key, set()).add(owner)

    def find_rows(self, board: Board) -> Sequence[JournalRow]:
        return self._rows.get(board.key, ())

    def read_moves(self, board: Board, index: int, column: MoveReader) -> Moves:
        slot = board.key, index
        found = self._moves.get(slot)
        if found is None:
            found = self._moves[slot] = column.read_moves(self.find_rows(board))
        return found

    def find_count_start(self, board: Board, index: int) -> CountStart | None:
        return self._starts.get((board.key, index))

    def read_totals(self, board: Board) -> Program[dict[int, int]]:
        if board.key not in self._totals:
            self._totals[board.key] = yield from read_board_totals(board)
        return self._totals[board.key]

    def read_mark(self) -> Program[LogMark]:
        """Return the mark that says which changes of the change log this snapshot includes."""
        if self._mark is None:
            self._mark = yield from change_log.take_mark()
        return self._mark

    def read_entry(self, entries: Entries, owner: str) -> Program[Entry | None]:
        """Return an owner's entry. The first call for a board also reads every followed owner whom a new row names."""
        key = entries.board.key
        kept = self._entries.setdefault(key, {})
        if owner not in kept:
            moved = {row.owner for row in self.find_rows(entries.board)} & self._followed.get(key, set())
            wanted = sorted({owner, *(each for each in moved if each is not None)} - kept.keys())
            found = yield from entries.find_entries(wanted)
            kept.update((each, found.get(each)) for each in wanted)
        return kept[owner]

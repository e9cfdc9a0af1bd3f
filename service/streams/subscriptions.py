"""The two topics of streams: the top of a ranking, and the position of one owner in it.

A topic first reads its state and the journal's last number in one snapshot. Then it applies the rows after that number.
If the snapshot already included the change of a row, applying the row changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from service.contract.responses.journal import OwnerEvent, TopEvent
from service.contract.values import to_wire_number
from service.ranks.locator import percentile
from service.ranks.rank_context import RankContext
from storage.entries.exact_ranks import CountStart
from storage.entries.hidden_owners import hidden_statements
from storage.errors import NotRankedError, UnknownOwnerError
from storage.log.change_log import LogMark
from storage.log.journal import JournalRow, position_of
from storage.records import Board
from storage.store import Program

from .events import Event, State
from .rank_moves import Move, MoveReader
from .snapshot import FeedSnapshot

EARLIEST = LogMark(0)
OVERTAKERS_MAX = 10  # the most names in `overtaken_by` of an event; more owners may have overtaken


@dataclass(frozen=True, slots=True)
class _Top:
    last: Event | None = None
    owners: frozenset[str] = frozenset()
    worst: str | None = None  # the cell of the last row shown; None if the ranking has too few rows to fill the top
    shown: bytes = b""


class TopTopic:
    owner = None

    def __init__(self, ranks: RankContext, board: Board, index: int, top: int) -> None:
        self.board, self.index = board, index
        self._pager, self._top = ranks.make_pager(board, index), top
        self._column = MoveReader(board, index, high=self._pager.ranking.padding.high)
        self.state: State = _Top()

    @property
    def _now(self) -> _Top:
        assert isinstance(self.state, _Top)
        return self.state

    def find_count_start(self) -> CountStart | None:
        """Return None: the top of a ranking needs no count."""
        return None

    def read_state(self, snapshot: FeedSnapshot) -> Program[None]:
        self.state = yield from self._read(snapshot.until)

    def apply_new_rows(self, snapshot: FeedSnapshot) -> Program[Event | None]:
        if not self._touched(snapshot.read_moves(self.board, self.index, self._column).all):
            return None
        read = yield from self._read(snapshot.until)
        if read.shown == self._now.shown:
            return None
        self.state = read
        return read.last

    def find_missed_event(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        last = self._now.last
        touched = last is not None and self._touched(self._column.read_moves(rows).all)
        return last._replace(number=until) if touched and last is not None else None

    def _touched(self, moves: Iterable[Move]) -> bool:
        worst, owners, better = self._now.worst, self._now.owners, self._column.is_better
        for move in moves:
            if move.row.owner is None or move.row.owner in owners:
                return True
            if move.before == move.after:
                continue
            if worst is None or not (better(worst, move.before) and better(worst, move.after)):
                return True
        return False

    def _read(self, until: int) -> Program[_Top]:
        window = yield from self._pager.find_first_rows(self._top)
        page = self._pager.make_page(window)
        cell = window.rows[-1].cells[self.index] if len(window.rows) == self._top else None
        return _Top(
            last=Event(until, "top", msgspec.json.encode(TopEvent(page.column, page.total, page.entries))),
            owners=frozenset(row.owner for row in window.rows),
            worst=cell if isinstance(cell, str) else None,
            shown=msgspec.json.encode(page.entries),
        )


@dataclass(frozen=True, slots=True)
class _Standing:
    last: Event | None = None
    cell: str | None = None
    rank: int | None = None
    total: int = 0
    counted: LogMark = EARLIEST  # which changes of the change log the counted rank includes


class OwnerTopic:
    """The position of one owner.

    The rank is counted when the owner's own entry moves. Between two counts, each entry that passes the owner changes
    the rank by one.
    """

    def __init__(self, ranks: RankContext, board: Board, index: int, owner: str) -> None:
        self.board, self.index, self.owner = board, index, owner
        locator = self._locator = ranks.locators.find_locator(board)
        self._entries, self._ranking = locator.entries, locator.entries.rankings[index]
        self._column = MoveReader(board, index, high=self._ranking.padding.high)
        self.state: State = _Standing()

    @property
    def _now(self) -> _Standing:
        assert isinstance(self.state, _Standing)
        return self.state

    def find_count_start(self) -> CountStart | None:
        return self._locator.find_count_start(self.index)

    def read_state(self, snapshot: FeedSnapshot) -> Program[None]:
        """Count the owner's rank in the snapshot.

        Raises:
            UnknownOwnerError: the owner has no entry on the board.
            NotRankedError: the owner has no value in the column, or is hidden.
        """
        counted = yield from self._count(snapshot)
        if counted.cell is None:
            yield from self._refuse()
        self.state = replace(counted, last=self._event(counted, snapshot.until, counted.rank, []))

    def _refuse(self) -> Program[None]:
        found = yield from self._entries.find_entries([self.owner])
        unseen = yield from hidden_statements.find_hidden([self.board.key], [self.owner])
        if found or unseen.entries:
            raise NotRankedError(f"{self.owner!r} has no value in this column, or is hidden")
        raise UnknownOwnerError(f"{self.owner!r} has no entry in {self.board.id!r}")

    def apply_new_rows(self, snapshot: FeedSnapshot) -> Program[Event | None]:
        before = self._now
        moves = snapshot.read_moves(self.board, self.index, self._column)
        if not moves.concern_owner(self.owner, before.cell):
            return None
        fresh = [move for move in moves.all if not before.counted.covers(position_of(move.row.number))]
        overtakers, moved, more = self._passed(fresh, before.cell)
        if moved:
            now = yield from self._count(snapshot)
        elif before.rank is not None and (more or overtakers):
            total = (yield from snapshot.read_totals(self.board)).get(self.index, 0)
            now = replace(before, rank=before.rank + more, total=total)
        else:
            return None
        if (now.cell, now.rank) == (before.cell, before.rank) and not overtakers:
            self.state = replace(now, last=before.last)
            return None
        event = self._event(now, snapshot.until, before.rank, overtakers)
        self.state = replace(now, last=event)
        return event

    def find_missed_event(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        now = self._now
        moves = self._column.read_moves(rows).all
        own = next((move for move in moves if move.row.owner == self.owner), None)
        overtakers, moved, more = self._passed(moves, now.cell if own is None else own.before)
        if not (moved or more or overtakers):
            return None
        return self._event(now, until, None if moved or now.rank is None else now.rank - more, overtakers)

    def _passed(self, moves: Iterable[Move], cell: str | None) -> tuple[list[str], bool, int]:
        """Return who overtook the owner, whether the owner's entry moved, and how much others changed the rank."""
        past: dict[str, None] = {}
        moved, more, better = False, 0, self._column.is_better
        for move in moves:
            before, after, row = move.before, move.after, move.row
            if move.may_concern_cell(cell):
                moved = True  # the owner may have been erased, or the board may have been emptied
                continue
            if row.owner == self.owner:
                moved = moved or before != after
                cell = after
                continue
            if cell is None or before == after:
                continue
            was, now = better(before, cell), better(after, cell)
            more += now - was
            if now and not was and row.owner is not None:
                past[row.owner] = None
            elif was and not now and row.owner is not None:
                past.pop(row.owner, None)
        return list(past), moved, more

    def _count(self, snapshot: FeedSnapshot) -> Program[_Standing]:
        totals = yield from snapshot.read_totals(self.board)
        found = yield from snapshot.read_entry(self._entries, self.owner)
        cell = None if found is None else found.cells[self.index]
        counted, total = (yield from snapshot.read_mark()), totals.get(self.index, 0)
        if not isinstance(cell, str):
            return _Standing(total=total, counted=counted)
        better_count = yield from self._better_count(cell, snapshot.find_count_start(self.board, self.index))
        return _Standing(cell=cell, rank=1 + better_count, total=total, counted=counted)

    def _better_count(self, cell: str, start: CountStart | None) -> Program[int]:
        """Count the better entries: from the anchor knot of `start` if the change log allows it, else from the top."""
        among_ties = self.owner if self._ranking.timed else ""
        if start is not None:
            found = yield from self._ranking.count_from_anchor(start, cell, owner=among_ties)
            if found is not None:
                return found.better_count + found.ties_before
        better_count = yield from self._ranking.count_better(cell)
        if among_ties:
            better_count += (yield from self._ranking.count_tied(cell, among_ties))[1]
        return better_count

    def _event(self, now: _Standing, until: int, before: int | None, overtakers: list[str]) -> Event:
        column = self.board.spec.columns[self.index]
        value = None if now.cell is None else to_wire_number(self._ranking.padding.decode_value(now.cell), column.scale)
        event = OwnerEvent(
            owner=self.owner,
            column=column.name,
            value=value,
            rank=now.rank,
            total=now.total,
            percentile=None if now.rank is None else percentile(now.rank, now.total),
            previous_rank=before,
            overtaken_by=overtakers[:OVERTAKERS_MAX],
        )
        return Event(until, "position", msgspec.json.encode(event))

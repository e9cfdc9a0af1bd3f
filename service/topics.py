"""What a stream can be about: the top of a ranking, or where one owner stands in it.

The rule: a topic holds one state that all its clients share. It is read in one snapshot with a number of the journal,
and follows from the rows past that number; a row that the snapshot saw already changes nothing. `state` is one value
that is replaced, never changed: who reads may fail and set it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from storage.change_log import Mark, change_log
from storage.errors import NotRanked, UnknownOwner
from storage.hidden import hidden
from storage.journal import JournalRow, position_of
from storage.posted import NO_CHANGE
from storage.ranked_cells import RankedCells
from storage.records import Board
from storage.store import Program

from .context import Context
from .events import Event, State
from .journal_answers import OwnerEvent, TopEvent
from .pages import Pager
from .positions import board_totals, percentile
from .values import number

EARLIEST = Mark(0)
OVERTAKERS_MAX = 10  # named in one event; there may have been more


@dataclass(slots=True)
class _Move:
    """A row of the journal as a move in one column; None: not ranked."""

    row: JournalRow
    before: str | None
    after: str | None


class _Column:
    """Reads moves in one column of a board."""

    def __init__(self, board: Board, index: int, *, high: bool) -> None:
        self._cells, self._index, self._high = RankedCells(board), index, high

    def moves(self, rows: Iterable[JournalRow]) -> Iterator[_Move]:
        """All that changed something, those included that leave the column as it was."""
        for row in rows:
            if row.posted is not None and row.posted.happened in NO_CHANGE:
                continue
            before, after = (self._cells.cell(text, self._index) for text in (row.previous, row.next))
            yield _Move(row, before, after)

    def better(self, cell: str | None, than: str | None) -> bool:
        """Whether a cell is strictly better than another one."""
        if cell is None or than is None:
            return cell is not None
        return cell > than if self._high else cell < than


@dataclass(frozen=True, slots=True)
class _Top:
    last: Event | None = None
    owners: frozenset[str] = frozenset()
    worst: str | None = None  # of the rows shown; None: there is room for more
    shown: bytes = b""


class TopTopic:
    """The best rows of a ranking."""

    def __init__(self, context: Context, board: Board, index: int, top: int) -> None:
        self.board = board
        self._pager, self._top = Pager(context, board, index), top
        self._column = _Column(board, index, high=self._pager.ranking.padding.high)
        self._index = index
        self.state: State = _Top()

    @property
    def _now(self) -> _Top:
        assert isinstance(self.state, _Top)
        return self.state

    def begin(self, until: int) -> Program[None]:
        """See `Topic`."""
        self.state = yield from self._read(until)

    def follow(self, rows: Sequence[JournalRow], until: int) -> Program[Event | None]:
        """See `Topic`."""
        if not self._touched(rows):
            return None
        read = yield from self._read(until)
        if read.shown == self._now.shown:
            return None
        self.state = read
        return read.last

    def missed(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """See `Topic`."""
        last = self._now.last
        return last._replace(number=until) if last is not None and self._touched(rows) else None

    def _touched(self, rows: Sequence[JournalRow]) -> bool:
        worst, owners, better = self._now.worst, self._now.owners, self._column.better
        for move in self._column.moves(rows):
            if move.row.owner is None or move.row.owner in owners:
                return True
            if move.before == move.after:
                continue
            if worst is None or not (better(worst, move.before) and better(worst, move.after)):
                return True
        return False

    def _read(self, until: int) -> Program[_Top]:
        window = yield from self._pager.first(self._top)
        page = self._pager.page(window)
        cell = window.rows[-1].cells[self._index] if len(window.rows) == self._top else None
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
    counted: Mark = EARLIEST  # what the count of the rank has seen


class OwnerTopic:
    """Where one owner stands."""

    def __init__(self, context: Context, board: Board, index: int, owner: str) -> None:
        self.board = board
        self._dialect, self._owner, self._index = context.store.dialect, owner, index
        locator = context.locators.of(board)
        self._entries, self._ranking = locator.entries, locator.entries.rankings[index]
        self._column = _Column(board, index, high=self._ranking.padding.high)
        self.state: State = _Standing()

    @property
    def _now(self) -> _Standing:
        assert isinstance(self.state, _Standing)
        return self.state

    def begin(self, until: int) -> Program[None]:
        """See `Topic`.

        Raises:
            UnknownOwner, NotRanked: there is nothing to follow.
        """
        counted = yield from self._count()
        if counted.cell is None:
            yield from self._refuse()
        self.state = replace(counted, last=self._event(counted, until, counted.rank, []))

    def _refuse(self) -> Program[None]:
        found = yield from self._entries.by_owners([self._owner])
        unseen = yield from hidden(self._dialect).find([self.board.key], [self._owner])
        if found or unseen.entries:
            raise NotRanked(f"{self._owner!r} has no value in this column, or is hidden")
        raise UnknownOwner(f"{self._owner!r} has no entry in {self.board.id!r}")

    def follow(self, rows: Sequence[JournalRow], until: int) -> Program[Event | None]:
        """See `Topic`."""
        before = self._now
        fresh = [row for row in rows if not before.counted.has(position_of(row.number))]
        overtakers, moved, more = self._passed(fresh, before.cell)
        if moved:
            now = yield from self._count()
        elif before.rank is not None and (more or overtakers):
            total = (yield from board_totals(self._dialect, self.board)).get(self._index, 0)
            now = replace(before, rank=before.rank + more, total=total)
        else:
            return None
        if (now.cell, now.rank) == (before.cell, before.rank) and not overtakers:
            self.state = replace(now, last=before.last)
            return None
        event = self._event(now, until, before.rank, overtakers)
        self.state = replace(now, last=event)
        return event

    def missed(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """See `Topic`."""
        now = self._now
        own = next((move for move in self._column.moves(rows) if move.row.owner == self._owner), None)
        overtakers, moved, more = self._passed(rows, now.cell if own is None else own.before)
        if not (moved or more or overtakers):
            return None
        return self._event(now, until, None if moved or now.rank is None else now.rank - more, overtakers)

    def _passed(self, rows: Sequence[JournalRow], cell: str | None) -> tuple[list[str], bool, int]:
        """Who went past the owner, whether the owner itself moved, and by how much others changed its rank."""
        past: dict[str, None] = {}
        moved, more, better = False, 0, self._column.better
        for before, after, row in ((move.before, move.after, move.row) for move in self._column.moves(rows)):
            if row.owner is None and (before != after or not row.next):
                moved = True  # erased, or the board was emptied: the owner may be the one
            if row.owner == self._owner:
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

    def _count(self) -> Program[_Standing]:
        totals = yield from board_totals(self._dialect, self.board)
        found = yield from self._entries.by_owners([self._owner])
        cell = found[self._owner].cells[self._index] if self._owner in found else None
        counted = yield from change_log(self._dialect).mark_now()
        total = totals.get(self._index, 0)
        if not isinstance(cell, str):
            return _Standing(total=total, counted=counted)
        better_count = yield from self._ranking.count_better(cell)
        if self._ranking.timed:
            better_count += (yield from self._ranking.count_tied(cell, self._owner))[1]
        return _Standing(cell=cell, rank=1 + better_count, total=total, counted=counted)

    def _event(self, now: _Standing, until: int, before: int | None, overtakers: list[str]) -> Event:
        column = self.board.spec.columns[self._index]
        value = None if now.cell is None else number(self._ranking.padding.value(now.cell), column.scale)
        event = OwnerEvent(
            owner=self._owner,
            column=column.name,
            value=value,
            rank=now.rank,
            total=now.total,
            percentile=None if now.rank is None else percentile(now.rank, now.total),
            previous_rank=before,
            overtaken_by=overtakers[:OVERTAKERS_MAX],
        )
        return Event(until, "position", msgspec.json.encode(event))

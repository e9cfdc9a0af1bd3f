"""The two topics of streams: the top of a ranking, and the position of one owner in it.

A topic first reads its state and the journal's last number in one snapshot. Then it applies the rows after that number.
If the snapshot already included the change of a row, applying the row changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from service.contract.responses.journal import OwnerEvent, TopEvent
from service.contract.values import INT64_MAX, to_wire_number
from service.ranks.locator import percentile
from service.ranks.rank_context import RankContext
from storage.boards.journal import Numbers
from storage.errors import NotRankedError, UnknownOwnerError
from storage.leaves import hidden_owners
from storage.leaves.exact_ranks import CountStart
from storage.leaves.rankings import OpenBoard, Ranking
from storage.leaves.totals import read_board_totals
from storage.log.partition_journal import JournalRow
from storage.records import Board, Entry
from storage.store import Program, in_partition

from .rank_moves import MoveReader, Moves, RankMove

RankedColumnId = tuple[int, int]  # a ranked column: the key of its board and its index
CountStarts = Mapping[RankedColumnId, CountStart | None]
NEVER_SEEN = -1  # a number that no journal has
OVERTAKERS_MAX = 10  # the most names in `overtaken_by` of an event; more owners may have overtaken


class FeedSnapshot:
    """One snapshot of the store, with all rows of the journal up to the numbers `until`. All topics of a poll share it.

    `until` has the numbers of the partitions of the feed, and 0 for others. Each board, column and entry is read at
    most once for all topics.
    """

    def __init__(self, starts: CountStarts, ends: Numbers) -> None:
        """Make an empty snapshot. `ends`: the last numbers that it holds."""
        self.starts, self.ends, self.until = starts, ends, ends
        self._rows: defaultdict[int, list[JournalRow]] = defaultdict(list)
        self._followed: defaultdict[int, set[str]] = defaultdict(set)
        self._moves: dict[RankedColumnId, Moves] = {}
        self._totals: dict[int, dict[int, int]] = {}
        self._entries: defaultdict[int, dict[str, Entry | None]] = defaultdict(dict)

    def add_rows(self, rows: Iterable[JournalRow], followed: Iterable[tuple[int, str]]) -> None:
        """Store the new rows of the journal, and the followed owners as pairs of board key and owner."""
        for row in rows:
            self._rows[row.board_key].append(row)
        for board_key, owner in followed:
            self._followed[board_key].add(owner)

    def find_rows(self, board: Board) -> Sequence[JournalRow]:
        return [row for leaf in board.leaves for row in self._rows[leaf.key]]

    def read_moves(self, board: Board, index: int, column: MoveReader) -> Moves:
        slot = board.key, index
        if slot not in self._moves:
            self._moves[slot] = column.read_moves(self.find_rows(board))
        return self._moves[slot]

    def read_totals(self, board: Board) -> Program[dict[int, int]]:
        if board.key not in self._totals:
            self._totals[board.key] = yield from read_board_totals(board)
        return self._totals[board.key]

    def read_entry(self, board: Board, entries: OpenBoard, owner: str) -> Program[Entry | None]:
        """Return an owner's entry. The first call for a board also reads every followed owner whom a new row names."""
        kept = self._entries[board.key]
        if owner not in kept:
            moved = {row.owner for row in self.find_rows(board)} & self._followed[board.key]
            wanted = sorted({owner, *(each for each in moved if each is not None)} - kept.keys())
            found = yield from entries.find_entries(wanted)
            kept.update((each, found.get(each)) for each in wanted)
        return kept[owner]


class Event(NamedTuple):
    numbers: Numbers  # of the journal in each partition; the event includes every change up to them
    name: str
    data: bytes  # JSON on one line

    def encode_event(self, partitions: Sequence[int]) -> bytes:
        """Return the event of a board in these partitions in the format of server-sent events."""
        event_id = encode_event_id(partitions, self.numbers).encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, self.name.encode(), self.data)


def encode_event_id(partitions: Sequence[int], numbers: Numbers) -> str:
    """Return the id of an event. A number alone means partition 0, which most stores have as their only one."""
    return ",".join(f"{each}.{numbers[each]}" if each else str(numbers[each]) for each in partitions)


def decode_event_id(text: str, partitions: Sequence[int]) -> Numbers:
    """Return the numbers of an event's id, or `NEVER_SEEN` if the id is none of an event in these partitions."""
    numbers, texts = [0] * (partitions[-1] + 1), text.split(",")
    for index, partition in enumerate(partitions):
        number = _decode_number(texts[index], partition) if len(texts) == len(partitions) else None
        numbers[partition] = NEVER_SEEN if number is None else number
    return tuple(numbers)


def _decode_number(text: str, partition: int) -> int | None:
    named, dot, number = text.rpartition(".")
    if named != (str(partition) if partition else "") or bool(dot) != bool(partition):
        return None
    known = number.isascii() and number.isdigit() and len(number) < 20
    return int(number) if known and int(number) <= INT64_MAX else None


class Subscriber(Protocol):
    """A connection that receives events."""

    def write(self, text: bytes) -> bool:
        """Send a text; return False if the client has left, or was dropped because it reads too slowly."""

    def end_stream(self) -> None:
        """End the stream."""


@dataclass(frozen=True, slots=True)
class _Top:
    last: Event | None = None  # the last event, which shows the whole state to a new client; None before the first read
    owners: frozenset[str] = frozenset()
    worst: str | None = None  # the cell of the last row shown; None if the ranking has too few rows to fill the top
    shown: bytes = b""


@dataclass(frozen=True, slots=True)
class _Standing:
    last: Event | None = None  # as in `_Top`
    cell: str | None = None
    rank: int | None = None
    total: int = 0
    counted: Mapping[int, int] = field(default_factory=dict)  # the last number that the rank includes, by board key


S = TypeVar("S", _Top, _Standing)


class _Topic(Generic[S]):
    """A ranked column of a board, the clients that follow it, and the state of what they follow."""

    def __init__(self, board: Board, index: int, ranking: Ranking, state: S) -> None:
        self.board, self.index, self._ranking = board, index, ranking
        self._column = MoveReader(board, index, high=ranking.padding.high)
        self._state: S = state
        self._kept: S = state  # the state after the last poll that succeeded
        self.clients: set[Subscriber] = set()

    @property
    def is_new(self) -> bool:
        """Return whether the state was not read yet."""
        return self._state.last is None

    @property
    def last(self) -> Event:
        """Return the last event. Only topics whose state was read have one."""
        assert self._state.last is not None
        return self._state.last

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to show to a new client yet."""
        return False

    def keep_state(self) -> None:
        """Keep the state, because the poll has succeeded."""
        self._kept = self._state

    def restore_state(self) -> None:
        """Undo what a failed poll may have changed."""
        self._state = self._kept


class TopTopic(_Topic[_Top]):
    def __init__(self, ranks: RankContext, board: Board, index: int, top: int) -> None:
        self._pager, self._top = ranks.make_pager(board, index), top
        super().__init__(board, index, self._pager.ranking, _Top())

    def read_state(self, snapshot: FeedSnapshot) -> Program[None]:
        self._state = yield from self._read(snapshot.until)

    def apply_new_rows(self, snapshot: FeedSnapshot) -> Program[Event | None]:
        if not self._touched(snapshot.read_moves(self.board, self.index, self._column).all):
            return None
        read = yield from self._read(snapshot.until)
        if read.shown == self._state.shown:
            return None
        self._state = read
        return read.last

    def find_missed_event(self, rows: Sequence[JournalRow], until: Numbers) -> Event | None:
        return self.last._replace(numbers=until) if self._touched(self._column.read_moves(rows).all) else None

    def _touched(self, moves: Iterable[RankMove]) -> bool:
        worst, owners, better = self._state.worst, self._state.owners, self._column.is_better
        for move in moves:
            if move.row.owner is None or move.row.owner in owners:
                return True
            if move.before == move.after:
                continue
            if worst is None or not (better(worst, move.before) and better(worst, move.after)):
                return True
        return False

    def _read(self, until: Numbers) -> Program[_Top]:
        window = yield from self._pager.find_first_rows(self._top)
        page = self._pager.make_page(window)
        cell = window.rows[-1].cells[self.index] if len(window.rows) == self._top else None
        return _Top(
            last=Event(until, "top", msgspec.json.encode(TopEvent(page.column, page.total, page.entries))),
            owners=frozenset(row.owner for row in window.rows),
            worst=cell if isinstance(cell, str) else None,
            shown=msgspec.json.encode(page.entries),
        )


class OwnerTopic(_Topic[_Standing]):
    """The position of one owner.

    The rank is counted when the owner's own entry moves. Between two counts, each entry that passes the owner changes
    the rank by one.
    """

    def __init__(self, ranks: RankContext, board: Board, index: int, owner: str) -> None:
        locator = self._locator = ranks.find_locator(board)
        super().__init__(board, index, locator.entries.rankings[index], _Standing())
        self.owner, self._entries = owner, locator.entries

    @property
    def is_empty(self) -> bool:
        return self._state.cell is None

    def find_count_start(self) -> CountStart | None:
        """Return the start of a count (see `Locator.find_count_start`). The feed calls this before a poll begins."""
        return self._locator.find_count_start(self.index)

    def read_state(self, snapshot: FeedSnapshot) -> Program[None]:
        """Count the owner's rank in the snapshot. It includes all rows of the journal up to `snapshot.until`.

        An owner without a value in the column may get one by a post. Then that is the first event of new clients.

        Raises:
            UnknownOwnerError: the owner has no entry on the board, which is archived.
            NotRankedError: the owner is hidden, or has no value in the column of an archived board.
        """
        counted = yield from self._count(snapshot)
        if counted.cell is None:
            yield from self._refuse()
        self._state = replace(counted, last=self._event(counted, snapshot.until, counted.rank, []))

    def _refuse(self) -> Program[None]:
        """Raise an error if no post can give the owner a position."""
        leaf, is_archived = self.board.leaf_of(self.owner), self.board.gate.archived_us is not None
        finding = hidden_owners.find_hidden_owners([self.owner])
        is_hidden = bool((yield from in_partition(leaf.partition, finding)))
        if is_hidden or (is_archived and (yield from self._entries.find_entries([self.owner]))):
            raise NotRankedError(f"{self.owner!r} has no value in this column, or is hidden")
        if is_archived:
            raise UnknownOwnerError(f"{self.owner!r} has no entry in {self.board.id!r}")

    def apply_new_rows(self, snapshot: FeedSnapshot) -> Program[Event | None]:
        """Apply the new rows about the board to the state. Return the event that these rows cause, if any."""
        before = self._state
        moves = snapshot.read_moves(self.board, self.index, self._column)
        if not moves.concern_owner(self.owner, before.cell):
            return None
        counted = before.counted
        fresh = [move for move in moves.all if move.row.number > counted.get(move.row.board_key, NEVER_SEEN)]
        overtakers, moved, more = self._passed(fresh, before.cell)
        if moved:
            now = yield from self._count(snapshot)
        elif before.rank is not None and (more or overtakers):
            total = (yield from snapshot.read_totals(self.board)).get(self.index, 0)
            now = replace(before, rank=before.rank + more, total=total)
        else:
            return None
        if (now.cell, now.rank) == (before.cell, before.rank) and not overtakers:
            self._state = replace(now, last=before.last)
            return None
        event = self._event(now, snapshot.until, before.rank, overtakers)
        self._state = replace(now, last=event)
        return event

    def find_missed_event(self, rows: Sequence[JournalRow], until: Numbers) -> Event | None:
        """Return the event for a client that missed only these rows, or None if the topic shows no change.

        `until` has the numbers of the event.
        """
        now = self._state
        moves = self._column.read_moves(rows).all
        own = next((move for move in moves if move.row.owner == self.owner), None)
        overtakers, moved, more = self._passed(moves, now.cell if own is None else own.before)
        if not (moved or more or overtakers):
            return None
        return self._event(now, until, None if moved or now.rank is None else now.rank - more, overtakers)

    def _passed(self, moves: Iterable[RankMove], cell: str | None) -> tuple[list[str], bool, int]:
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
        found = yield from snapshot.read_entry(self.board, self._entries, self.owner)
        cell = None if found is None else found.cells[self.index]
        counted = {leaf.key: snapshot.ends[leaf.partition] for leaf in self.board.leaves}
        total = totals.get(self.index, 0)
        if not isinstance(cell, str):
            return _Standing(total=total, counted=counted)
        among_ties = self.owner if self._ranking.timed else ""
        start = snapshot.starts.get((self.board.key, self.index))
        before = yield from self._ranking.count_before(cell, among_ties, start)
        rank = 1 + before.better_count + before.ties_before
        return _Standing(cell=cell, rank=rank, total=total, counted=counted)

    def _event(self, now: _Standing, until: Numbers, before: int | None, overtakers: list[str]) -> Event:
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


Topic = TopTopic | OwnerTopic

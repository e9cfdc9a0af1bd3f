"""The topics that streams follow: the top of a ranking, and the position of one owner in it, with their common base.

A topic reads its state and the journal's last number in one snapshot, then applies the rows after that number. Applying
a row that the snapshot already includes changes nothing, so no change is missed and none counts twice.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.responses.journal import OwnerEvent, TopEvent
from service.contract.values import to_wire_number
from service.ranks.locator import percentile
from service.ranks.rank_context import RankContext
from service.ranks.tiers import Tiers
from storage.boards.journal import Numbers
from storage.errors import NotRankedError, UnknownOwnerError
from storage.leaves import hidden_owners
from storage.leaves.exact_ranks import CountStart
from storage.leaves.rankings import OpenBoard, Ranking
from storage.leaves.totals import read_board_totals
from storage.log.bundles import ChangeKind
from storage.log.partition_journal import JournalRow
from storage.records import Board, Entry
from storage.store import Program, in_partition

from .rank_moves import MoveReader, Moves, RankMove

RankedColumnId = tuple[int, int]  # the key of a board, and the index of a ranked column
CountStarts = Mapping[RankedColumnId, CountStart | None]
NEVER_SEEN = -1  # a number that no journal row has
_FLIPS = (ChangeKind.HIDDEN, ChangeKind.SHOWN)
# The records of these changes hold a hidden row's cells, which the owner sees if it is shadowed.
_HOLDING_CELLS = (ChangeKind.HIDDEN, ChangeKind.UNSEEN, ChangeKind.FIRST_UNSEEN)
OVERTAKERS_MAX = 10  # maximum names in `overtaken_by` of an event, even if more owners overtook


class FeedSnapshot:
    """A snapshot of the store with the new rows of the journal, which all topics of one poll share.

    `until` has the number of the last included row for each partition of the feed, and 0 for other partitions. Each
    board, column and entry is read at most once for all topics.
    """

    def __init__(self, starts: CountStarts, ends: Numbers) -> None:
        """Make a snapshot without rows. `ends` has, for each partition, the number of the last row of its journal."""
        self.starts, self.ends, self.until = starts, ends, ends
        self._rows: defaultdict[int, list[JournalRow]] = defaultdict(list)
        self._followed: defaultdict[int, set[str]] = defaultdict(set)
        self._moves: dict[RankedColumnId, Moves] = {}
        self._totals: dict[int, dict[int, int]] = {}
        self._entries: defaultdict[int, dict[str, Entry | None]] = defaultdict(dict)

    def add_rows(self, rows: Iterable[JournalRow], followed: Iterable[tuple[int, str]]) -> None:
        """Add new journal rows to this snapshot. `followed` has (leaf key, owner) for each topic about an owner."""
        for row in rows:
            self._rows[row.leaf_key].append(row)
        for leaf_key, owner in followed:
            self._followed[leaf_key].add(owner)

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
        """Read an owner's entry. A board's first call also reads the entries of followed owners that new rows name."""
        kept = self._entries[board.key]
        if owner not in kept:
            moved = {row.owner for row in self.find_rows(board)} & self._followed[board.key]
            wanted = sorted({owner, *(each for each in moved if each is not None)} - kept.keys())
            found = yield from entries.find_entries(wanted)
            kept.update((each, found.get(each)) for each in wanted)
        return kept[owner]


class Event(NamedTuple):
    numbers: Numbers  # for each partition, a journal number; all changes up to it are included
    name: str
    data: bytes  # JSON on one line

    def encode_event(self, partitions: Sequence[int]) -> bytes:
        """Encode the event in the format of server-sent events. Its id has a journal number for each partition."""
        event_id = encode_event_id(partitions, self.numbers).encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, self.name.encode(), self.data)


_UNTOLD = Event((), "position", b"")  # stands for the last event of a state that has none yet


def encode_event_id(partitions: Sequence[int], numbers: Sequence[int]) -> str:
    """Encode an event's id. `17,1.5` means number 17 in partition 0 (often the only one) and 5 in partition 1."""
    return ",".join(f"{each}.{numbers[each]}" if each else str(numbers[each]) for each in partitions)


def decode_event_id(text: str, partitions: Sequence[int]) -> Numbers:
    """Decode the journal numbers in an event's id. If the id does not fit the partitions, all are `NEVER_SEEN`."""
    numbers = [0] * (partitions[-1] + 1)
    for partition, each in zip(partitions, text.split(","), strict=False):
        number = each.rpartition(".")[2]
        numbers[partition] = int(number) if number.isascii() and number.isdigit() and len(number) < 20 else NEVER_SEEN
    if encode_event_id(partitions, numbers) == text:
        return tuple(numbers)
    return (NEVER_SEEN,) * len(numbers)


class Subscriber(Protocol):
    def write(self, text: bytes) -> bool:
        """Send a text. Return False if the client has left, or was dropped because it reads too slowly."""

    def end_stream(self) -> None:
        """End the stream."""


@dataclass(frozen=True, slots=True)
class _Top:
    last: Event  # the last event, which shows the whole state to a new client
    owners: frozenset[str]
    worst: str | None  # stored text of the last shown row's value; None if there are too few rows to fill the top
    shown: bytes  # the rows of the top as JSON
    is_empty: bool


@dataclass(frozen=True, slots=True)
class _Standing:
    last: Event  # as in `_Top`
    cell: str | None  # the stored text of the owner's value; None: no value
    rank: int | None  # None: no value
    total: int
    counted: Mapping[int, int]  # by leaf key: the number of the last journal row that `rank` takes into account
    shadows: int = 0  # 1 if the owner is shadowed: no ranking counts its entry, but `total` does

    @property
    def is_empty(self) -> bool:
        return self.cell is None


class Topic(ABC):
    """The base of all topics, which have a board, clients, and the state that the clients follow.

    Methods with the parameter `snapshot` return a new state and do not change the topic, because a poll may run again.
    """

    waits_for_value = False  # whether a new client gets no event while the state is empty

    def __init__(self, board: Board) -> None:
        self.board = board
        # The state after the last poll that succeeded; None: not read yet. `state.last` is the event that shows it to
        # a new client, and `state.is_empty` says that there is nothing to show.
        self.state: Any = None
        self.clients: set[Subscriber] = set()

    @abstractmethod
    def read_state(self, snapshot: FeedSnapshot) -> Program[Any]:
        """Read the state in the snapshot, which includes all rows up to `snapshot.until`.

        Raises StorageError if there is nothing to follow.
        """

    @abstractmethod
    def apply_new_rows(self, before: Any, snapshot: FeedSnapshot) -> Program[Any]:
        """Compute the state after new rows about the board. It has a new last event if the rows cause one."""

    @abstractmethod
    def find_missed_event(self, now: Any, rows: Sequence[JournalRow], until: Numbers) -> Event | None:
        """Find the event for a client that missed only these rows; return None if they change nothing that it sees.

        `until` has the journal numbers for this event.
        """


class _RankedTopic(Topic):
    def __init__(self, board: Board, index: int, ranking: Ranking, tiers: Tiers | None) -> None:
        super().__init__(board)
        self.index, self._ranking, self._tiers = index, ranking, tiers
        self._column = MoveReader(board, index, high=ranking.padding.high)

    def _may_change_tiers(self, moves: Moves) -> bool:
        """Return whether moves can change tiers that clients see, even if they change no rank that clients see."""
        return self._tiers is not None and self._tiers.depend_on_total and moves.change_total


class TopTopic(_RankedTopic):
    def __init__(self, ranks: RankContext, board: Board, index: int, top: int) -> None:
        self._pager, self._top = ranks.make_pager(board, index), top
        super().__init__(board, index, self._pager.ranking, ranks.find_locator(board).tiers.get(index))

    def read_state(self, snapshot: FeedSnapshot) -> Program[_Top]:
        window = yield from self._pager.find_first_rows(self._top)
        page = self._pager.make_page(window)
        cell = window.rows[-1].cells[self.index] if len(window.rows) == self._top else None
        return _Top(
            last=Event(snapshot.until, "top", msgspec.json.encode(TopEvent(page.column, page.total, page.entries))),
            owners=frozenset(row.owner for row in window.rows),
            worst=cell if isinstance(cell, str) else None,
            shown=msgspec.json.encode(page.entries),
            is_empty=not window.rows,
        )

    def apply_new_rows(self, before: _Top, snapshot: FeedSnapshot) -> Program[_Top]:
        if not self._touched(before, snapshot.read_moves(self.board, self.index, self._column)):
            return before
        read = yield from self.read_state(snapshot)
        return before if read.shown == before.shown else read

    def find_missed_event(self, now: _Top, rows: Sequence[JournalRow], until: Numbers) -> Event | None:
        return now.last._replace(numbers=until) if self._touched(now, self._column.read_moves(rows)) else None

    def _touched(self, state: _Top, moves: Moves) -> bool:
        if self._may_change_tiers(moves):
            return True
        worst, owners, better = state.worst, state.owners, self._column.is_better
        for move in moves.all:
            if move.row.owner is None or move.row.owner in owners:
                return True
            if move.before == move.after:
                continue
            if worst is None or not (better(worst, move.before) and better(worst, move.after)):
                return True
        return False


class OwnerTopic(_RankedTopic):
    """One owner's position in a ranking.

    The rank is counted when the owner's own value changes. Between two counts, every other entry that passes the owner
    changes the rank by one.
    """

    waits_for_value = True

    def __init__(self, ranks: RankContext, board: Board, index: int, owner: str) -> None:
        locator = self._locator = ranks.find_locator(board)
        super().__init__(board, index, locator.entries.rankings[index], locator.tiers.get(index))
        self.owner, self._entries = owner, locator.entries

    def find_count_start(self) -> CountStart | None:
        """Find the curve at whose knots counts start, or None if they start at the top. Call this before a poll."""
        return self._locator.find_count_start(self.index)

    def read_state(self, snapshot: FeedSnapshot) -> Program[_Standing]:
        """Read the owner's state, with the rank counted in the snapshot.

        An owner without a value has no event to show yet. Clients get their first event when a post gives a value.

        Raises:
            UnknownOwnerError: the board is archived, and the owner has no entry on it.
            NotRankedError: the owner is hidden, or has no value in the column of an archived board.
        """
        counted = yield from self._count(snapshot)
        if counted.cell is None:
            yield from self._refuse()
        return self._told(counted, snapshot.until, counted.rank, [])

    def _refuse(self) -> Program[None]:
        leaf, is_archived = self.board.leaf_of(self.owner), self.board.gate.archived_us is not None
        finding = hidden_owners.find_hidden_owners([self.owner])
        states = yield from in_partition(leaf.partition, finding)
        is_hidden = states.get(self.owner) in hidden_owners.TOLD
        if is_hidden or (is_archived and (yield from self._entries.find_entries([self.owner]))):
            raise NotRankedError(f"{self.owner!r} has no value in this column, or is hidden")
        if is_archived:
            raise UnknownOwnerError(f"{self.owner!r} has no entry in {self.board.id!r}")

    def apply_new_rows(self, before: _Standing, snapshot: FeedSnapshot) -> Program[_Standing]:
        moves = snapshot.read_moves(self.board, self.index, self._column)
        changes_tiers = self._may_change_tiers(moves)
        if not changes_tiers and not moves.concern_owner(self.owner, before.cell):
            return before
        counted = before.counted
        fresh = [move for move in moves.all if move.row.number > counted.get(move.row.leaf_key, NEVER_SEEN)]
        overtakers, moved, more = self._passed(fresh, before.cell)
        if moved or any(move.row.owner == self.owner and move.row.kind in _FLIPS for move in fresh):
            now = yield from self._count(snapshot)
        elif before.rank is not None and (more or overtakers or changes_tiers):
            total = (yield from snapshot.read_totals(self.board)).get(self.index, 0) + before.shadows
            now = replace(before, rank=before.rank + more, total=total)
        else:
            return before
        same = (now.cell, now.rank, self._tier(now)) == (before.cell, before.rank, self._tier(before))
        if same and not overtakers:
            return replace(now, last=before.last)
        return self._told(now, snapshot.until, before.rank, overtakers)

    def find_missed_event(self, now: _Standing, rows: Sequence[JournalRow], until: Numbers) -> Event | None:
        moves = self._column.read_moves(rows)
        own = next((move for move in moves.all if move.row.owner == self.owner), None)
        told = own is not None and own.row.kind is not ChangeKind.UNSEEN  # such a row does not have the cell before it
        overtakers, moved, more = self._passed(moves.all, own.before if own is not None and told else now.cell)
        if not (moved or more or overtakers or self._may_change_tiers(moves)):
            return None
        before = None if moved or now.rank is None else now.rank - more
        return self._told(now, until, before, overtakers).last

    def _passed(self, moves: Iterable[RankMove], cell: str | None) -> tuple[list[str], bool, int]:
        """Find who overtook the owner, whether its value may have changed, and how far others change its rank."""
        past: dict[str, None] = {}
        moved, more, better = False, 0, self._column.is_better
        for move in moves:
            before, after, row = move.before, move.after, move.row
            if move.may_concern_cell(cell):
                moved = True  # the owner may have been erased, or the board may have been emptied
                continue
            if row.owner == self.owner:
                own = self._own_cell(move)
                moved = moved or own != cell or (before is None and row.kind in _HOLDING_CELLS)
                cell = own
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

    def _own_cell(self, move: RankMove) -> str | None:
        """Find the owner's cell after its own change, even if it is hidden, because a shadowed owner is still told."""
        record = move.row.record
        if record is None or record.kind not in _HOLDING_CELLS:
            return move.after
        cell = record.cells[self.index] if self.index < len(record.cells) else None
        return cell if isinstance(cell, str) else None

    def _count(self, snapshot: FeedSnapshot) -> Program[_Standing]:
        totals = yield from snapshot.read_totals(self.board)
        found = yield from snapshot.read_entry(self.board, self._entries, self.owner)
        shadows = 0
        if found is None:
            leaf = self.board.leaf_of(self.owner)
            found = yield from in_partition(leaf.partition, hidden_owners.find_shadow(leaf, self.owner))
            shadows = int(found is not None)
        cell = None if found is None else found.cells[self.index]
        counted = {leaf.key: snapshot.ends[leaf.partition] for leaf in self.board.leaves}
        total = totals.get(self.index, 0)
        if not isinstance(cell, str):
            return _Standing(_UNTOLD, None, None, total, counted)
        total += shadows
        among_ties = self.owner if self._ranking.timed else ""
        start = snapshot.starts.get((self.board.key, self.index))
        before = yield from self._ranking.count_before(cell, among_ties, start)
        rank = 1 + before.better_count + before.ties_before
        return _Standing(_UNTOLD, cell, rank, total, counted, shadows)

    def _told(self, now: _Standing, until: Numbers, before: int | None, overtakers: list[str]) -> _Standing:
        """Give the state `now` a new last event that shows it to clients. `before` is the previous rank."""
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
            tier=self._tier(now),
            reached_at=self._locator.find_reached_at(self.index, now.cell),
        )
        return replace(now, last=Event(until, "position", msgspec.json.encode(event)))

    def _tier(self, standing: _Standing) -> str | UnsetType | None:
        if self._tiers is None:
            return UNSET
        if standing.cell is None or standing.rank is None:
            return None
        value = self._ranking.padding.decode_value(standing.cell)
        return self._tiers.find_tier(value, standing.rank, standing.total)

"""Rebuild a board from all posts in the journal that have a given number or a later one.

    empty the board ──> find the deleted boards with its id ──> merge the posts to all of them, in order ──> store rows

`entries.rebuild` copies the row that each owner's last post left. A board that was deleted and created again began
empty, so its rows lack what the earlier board held. Here every post is merged again, also the posts to deleted boards
with the same id.

The most important rule: each post counts once. The board begins a new epoch, which makes its post ids void, and
remembers the ids of the merged posts. Of two posts with the same id, the second is left out, and a retry is a
duplicate.

Resets and deletions of boards after the given number are ignored. A caller who gives a number before a reset or a
deletion wants the posts before it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from storage.boards.boards import begin_epoch, store_state
from storage.entries.entries import Entries
from storage.entries.hidden_owners import hidden_statements
from storage.entries.rebuild import PAGE_ROWS, OwnerRow, RebuildCounts, empty_board, store_owner_rows
from storage.errors import (
    JournalIncompleteError,
    NothingReplayedError,
    SpecConflictError,
    StoreBusyError,
    ValueOutOfRangeError,
)
from storage.log.cells import Cell
from storage.log.journal import JournalRow, journal
from storage.log.log_record import ChangeKind, ChangeRecord
from storage.records import Board, ColumnChange, PartOutcome, PostStatus
from storage.store import Program

from .post_ids import PostIds

# Computes the fingerprint of a post from its owner, board, changes and `at`. See `Post.fingerprint`.
FingerprintOf = Callable[[str, Board, Sequence[ColumnChange], int | None], str]

WAITING_MAX = 100_000  # most changes that are held back, because a change made before them may be on a later page
_POSTS = (ChangeKind.APPLIED, ChangeKind.UNCHANGED, ChangeKind.UNSEEN)


@dataclass(slots=True)
class _OwnerState:
    """An owner's row after the posts merged so far. `cells` is None if the owner was erased."""

    order: int
    updated_at_us: int
    cells: list[Cell] | None


def replay_board(
    post_ids: PostIds, fingerprint_of: FingerprintOf, *, board_id: str, since: int, now_us: int
) -> Program[RebuildCounts]:
    """Rebuild the board's rows from the posts in the journal whose number is `since` or greater.

    Memory use grows with the number of owners.

    Raises:
        UnknownBoardError: there is no such board.
        JournalIncompleteError: the journal begins after `since`, or the order of its changes is not known.
        NothingReplayedError: the journal has no such post.
        SpecConflictError: an earlier board with this id had a column that this one does not have.
        StoreBusyError: an owner is being hidden or shown.
        ArchivedError: the board was archived, so its rows were removed on purpose.
    """
    begins_after = yield from journal.find_begin()
    if since <= begins_after:
        raise JournalIncompleteError(
            f"the journal begins after {begins_after}, so it does not hold all posts since {since}"
        )
    board, done, changes = yield from empty_board(board_id)
    board = yield from begin_epoch(board)
    boards = {board.key: board, **(yield from journal.find_deleted_boards(board_id, since=since))}
    entries, in_order = Entries(board), _ChangeSorter()
    replay = _Replay(entries, boards, fingerprint_of, done)
    after: int | None = since - 1
    while after is not None:
        rows = yield from journal.read_changes(after, limit=PAGE_ROWS, boards=list(boards), held=True)
        done.rows += len(rows)
        after = rows[-1].number if len(rows) == PAGE_ROWS else None
        ready = in_order.sort_changes(rows, keep=0 if after is None else WAITING_MAX)
        for start in range(0, len(ready), PAGE_ROWS):
            page = ready[start : start + PAGE_ROWS]
            known = yield from _known_ids(post_ids, board, page)
            if fresh := replay.merge(page, known, post_ids):
                yield from post_ids.remember_posts(fresh, now_us)
    if not done.replayed:
        raise NothingReplayedError(f"the journal has no post to {board_id!r} since {since}")
    yield from store_owner_rows(entries, (yield from _owner_rows(replay.owners)), changes, done)
    yield from store_state(board)
    return done


class _ChangeSorter:
    """Puts changes into the order in which they were made.

    The pages of the journal are in the order of transaction ids. Of two transactions that ran at the same time, the one
    with the higher id may have changed an owner first.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, JournalRow]] = []

    def sort_changes(self, rows: Iterable[JournalRow], *, keep: int) -> list[JournalRow]:
        """Add changes. Remove and return, in order, all changes but the last `keep`."""
        for row in rows:
            heappush(self._waiting, (row.order, row))
        return [heappop(self._waiting)[1] for _ in range(len(self._waiting) - keep)]


class _Replay:
    def __init__(
        self, entries: Entries, boards: Mapping[int, Board], fingerprint_of: FingerprintOf, done: RebuildCounts
    ) -> None:
        self._board, self._merger = entries.board, entries.pattern.merger
        self._boards, self._fingerprint_of, self._done = boards, fingerprint_of, done
        self._columns = {key: _column_map(board, entries.board) for key, board in boards.items()}
        self.owners: dict[str, _OwnerState] = {}

    def merge(
        self, rows: Iterable[JournalRow], known: set[str], post_ids: PostIds
    ) -> list[tuple[int, int, str, str, PartOutcome]]:
        """Merge changes, except posts whose id has a hash in `known`.

        Return the ids of the merged posts, as rows for `PostIds.remember_posts`, and add their hashes to `known`.
        """
        fresh: list[tuple[int, int, str, str, PartOutcome]] = []
        for row in rows:
            if row.owner is None or row.record is None:
                continue
            if row.record.kind is ChangeKind.ERASED:
                self.owners[row.owner] = _OwnerState(row.order, 0, None)
            if row.record.kind not in _POSTS:
                continue
            post_hash = None if row.record.post_id is None else post_ids.hash_post_id(row.record.post_id)
            if post_hash in known:
                self._done.duplicates += 1
                continue
            changes = self._changes(row.board_key, row.record)
            try:
                outcome = self._merge_post(row, row.owner, row.record, changes)
            except ValueOutOfRangeError:
                self._done.rejected += 1
                continue
            self._done.replayed += 1
            if post_hash is not None:
                known.add(post_hash)
                fingerprint = self._fingerprint_of(row.owner, self._board, changes, row.record.at_us)
                fresh.append((self._board.key, self._board.epoch, post_hash, fingerprint, outcome))
        return fresh

    def _changes(self, board_key: int, posted: ChangeRecord) -> list[ColumnChange]:
        columns, changes = self._columns[board_key], []
        for change in posted.changes:
            index = columns[change.index]
            if index is None:
                name = self._boards[board_key].spec.columns[change.index].name
                detail = (
                    f"an earlier {self._board.id!r} had a column {name!r}, which this one lacks or declares otherwise"
                )
                raise SpecConflictError(f"{detail}: create the leaderboard with the earlier columns")
            changes.append(ColumnChange(index, change.value, change.overwrite))
        return changes

    def _merge_post(
        self, row: JournalRow, owner: str, posted: ChangeRecord, changes: Sequence[ColumnChange]
    ) -> PartOutcome:
        state = self.owners.get(owner)
        if state is not None and row.order < state.order:
            raise JournalIncompleteError("the journal's order is not known: too many transactions ran at the same time")
        at_us = row.logged_us if posted.at_us is None else posted.at_us
        before = None if state is None else state.cells
        changed = self._merger.merge_changes(before, changes, at_us)
        if state is None or before is None:
            before = [None] * len(self._board.spec.columns)
            state = self.owners[owner] = _OwnerState(row.order, row.at_us, before)
            status = PostStatus.APPLIED
        else:
            status = PostStatus.APPLIED if changed else PostStatus.UNCHANGED
        state.order = row.order
        if changed:
            state.updated_at_us = max(state.updated_at_us, row.at_us)
        for index, cell in changed.items():
            before[index] = cell
        return PartOutcome(status, state.updated_at_us, self._merger.decode_stats(before))


def _column_map(earlier: Board, board: Board) -> list[int | None]:
    """Return for each earlier column the index of the column in `board` with its name, kind and scale, or None."""
    found: list[int | None] = []
    for column in earlier.spec.columns:
        index = board.column_index.get(column.name)
        now = None if index is None else board.spec.columns[index]
        same = now is not None and (now.kind, now.scale) == (column.kind, column.scale)
        found.append(index if same else None)
    return found


def _known_ids(post_ids: PostIds, board: Board, rows: Iterable[JournalRow]) -> Program[set[str]]:
    named = (row.record.post_id for row in rows if row.record is not None)
    hashes = {post_ids.hash_post_id(post_id) for post_id in named if post_id is not None}
    if not hashes:
        return set()
    _, known = yield from post_ids.find_known(board.key, board.epoch, hashes)
    return set(known)


def _owner_rows(owners: Mapping[str, _OwnerState]) -> Program[dict[str, OwnerRow]]:
    """Return the rows of the owners. Each row says whether its owner is currently hidden."""
    names, hidden_owners = list(owners), set[str]()
    for start in range(0, len(names), PAGE_ROWS):
        found = yield from hidden_statements.find_hidden([], names[start : start + PAGE_ROWS])
        if found.changing:
            raise StoreBusyError("an owner is being hidden or shown: rebuild the leaderboard once that is done")
        hidden_owners |= found.hidden_owners
    return {
        owner: OwnerRow(state.order, state.updated_at_us, state.cells, owner in hidden_owners)
        for owner, state in owners.items()
    }

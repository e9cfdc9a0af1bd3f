"""Rebuilds a board from all posts in the journal that have a given number or a later one.

    empty the board ──> find the deleted boards with its id ──> merge the posts to all of them, in order ──> store rows

`entries.rebuild` copies the row that each owner's last post left. A board that was deleted and created again began
empty, so its rows lack what the earlier board held. Here every post is merged again, also the posts to deleted boards
with the same id.

The most important rule: each post counts once. The board begins a new epoch, which makes its post ids void, and
remembers the ids of the merged posts, with the times at which they were logged. Of two posts of an owner with the same
id, the second is left out, and a retry is a duplicate.

Resets and deletions of boards after the given number are ignored. A caller who gives a number before a reset or a
deletion wants the posts before it too.
"""

from collections.abc import Callable, Mapping, Sequence

from storage.boards.board_removal import begin_epoch
from storage.boards.boards import find_keys_ever
from storage.boards.totals import store_states
from storage.entries import hidden_owners
from storage.entries.entries import Entries
from storage.entries.rebuild import (
    PAGE_ROWS,
    JournalPages,
    OwnerRow,
    RebuildCounts,
    empty_board,
    find_deleted_boards,
    store_owner_rows,
)
from storage.errors import JournalIncompleteError, NothingReplayedError, SpecConflictError, ValueOutOfRangeError
from storage.log import journal
from storage.log.journal import Numbers, padded
from storage.log.log_record import ChangeKind, ChangeRecord
from storage.log.partition_journal import JournalRow
from storage.records import Board, ColumnChange, PartOutcome, PostStatus, by_partition
from storage.store import Program, in_partition

from .post_ids import PostIds, RememberedPost, find_known, remember_posts

# Computes the fingerprint of a post from its owner, board, changes and `at`. See `Post.fingerprint`.
FingerprintOf = Callable[[str, Board, Sequence[ColumnChange], int | None], str]

_POSTS = (ChangeKind.APPLIED, ChangeKind.UNCHANGED, ChangeKind.UNSEEN)


def replay_board(
    post_ids: PostIds, fingerprint_of: FingerprintOf, *, board_id: str, since: Numbers
) -> Program[RebuildCounts]:
    """Rebuild the board's rows from the posts in the journal whose number is that of `since` or greater.

    Every partition may have posts to the earlier boards. Memory use grows with the number of owners.

    Raises:
        UnknownBoardError: there is no such board.
        JournalIncompleteError: the journal begins after `since`.
        NothingReplayedError: the journal has no such post.
        SpecConflictError: an earlier board with this id had a column that this one does not have.
        ArchivedError: the board was archived, so its rows were removed on purpose.
    """
    begins = yield from journal.find_begins()
    since = padded(since, len(begins))
    for number, begins_after in zip(since, begins, strict=True):
        if number < begins_after:
            raise JournalIncompleteError(
                f"the journal begins after {begins_after}, so it does not hold all posts since {number}"
            )
    board, done, changes = yield from empty_board(board_id)
    board = yield from begin_epoch(board)
    yield from store_states(board.parts)
    keys = yield from find_keys_ever(board)
    boards = {**dict.fromkeys(keys, board), **(yield from find_deleted_boards(board_id, since))}
    replay = _Replay(Entries(board), boards, post_ids, fingerprint_of, done)
    pages = JournalPages(list(boards), tuple(max(0, number - 1) for number in since))
    while not pages.ended:
        rows = yield from pages.read_next()
        done.rows += len(rows)
        yield from replay.merge_page(rows)
    if not done.replayed:
        raise NothingReplayedError(f"the journal has no post to {board_id!r} from there on")
    for partition, parts in by_partition(board.parts):
        theirs = {owner: row for owner, row in replay.owners.items() if board.part_of(owner) in parts}
        yield from in_partition(partition, _mark_hidden(theirs))
    yield from store_owner_rows(board, replay.owners, changes, done)
    return done


class _Replay:
    def __init__(
        self,
        entries: Entries,
        boards: Mapping[int, Board],
        post_ids: PostIds,
        fingerprint_of: FingerprintOf,
        done: RebuildCounts,
    ) -> None:
        self._board, self._merger = entries.board, entries.merger
        self._boards, self._post_ids, self._fingerprint_of, self._done = boards, post_ids, fingerprint_of, done
        self._columns = {key: _column_map(board, entries.board) for key, board in boards.items()}
        self.owners: dict[str, OwnerRow] = {}

    def merge_page(self, rows: Sequence[JournalRow]) -> Program[None]:
        """Merge changes, except posts whose id was remembered before. Remember the ids of the merged posts."""
        by_part: dict[int, list[JournalRow]] = {}
        for row in rows:
            if row.owner is not None:
                by_part.setdefault(self._board.part_of(row.owner).key, []).append(row)
        for part in self._board.parts:
            if part.key in by_part:
                yield from in_partition(part.partition, self._merge_rows(part, by_part[part.key]))

    def _merge_rows(self, part: Board, rows: Sequence[JournalRow]) -> Program[None]:
        hashes = {post_hash for row in rows if (post_hash := self._hash_of(row)) is not None}
        known: set[str] = set()
        if hashes:
            known |= (yield from find_known(part.key, part.epoch, hashes))[1].keys()
        fresh: list[RememberedPost] = []
        times_us: list[int] = []
        for row in rows:
            if row.owner is None or row.record is None:
                continue
            if row.record.kind is ChangeKind.ERASED:
                self.owners[row.owner] = OwnerRow(0, None, False)
            if row.record.kind not in _POSTS:
                continue
            post_hash = self._hash_of(row)
            if post_hash in known:
                self._done.duplicates += 1
                continue
            changes = self._changes(row.board_key, row.record)
            try:
                outcome = self._merge_post(part, row, row.owner, row.record, changes)
            except ValueOutOfRangeError:
                self._done.rejected += 1
                continue
            self._done.replayed += 1
            if post_hash is not None:
                known.add(post_hash)
                fingerprint = self._fingerprint_of(row.owner, self._board, changes, row.record.at_us)
                fresh.append(RememberedPost(part.key, post_hash, fingerprint, [outcome]))
                times_us.append(row.logged_us)
        if fresh:
            yield from remember_posts(fresh, {part.key: part.epoch}, times_us)

    def _hash_of(self, row: JournalRow) -> str | None:
        if row.record is None or row.record.post_id is None or row.owner is None:
            return None
        return self._post_ids.hash_post_id(row.record.post_id, row.owner)

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
        self, part: Board, row: JournalRow, owner: str, posted: ChangeRecord, changes: Sequence[ColumnChange]
    ) -> PartOutcome:
        state = self.owners.get(owner)
        at_us = row.logged_us if posted.at_us is None else posted.at_us
        before = None if state is None else state.cells
        changed = self._merger.merge_changes(before, changes, at_us)
        if state is None or before is None:
            before = [None] * len(self._board.spec.columns)
            state = self.owners[owner] = OwnerRow(row.at_us, before, False)
            status = PostStatus.APPLIED
        else:
            status = PostStatus.APPLIED if changed else PostStatus.UNCHANGED
        if changed:
            state.updated_at_us = max(state.updated_at_us, row.at_us)
        for index, cell in changed.items():
            before[index] = cell
        stats = self._merger.decode_stats(before)
        return PartOutcome(status, state.updated_at_us, stats, board_key=part.key)


def _column_map(earlier: Board, board: Board) -> list[int | None]:
    """Return for each earlier column the index of the column in `board` with its name, kind and scale, or None."""
    found: list[int | None] = []
    for column in earlier.spec.columns:
        index = board.column_index.get(column.name)
        now = None if index is None else board.spec.columns[index]
        same = now is not None and (now.kind, now.scale) == (column.kind, column.scale)
        found.append(index if same else None)
    return found


def _mark_hidden(owners: Mapping[str, OwnerRow]) -> Program[None]:
    names = list(owners)
    for start in range(0, len(names), PAGE_ROWS):
        found = yield from hidden_owners.find_hidden([], names[start : start + PAGE_ROWS])
        for owner in found.hidden_owners:
            owners[owner].is_hidden = True

"""Rebuilds a board's rows by merging the journal's posts again, for the command `rankcurve rebuild`.

    empty the board ──> read its posts from the journal, in order ──> merge them in memory ──> store the rows

If the caller gives no journal number, the rebuild merges all posts since the board was created or last emptied. Each
row becomes what it was after its owner's last post. Stored post ids stay valid, so posts sent again are duplicates.

If the caller gives a journal number, the rebuild merges every post from that number on, including posts to deleted
boards with the same id. If a board was deleted and created again, this restores the posts to the deleted board. The
board starts a new epoch, in which its earlier post ids are no longer valid. The rebuild stores the ids of the merged
posts, with the times at which the posts were logged. If an owner has two posts with the same id, it skips the second.
Resets and deletions of boards are then ignored, because a caller who gives a number from before a reset wants the posts
from before it, too.

A rebuild is all or nothing. It runs in one transaction, and posts to the board wait until that ends. Stored curves are
deleted, and the next refresh creates new ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from querybuilder import Lock
from storage.boards import journal
from storage.boards.board_copy import check_not_moving
from storage.boards.board_removal import begin_epoch, count_epochs, remove_rows
from storage.boards.boards import find_board
from storage.boards.journal import Numbers, padded
from storage.errors import (
    ArchivedError,
    JournalIncompleteError,
    NothingReplayedError,
    ValueOutOfRangeError,
)
from storage.histories import merged_owners
from storage.histories.entry_histories import CLOCK_SKEW_US_MAX
from storage.histories.replay import EntriesByOwner, Replay
from storage.leases.work_leases import store_clock
from storage.leaves import hidden_owners
from storage.leaves.catalog_rows import find_keys_ever, store_columns
from storage.leaves.entrants import hold_entrants, recount_owners
from storage.leaves.entries import Entries, add_totals
from storage.leaves.hidden_owners import HiddenEntry
from storage.leaves.totals import ALL_ENTRIES, CHANGES, find_totals_of, store_gates
from storage.log import partition_journal
from storage.log.bundles import MERGES, POSTS, ChangeKind
from storage.log.change_log import change_log
from storage.log.partition_journal import JournalRow
from storage.records import Board, Entry, Leaf, PartOutcome, PostStatus
from storage.store import CONTROL, Program, in_partition

from .post_ids import PostIds, RememberedPost, find_known, hash_post, remember_posts

PAGE_ROWS = 5_000  # how many changes one step reads from the journal, and how many rows one step stores


@dataclass(slots=True)
class RebuildCounts:
    rows: int = 0  # rows of the journal that were read
    replayed: int = 0  # posts that were merged
    voided: int = 0  # posts that were left out, because they were taken back
    rejected: int = 0  # posts whose result would leave the range of a column
    duplicates: int = 0  # posts that were left out, because a post with the same owner and id was merged before
    entries: int = 0  # entries that the board has now
    hidden_entries: int = 0  # entries of hidden owners, which the board does not show
    entries_before: int = 0  # entries that the board had before the rebuild


def rebuild_board(post_ids: PostIds, *, board_id: str, since: Numbers | None = None) -> Program[RebuildCounts]:
    """Rebuild the board's rows from the journal, and return the counts. Memory use grows with the number of owners.

    `since`: for each partition, the journal number of the first post to merge. None: merge all posts since the board
    was created or last emptied.

    Raises:
        UnknownBoardError: no board has this id.
        JournalIncompleteError: the journal begins after `since`, or may lack the first posts to the board.
        NothingReplayedError: the journal has no post to merge.
        SpecConflictError: a post changes a column that the board now lacks, or has with another kind or scale.
        ArchivedError: the board was archived, so its rows were removed on purpose.
        LeaseTakenError: the board is being moved to another partition.
    """
    board = yield from find_board(board_id, lock=Lock.UPDATE)
    if board.gate.archived_us is not None:
        raise ArchivedError(f"the leaderboard {board_id!r} was archived, so it has no rows")
    yield from check_not_moving(board)
    totals = yield from find_totals_of([board])
    done = RebuildCounts(entries_before=totals[board.key].get(ALL_ENTRIES, 0))
    yield from hold_entrants([(board.leaves[0], ())])  # before any row is locked, as posts do
    board = yield from remove_rows(board)
    own_keys = yield from find_keys_ever(board)
    specs = dict.fromkeys(own_keys, board.spec)
    if since is not None:
        deleted = yield from find_deleted_leaves(board_id, since)
        specs |= {key: leaf.spec for key, leaf in deleted.items()}
        board = yield from begin_epoch(board)
        rebuilt_us = yield from in_partition(CONTROL, store_clock())
        for key in own_keys:
            yield from store_columns(key, rebuilt_at=rebuilt_us)
    yield from store_gates(board.leaves)
    replay = Replay(board.id, board.spec, specs, own_keys)
    for merged in (yield from merged_owners.find_entries([*specs])):
        replay.note_merged(merged.owner, merged.into_owner, merged.kind)
    rows = {leaf.key: EntriesByOwner() for leaf in board.leaves}
    rebuild = _Rebuild(board, replay, post_ids, done, rows, is_whole=since is None)
    yield from rebuild.merge_journal(since or ())
    if since is None and not rebuild.was_emptied:
        yield from _check_start(board)
    if not done.replayed and not done.voided:
        detail = f"the journal has no post to {board_id!r} " + (
            "since it was created or reset; --since also reads posts to deleted leaderboards of that name"
            if since is None
            else "from there on"
        )
        raise NothingReplayedError(detail)
    for leaf in board.leaves:
        storing = _store_rows(Entries(leaf), rebuild.rows[leaf.key], totals[leaf.key].get(CHANGES, 0), done)
        yield from in_partition(leaf.partition, storing)
    yield from recount_owners(board.leaves[0], {owner for each in rebuild.rows.values() for owner in each})
    if since is not None:
        yield from count_epochs(board)
    return done


def _check_start(board: Board) -> Program[None]:
    for partition, begins_after in enumerate((yield from journal.find_begins())):
        if not begins_after:
            continue
        oldest_us = yield from in_partition(partition, change_log.oldest_us())
        if oldest_us is None or board.created_at_us < oldest_us + CLOCK_SKEW_US_MAX:
            detail = f"the journal begins after {begins_after}, and {board.id!r} is older, so earlier posts are missing"
            raise JournalIncompleteError(detail + "; keep it longer with change_log_retention_s")


def find_deleted_leaves(board_id: str, since: Numbers) -> Program[dict[int, Leaf]]:
    """Find the deleted leaves of boards with this id, by key. `since`: by partition, the journal number to start at.

    Raises:
        JournalIncompleteError: the journal of a partition begins after its number in `since`.
    """
    begins = yield from journal.find_begins()
    found: dict[int, Leaf] = {}
    for partition, (number, begins_after) in enumerate(zip(padded(since, len(begins)), begins, strict=True)):
        if number < begins_after:
            raise JournalIncompleteError(
                f"the journal begins after {begins_after}, so it does not hold all posts since {number}"
            )
        found |= yield from in_partition(partition, partition_journal.find_deleted_leaves(board_id, since=number))
    return found


@dataclass(slots=True)
class _Rebuild:
    """Merges the journal's posts in memory. `rows` collects the entries that `rebuild_board` then stores."""

    board: Board
    replay: Replay
    post_ids: PostIds
    done: RebuildCounts
    rows: dict[int, EntriesByOwner]  # by leaf key; each leaf of the board has a key
    is_whole: bool  # whether all posts since the board was created or last emptied are merged
    was_emptied: bool = False

    def merge_journal(self, since: Numbers) -> Program[None]:
        keys = [*self.replay.specs]
        after, ended = tuple(max(0, number - 1) for number in since), False
        partitions = range(len((yield from journal.find_begins())))
        for partition, number in enumerate(padded(after, len(partitions))):
            voidings = partition_journal.find_voidings(keys, after=number)
            self.replay.note_voided((yield from in_partition(partition, voidings)))
        while not ended:
            page = yield from journal.read_page(after, limit=PAGE_ROWS, partitions=partitions, boards=keys)
            changes = list(page.list_changes())
            self.done.rows += len(changes)
            yield from self._merge_page([row for _, row in changes])
            ended = len(changes) < PAGE_ROWS
            after = after if ended else changes[-1][0]

    def _merge_page(self, rows: Sequence[JournalRow]) -> Program[None]:
        by_leaf: dict[int, list[JournalRow]] = {}
        for row in rows:
            if self.is_whole and row.kind is ChangeKind.RESET:
                self.was_emptied = True
                self.done.replayed = self.done.voided = self.done.rejected = 0
                self.rows = {key: {} for key in self.rows}
                for left_out in (each for leaf_rows in by_leaf.values() for each in leaf_rows):
                    if left_out.kind is ChangeKind.VOIDED:
                        self.replay.pass_voiding({}, left_out)
                by_leaf.clear()
            elif row.owner is not None:
                by_leaf.setdefault(self.board.leaf_of(self.replay.last_owner_of(row.owner)).key, []).append(row)
        for leaf in self.board.leaves:
            if leaf.key in by_leaf:
                yield from in_partition(leaf.partition, self._merge_rows(leaf, by_leaf[leaf.key]))

    def _merge_rows(self, leaf: Leaf, rows: Sequence[JournalRow]) -> Program[None]:
        """Merge the logged changes of one leaf. Skip posts whose ids are stored already, and store the other ids."""
        hashes = {post_hash for row in rows if (post_hash := self._hash_of(row)) is not None}
        known: set[str] = set()
        if hashes:
            asked = [(leaf.key, post_hash) for post_hash in hashes]
            known |= {key[1] for key in (yield from find_known(asked, {leaf.key: leaf.epoch})).posts}
        entries = self.rows[leaf.key]
        fresh: list[RememberedPost] = []
        times_us: list[int] = []
        for row in rows:
            post_hash = self._hash_of(row)
            merged = self._merge_row(entries, row, is_known=post_hash in known)
            if merged is not None and post_hash is not None:
                outcome, fingerprint = merged
                known.add(post_hash)
                outcome.leaf_key = leaf.key
                fresh.append(RememberedPost(leaf.key, post_hash, fingerprint, [outcome]))
                times_us.append(row.logged_us)
        if fresh:
            yield from remember_posts(fresh, {leaf.key: leaf.epoch}, times_us)

    def _merge_row(self, entries: EntriesByOwner, row: JournalRow, *, is_known: bool) -> tuple[PartOutcome, str] | None:
        if row.owner is None or row.record is None:
            return None
        if row.kind is ChangeKind.ERASED:
            entries.pop(self.replay.owner_of(row.owner), None)
        elif row.kind is ChangeKind.VOIDED:
            self.replay.pass_voiding(entries, row)
        elif row.kind in MERGES:
            self.replay.pass_merge(entries, row)
        if row.record.kind not in POSTS:
            return None
        if is_known:
            self.done.duplicates += 1
            return None
        changes, owner = self.replay.read_changes(row, row.record), self.replay.owner_of(row.owner)
        outcome = PartOutcome(PostStatus.VOIDED)
        try:
            if not self.replay.is_voided(row):
                outcome = self.replay.merge_post(entries, row, owner, row.record.at_us, changes)
        except ValueOutOfRangeError:
            self.done.rejected += 1
            return None
        self.done.voided += outcome.status is PostStatus.VOIDED
        self.done.replayed += outcome.status is not PostStatus.VOIDED
        return outcome, "" if self.is_whole else hash_post(row.owner, self.board.spec, changes, row.record.at_us)

    def _hash_of(self, row: JournalRow) -> str | None:
        if self.is_whole or row.record is None or row.record.post_id is None or row.owner is None:
            return None
        return self.post_ids.hash_post_id(row.record.post_id, row.owner)


def _store_rows(entries: Entries, rows: Mapping[str, Entry], changes: int, done: RebuildCounts) -> Program[None]:
    counted = {ALL_ENTRIES: 0, CHANGES: changes + 1, **dict.fromkeys(entries.leaf.sorted_indexes, 0)}
    # If rows come in the order of the table's key, the database fills its pages one after the other and splits none.
    names = sorted(rows)
    for start in range(0, len(names), PAGE_ROWS):
        page = names[start : start + PAGE_ROWS]
        hidden = yield from hidden_owners.find_hidden_owners(page, held=True)
        seen = [rows[name] for name in page if name not in hidden]
        if seen:
            yield from entries.table.insert_rows([(entries.leaf.rows_key, entry) for entry in seen])
        if hidden:
            yield from hidden_owners.insert_rows(HiddenEntry(entries.leaf.key, rows[name]) for name in hidden)
        done.hidden_entries += len(hidden)
        counted[ALL_ENTRIES] += len(seen)
        for index in entries.leaf.sorted_indexes:
            counted[index] += sum(entry.cells[index] is not None for entry in seen)
    done.entries += counted[ALL_ENTRIES]
    counted[CHANGES] += counted[ALL_ENTRIES]
    yield from add_totals({entries.leaf.key: counted})

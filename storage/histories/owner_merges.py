"""Merges one owner's entries into another's, so that a person's two accounts become one.

    begin          refuse the owner's posts in every partition, remember the owner as an earlier id, move profile and
                   grants
    merge_board    per board, one transaction: compute the entry of both, write it, remove the owner's, log both

If the merge is interrupted, repeating the request finishes it. A board has the owner's entry until its own transaction
and never again afterwards, because no posts from the owner are applied after `begin`. Each post therefore counts once.

The new entry results from the posts of both owners in journal order, or else from the stored values of both, combined
by the columns' merge rules. If the other owner has no entry, it gets the owner's unchanged, and the journal is not
needed. The journal keeps the earlier changes under the old name, see `histories.merged_owners`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from querybuilder import Lock
from storage.boards import acts, profiles
from storage.boards.boards import find_board
from storage.boards.postponed_changes import is_postponed
from storage.errors import ArchivedError, MergeConflictError, StorageError, StoreBusyError
from storage.leaves import hidden_owners
from storage.leaves.catalog_rows import find_keys_ever, find_rows_by_key
from storage.leaves.entrants import hold_entrants
from storage.leaves.entries import log_ranking_changes
from storage.leaves.held_entries import HeldEntry, hold_entry
from storage.log.bundles import ChangeKind, naming_owner, record_of_event
from storage.log.cells import Cell
from storage.log.change_log import change_log
from storage.records import Board, BoardSpec, StatValue
from storage.rewards import grants
from storage.schema.creation import count_partitions, hold_partitions
from storage.store import Program, in_partition

from . import merged_owners
from .entry_histories import find_rebuilt, join_histories, read_histories
from .merged_owners import MergedEntry
from .replay import Replay


class MergedPart(NamedTuple):
    board_id: str
    spec: BoardSpec | None = None
    stats: Sequence[StatValue | None] | None = None  # in column order: the entry that the merge made; None: none
    error: StorageError | None = None  # why the entry still has the earlier id


def list_merged_parts(owner: str) -> Program[list[MergedPart]]:
    """List what became of a merged owner's entries, leaving out boards that were deleted."""
    merged = {each.leaf_key: each for each in (yield from merged_owners.list_entries(owner))}
    rows = yield from find_rows_by_key([*merged])
    return [MergedPart(row.leaf.id, row.leaf.spec, _STATS.decode(merged[key].stats)) for key, row in rows.items()]


_STATS = msgspec.json.Decoder(list[StatValue | None])


@dataclass(frozen=True, kw_only=True)
class OwnerMerge:
    """Merges `owner` into `into`, from all posts of both if `by_posts` is set, otherwise from the stored values."""

    owner: str
    into: str
    by_posts: bool
    now_us: int

    def begin(self) -> Program[str | None]:
        """Make the owner an earlier id, unless that was done before, and return the state of `into` if it is hidden.

        Raises:
            MergeConflictError: one of the owners was merged into another one, or `into` has too many earlier ids.
            StoreBusyError: an earlier change of one of the owners is not finished in every partition.
        """
        yield from hold_partitions(lock=Lock.UPDATE)  # keeps others from hiding, showing, erasing or merging an owner
        if (elsewhere := (yield from merged_owners.find_into(self.into))) is not None:
            raise MergeConflictError(f"{self.into!r} was itself merged into {elsewhere!r}", pointer="/into")
        stored = yield from merged_owners.find_into(self.owner)
        if stored not in (None, self.into):
            raise MergeConflictError(f"{self.owner!r} was merged into {stored!r}", pointer="/into")
        if stored is None:
            for owner in (self.owner, self.into):
                if (yield from is_postponed(owner)):
                    raise StoreBusyError(f"an earlier change of {owner!r} is not finished in every partition")
            yield from merged_owners.store_merged(self.owner, self.into, now_us=self.now_us)
            yield from self._move_profile()
            yield from grants.move_grants(self.owner, self.into)
            yield from acts.move_hidden(self.owner, self.into)
            yield from hidden_owners.store_merged(self.owner, self.into, now_us=self.now_us)
        return (yield from in_partition(0, hidden_owners.find_hidden_owners([self.into]))).get(self.into)

    def _move_profile(self) -> Program[None]:
        found = yield from profiles.find_profiles([self.owner, self.into])
        if self.owner in found:
            yield from profiles.remove_profile(self.owner)
        if self.owner in found and self.into not in found:
            yield from profiles.store_profile(self.into, found[self.owner], now_us=self.now_us)

    def merge_board(self, board_id: str) -> Program[None]:
        """Merge the owner's entry on one board, if there is one.

        Raises:
            MergeConflictError: another request has merged or erased `into` in the meantime.
            UnknownBoardError, ArchivedError: the board no longer has rows.
            JournalIncompleteError: the journal lacks posts of one of the entries.
            ValueOutOfRangeError: a value of the new entry would leave the range of its column.
            LostRaceError, BoardChangedError: a row has changed; call this again.
        """
        if (yield from merged_owners.find_into(self.owner, held=True)) != self.into:
            raise MergeConflictError(f"another request has just changed {self.owner!r} or {self.into!r}; try again")
        board = yield from find_board(board_id, lock=Lock.SHARE)
        if board.gate.archived_us is not None:
            raise ArchivedError(f"the leaderboard {board_id!r} was archived, and keeps the earlier id")
        asked = [(board.leaf_of(owner), (self.owner, self.into)) for owner in (self.owner, self.into)]
        taking_part = yield from hold_entrants(asked)
        theirs, own = yield from self._hold_entries(board)
        for held in taking_part.values():
            having = [each.owner for each in (theirs, own) if each.entry is not None]
            yield from held.merge(self.owner, self.into, having)
        if theirs.entry is None:
            return
        kind, cells = yield from self._compute_cells(board, theirs, own)
        logged_us = yield from self._find_time({each.entries.leaf.partition for each in (theirs, own)})
        before_us = max(each.entry.updated_at_us for each in (theirs, own) if each.entry is not None)
        version = max(logged_us, before_us + 1)
        record = naming_owner(record_of_event(kind, cells, version), self.owner)
        written = yield from in_partition(own.entries.leaf.partition, own.replace(cells, version, record))
        left = naming_owner((ChangeKind.LEFT,), self.into)
        removed = yield from in_partition(theirs.entries.leaf.partition, theirs.remove(left))
        changes = [(theirs.entries.leaf, removed), (own.entries.leaf, written)]
        stats = msgspec.json.encode(own.entries.merger.decode_stats(cells)).decode()
        leaf_key = own.entries.leaf.key
        yield from merged_owners.store_entry(MergedEntry(self.owner, leaf_key, self.into, kind, stats))
        for partition in sorted({leaf.partition for leaf, _ in changes}):
            logged = [change for leaf, change in changes if leaf.partition == partition]
            yield from in_partition(partition, log_ranking_changes(logged, now_us=logged_us))

    def _hold_entries(self, board: Board) -> Program[tuple[HeldEntry, HeldEntry]]:
        held: dict[str, HeldEntry] = {}
        leaves = [(board.leaf_of(owner), owner) for owner in (self.owner, self.into)]
        for leaf, owner in sorted(leaves, key=lambda each: (each[0].partition, each[0].key, each[1])):
            held[owner] = yield from in_partition(leaf.partition, hold_entry(leaf, owner))
        return held[self.owner], held[self.into]

    def _compute_cells(self, board: Board, theirs: HeldEntry, own: HeldEntry) -> Program[tuple[ChangeKind, list[Cell]]]:
        assert theirs.entry is not None
        if own.entry is None:
            return ChangeKind.RENAMED, theirs.entry.cells
        if not self.by_posts:
            return ChangeKind.COMBINED, own.entries.merger.combine_entries(own.entry, theirs.entry)
        keys = yield from find_keys_ever(board)
        names = [self.owner, self.into, *(yield from merged_owners.list_earlier_ids_on([self.into], keys))]
        partitions = range((yield from count_partitions()))
        histories = yield from read_histories(names, dict.fromkeys(keys, board.key), partitions)
        rebuilt_us = yield from find_rebuilt(keys)
        rows = join_histories(histories, board.key, [self.into, self.owner], rebuilt_us)
        replay = Replay(board.id, board.spec, dict.fromkeys(keys, board.spec), keys)
        replay.note_merged(self.owner, self.into, ChangeKind.JOINED)
        entry = replay.merge_history(rows, self.into, exact=True)
        return ChangeKind.JOINED, own.entry.cells if entry is None else entry.cells

    def _find_time(self, partitions: set[int]) -> Program[int]:
        """Find a time that is later than every change in the logs of these partitions."""
        found_us = self.now_us
        for partition in sorted(partitions):
            log = yield from in_partition(partition, change_log.read_counter())
            found_us = max(found_us, log.changed_us + 1)
        return found_us

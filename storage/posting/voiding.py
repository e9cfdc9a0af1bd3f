"""Voids (takes back) one post by recomputing the owner's entries from the journal without it.

    lock the boards and entries ──> read the entries' posts from the journal ──> merge them without the voided ones
    ──> write the entries, store the post id as voided, log the voiding

All of this is one transaction, during which no other transaction changes these entries. The journal has to reach back
to the post that created the entry. That post can itself be voided. If no other post remains, the entry is removed.

An entry is replaced only if all its posts are known; otherwise the missing ones would be lost along with the voided
one. So each board of a family has an outcome of its own. If a board cannot void its part, that part of the post stays
applied, and a later call tries this board again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from storage.errors import (
    ArchivedError,
    BoardChangedError,
    JournalIncompleteError,
    StorageError,
    UnknownOwnerError,
    UnknownPostError,
)
from storage.histories import merged_owners
from storage.histories.entry_histories import find_rebuilt, join_histories, read_histories
from storage.histories.replay import Replay
from storage.leaves.catalog_rows import find_keys_ever, find_rows_by_key
from storage.leaves.entrants import hold_entrants
from storage.leaves.entries import RankingChange, log_ranking_changes
from storage.leaves.held_entries import HeldEntry, hold_entry
from storage.log.bundles import POSTS, ChangeKind, RecordFields, naming_owner, record_of_post
from storage.log.cells import Cell
from storage.log.partition_journal import JournalRow
from storage.records import Board, Entry, Family, Leaf, PartOutcome, PostStatus, StatValue
from storage.schema.creation import count_partitions
from storage.store import Program, in_partition

from .post_ids import RememberedPost, find_known, replace_outcome


class VoidedPart(NamedTuple):
    leaf: Leaf
    stats: Sequence[StatValue | None] | None = None  # in column order; None: the owner no longer has an entry
    error: StorageError | None = None  # why this board keeps its part of the post


@dataclass(frozen=True, kw_only=True)
class Voiding:
    """Voids one post. `place` is the board or the family to which it was posted.

    `owner` is the current owner of the entries. It differs from `posted_by`, the post's own owner, if that owner was
    merged into it.
    """

    place: Board | Family
    owner: str
    posted_by: str
    post_id: str
    post_hash: str
    now_us: int

    def void_post(self) -> Program[list[VoidedPart]]:
        """Void the post on each of its boards. If it was voided before, return the same result again.

        Raises:
            UnknownPostError: no such post is remembered, or it belongs to an earlier entry, which was removed.
            ArchivedError, JournalIncompleteError, UnknownOwnerError: no board could recompute its entry.
            UnknownBoardError, BoardChangedError: a board was deleted, moved or split at the same time.
        """
        if isinstance(self.place, Family):
            return (yield from in_partition(self.place.partition, self._void_post(self.place.key, {})))
        leaf, posted = self.place.leaf_of(self.owner), self.place.leaf_of(self.posted_by)
        _check_has_rows(leaf)
        return (yield from in_partition(leaf.partition, self._void_post(posted.key, {posted.key: posted.epoch})))

    def _void_post(self, key: int, epochs: Mapping[int, int]) -> Program[list[VoidedPart]]:
        post, epochs = yield from self._find_post(key, epochs)
        if any(part.status is PostStatus.HELD for part in post.parts):
            raise UnknownPostError("the post is held, so it was not applied; refuse it instead")
        leaves = yield from self._hold_leaves(post)
        taking_part = yield from hold_entrants((leaf, [self.owner]) for leaf in leaves.values())
        held: dict[int, HeldEntry] = {}
        errors: dict[int, StorageError] = {}
        for part, leaf in sorted(leaves.items(), key=lambda each: (each[1].table_key or each[1].key, each[1].key)):
            try:
                held[part] = yield from self._hold_entry(leaf)
            except (ArchivedError, UnknownOwnerError) as error:
                errors[part] = error
        post, epochs = yield from self._find_post(key, epochs)  # again: another transaction may just have voided it
        applied = {part.leaf_key for part in post.parts if part.status is not PostStatus.VOIDED}
        to_void = {leaf_key: each for leaf_key, each in held.items() if leaf_key in applied}
        changes, parts = yield from self._compute_entries(to_void, errors)
        post.parts = [parts.get(part.leaf_key or 0, part) for part in post.parts]
        if not post.is_voided:
            raise next(iter(errors.values()), BoardChangedError())
        if parts:
            for part, outcome in parts.items():
                if (entrants := taking_part.get(leaves[part].entrants_place)) is not None:
                    yield from entrants.return_post(self.owner, has_entry=outcome.stats is not None)
            yield from in_partition(self._id_partition, replace_outcome(post, epochs, self.now_us))
            yield from log_ranking_changes(changes, now_us=self.now_us)
        return [
            VoidedPart(leaves[leaf_key], part.stats, None if part.status is PostStatus.VOIDED else errors.get(leaf_key))
            for part in post.parts
            if (leaf_key := part.leaf_key or 0) in leaves
        ]

    @property
    def _id_partition(self) -> int:
        """The partition that remembers the post's id. A merge may since have moved the entry to another segment."""
        return (self.place if isinstance(self.place, Family) else self.place.leaf_of(self.posted_by)).partition

    def _find_post(self, key: int, epochs: Mapping[int, int]) -> Program[tuple[RememberedPost, Mapping[int, int]]]:
        known = yield from in_partition(self._id_partition, find_known([(key, self.post_hash)], epochs))
        if not known.posts:
            raise UnknownPostError
        return known.posts[key, self.post_hash], known.epochs

    def _hold_leaves(self, post: RememberedPost) -> Program[dict[int, Leaf]]:
        """Find the leaves that hold the owner's entries, by the leaf key of each part of the post.

        Lock the boards' catalog rows, so that the boards cannot be moved, split or archived before the transaction
        ends.
        """
        of_part = {part.leaf_key or 0: part.leaf_key or 0 for part in post.parts}
        if isinstance(self.place, Board):
            of_part = dict.fromkeys(of_part, self.place.leaf_of(self.owner).key)
        rows = yield from find_rows_by_key([*of_part.values()], held=True)
        if not all(row.is_leaf for row in rows.values()):
            raise BoardChangedError
        whole = self.place.leaves[0].whole if isinstance(self.place, Board) else None
        return {part: replace(rows[key].leaf, whole=whole) for part, key in of_part.items() if key in rows}

    def _hold_entry(self, leaf: Leaf) -> Program[HeldEntry]:
        _check_has_rows(leaf)
        held = yield from hold_entry(leaf, self.owner)
        if held.entry is None:
            raise UnknownOwnerError(f"{self.owner!r} has no entry in {leaf.id!r}")
        return held

    def _compute_entries(
        self, held: Mapping[int, HeldEntry], errors: dict[int, StorageError]
    ) -> Program[tuple[list[RankingChange], dict[int, PartOutcome]]]:
        """Recompute entries without the post and write them. Return the changes to log, and the outcomes by leaf key.

        Add an error to `errors` for each entry that cannot be computed.
        """
        changes: list[RankingChange] = []
        parts: dict[int, PartOutcome] = {}
        if not held:
            return changes, parts
        leaf_of = {key: key for key in held}  # by each key that the journal may have for an entry: the key of its leaf
        if isinstance(self.place, Board):
            [leaf_key] = held
            leaf_of |= dict.fromkeys((yield from find_keys_ever(self.place)), leaf_key)
        in_one = isinstance(self.place, Family)  # boards of a family never move to another partition
        partitions = [self.place.partition] if in_one else range((yield from count_partitions()))
        names = [self.owner, *(yield from merged_owners.list_earlier_ids_on([self.owner], leaf_of))]
        histories = yield from read_histories(names, leaf_of, partitions)
        for key, each in held.items():
            try:
                rebuilt_us = yield from find_rebuilt(every for every, leaf_key in leaf_of.items() if leaf_key == key)
                rows = join_histories(histories, key, [self.owner], rebuilt_us)
                posted = self._find_row(rows)
            except (UnknownPostError, JournalIncompleteError) as error:
                errors[key] = error
                continue
            spec = each.entries.leaf.spec
            replay = Replay(each.entries.leaf.id, spec, dict.fromkeys(leaf_of, spec), leaf_of)
            replay.note_voided([posted])
            after = replay.merge_history(rows, self.owner)
            change = yield from self._write_entry(each, after)
            changes.append(change)
            stats = None if after is None else each.entries.merger.decode_stats(after.cells)
            parts[key] = PartOutcome(PostStatus.VOIDED, change.entry.updated_at_us, stats, leaf_key=key)
        return changes, parts

    def _find_row(self, rows: Sequence[JournalRow]) -> JournalRow:
        for row in rows:
            if row.record is None or row.record.kind not in POSTS or row.owner != self.posted_by:
                continue
            if row.record.post_id == self.post_id:
                return row
        raise UnknownPostError("the post belongs to an entry that was removed since")

    def _write_entry(self, held: HeldEntry, after: Entry | None) -> Program[RankingChange]:
        """Write the entry as it is without the post. Return the change to log, with the entry that is now stored."""
        before = held.entry
        if after is None or before is None:
            return (yield from held.remove(self._make_record()))
        version = max(before.updated_at_us, after.updated_at_us)  # a later post may now have brought the same values
        if after.cells != before.cells:
            version = max(self.now_us, before.updated_at_us + 1)
        return (yield from held.replace(after.cells, version, self._make_record(after.cells, version)))

    def _make_record(self, cells: Sequence[Cell] = (), version: int | None = None) -> RecordFields:
        record = record_of_post(ChangeKind.VOIDED, (), self.post_id, None, cells, version)
        return record if self.posted_by == self.owner else naming_owner(record, self.posted_by)


def _check_has_rows(leaf: Leaf) -> None:
    if leaf.archived_us is not None:
        raise ArchivedError(f"the leaderboard {leaf.id!r} was archived, so no post can be taken back")

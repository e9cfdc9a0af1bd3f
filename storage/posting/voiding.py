"""Takes back (voids) one post: computes the owner's entries again from the journal, without this post.

    lock the boards and entries ──> read the entries' posts from the journal ──> merge them without the voided ones
    ──> write the entries, store the post id as voided, log the voiding

All of this is one transaction, in which no other transaction changes these entries. The journal has to reach back to
the post that made an entry. This post may itself be voided. If no other post remains, the entry is removed.

The most important rule: an entry is replaced only if all its posts are known. So each board of a family has an outcome
of its own. If a board refuses, its part of the post stays applied, and a later call tries this board again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from querybuilder import col, param, select
from storage.boards import journal
from storage.errors import (
    ArchivedError,
    BoardChangedError,
    JournalIncompleteError,
    StorageError,
    UnknownOwnerError,
    UnknownPostError,
)
from storage.leaves import hidden_owners
from storage.leaves.catalog_rows import find_keys_ever, find_rows_by_key
from storage.leaves.entries import Entries, RankingChange, log_ranking_changes
from storage.leaves.hidden_owners import HiddenEntry
from storage.leaves.totals import CHANGES
from storage.log.bundles import FIRST_POSTS, POSTS, ChangeKind, record_of_post
from storage.log.change_log import NewChange
from storage.log.partition_journal import JournalRow
from storage.records import Board, Entry, Family, Leaf, PartOutcome, PostStatus, StatValue
from storage.schema.creation import count_partitions
from storage.schema.tables import BOARDS
from storage.store import Program, in_partition

from .post_ids import RememberedPost, find_known, store_voided
from .rebuild import CLOCK_SKEW_US_MAX
from .replay import Replay

CHANGES_MAX = 100_000  # the most changes of an owner that one call reads, because it holds them in memory
_PAGE_CHANGES = 1_000
_BLOCKS_MAX = 1_000_000  # more blocks than a journal has: if need be, one call reads it to its beginning


class VoidedPart(NamedTuple):
    """One board of a post that was taken back: the owner's values without the post, or an error."""

    leaf: Leaf
    stats: Sequence[StatValue | None] | None = None  # in column order; None: the owner has no entry any more
    error: StorageError | None = None  # why this board keeps its part of the post


class _HeldEntry(NamedTuple):
    """An entry as it is before the voiding. Its row is locked."""

    entries: Entries
    entry: Entry
    is_hidden: bool


@dataclass(frozen=True, kw_only=True)
class Voiding:
    """Takes back one post. `place` is the board or the family to which it was posted."""

    place: Board | Family
    owner: str
    post_id: str
    post_hash: str
    now_us: int

    def void_post(self) -> Program[list[VoidedPart]]:
        """Take the post back on each of its boards. If it was voided before, return the same result again.

        Raises:
            UnknownPostError: no such post is remembered, or it belongs to an earlier entry, which was removed.
            ArchivedError, JournalIncompleteError, UnknownOwnerError: no board could compute its entry again.
            UnknownBoardError, BoardChangedError: a board was deleted, moved or split meanwhile.
        """
        if isinstance(self.place, Family):
            return (yield from in_partition(self.place.partition, self._void_post(self.place.key, {})))
        leaf = self.place.leaf_of(self.owner)
        _check_has_rows(leaf)
        return (yield from in_partition(leaf.partition, self._void_post(leaf.key, {leaf.key: leaf.epoch})))

    def _void_post(self, key: int, epochs: Mapping[int, int]) -> Program[list[VoidedPart]]:
        """Run `void_post`. `key` and `epochs` identify the post as `find_known` expects them."""
        post, epochs = yield from self._find_post(key, epochs)
        leaves = yield from self._hold_leaves(post)
        held: dict[int, _HeldEntry] = {}
        errors: dict[int, StorageError] = {}
        for leaf in sorted(leaves.values(), key=lambda leaf: (leaf.table_key or leaf.key, leaf.key)):
            try:
                held[leaf.key] = yield from self._hold_entry(leaf)
            except (ArchivedError, UnknownOwnerError) as error:
                errors[leaf.key] = error
        post, epochs = yield from self._find_post(key, epochs)  # again: another transaction may just have voided it
        applied = {part.leaf_key for part in post.parts if part.status is not PostStatus.VOIDED}
        to_void = {leaf_key: each for leaf_key, each in held.items() if leaf_key in applied}
        changes, parts = yield from self._compute_entries(to_void, errors)
        post.parts = [parts.get(part.leaf_key or 0, part) for part in post.parts]
        if not post.is_voided:
            raise next(iter(errors.values()), BoardChangedError())
        if parts:
            yield from store_voided(post, epochs, self.now_us)
            yield from log_ranking_changes(changes, now_us=self.now_us)
        return [
            VoidedPart(leaves[leaf_key], part.stats, None if part.status is PostStatus.VOIDED else errors.get(leaf_key))
            for part in post.parts
            if (leaf_key := part.leaf_key or 0) in leaves
        ]

    def _find_post(self, key: int, epochs: Mapping[int, int]) -> Program[tuple[RememberedPost, Mapping[int, int]]]:
        """Return the stored post, and the current epochs of its boards."""
        known = yield from find_known([(key, self.post_hash)], epochs)
        if not known.posts:
            raise UnknownPostError
        return known.posts[key, self.post_hash], known.epochs

    def _hold_leaves(self, post: RememberedPost) -> Program[dict[int, Leaf]]:
        """Lock the catalog's rows of the post's boards, so that nobody moves, splits or archives them meanwhile."""
        rows = yield from find_rows_by_key([part.leaf_key or 0 for part in post.parts], held=True)
        if not all(row.is_leaf for row in rows.values()):
            raise BoardChangedError
        return {key: row.leaf for key, row in rows.items()}

    def _hold_entry(self, leaf: Leaf) -> Program[_HeldEntry]:
        """Lock the owner's entry. A post locks it first, too, so all changes that are logged before are seen later."""
        _check_has_rows(leaf)
        entries = Entries(leaf)
        for _, entry in (yield from entries.table.lock_rows([(leaf.rows_key, self.owner)])):
            return _HeldEntry(entries, entry, False)
        for hidden in (yield from hidden_owners.find_hidden_entries([leaf.key], [self.owner])):
            return _HeldEntry(entries, hidden.widen_cells(len(leaf.spec.columns)), True)
        raise UnknownOwnerError(f"{self.owner!r} has no entry in {leaf.id!r}")

    def _compute_entries(
        self, held: Mapping[int, _HeldEntry], errors: dict[int, StorageError]
    ) -> Program[tuple[list[RankingChange], dict[int, PartOutcome]]]:
        """Compute entries without the post and write them. Return what to log, and the outcomes by leaf key.

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
        histories = yield from self._read_histories(leaf_of)
        rebuilt = yield _REBUILT.bind(keys=list(leaf_of))
        for key, each in held.items():
            rebuilt_us = max((at_us or 0 for every, at_us in rebuilt if leaf_of[every] == key), default=0)
            try:
                posted = self._find_row(histories[key], rebuilt_us)
            except (UnknownPostError, JournalIncompleteError) as error:
                errors[key] = error
                continue
            spec = each.entries.leaf.spec
            replay = Replay(each.entries.leaf.id, spec, dict.fromkeys(leaf_of, spec), leaf_of)
            replay.note_voided([posted])
            after = replay.merge_history(histories[key])
            change = yield from self._write_entry(each, after)
            changes.append(change)
            stats = None if after is None else each.entries.merger.decode_stats(after.cells)
            parts[key] = PartOutcome(PostStatus.VOIDED, change.entry.updated_at_us, stats, leaf_key=key)
        return changes, parts

    def _read_histories(self, leaf_of: Mapping[int, int]) -> Program[dict[int, list[JournalRow]]]:
        """Return each entry's changes, oldest first, from the post that made the entry or the journal's first one on.

        `leaf_of`: as in `_compute_entries`. The result has the same leaf keys.
        """
        found: dict[int, list[JournalRow]] = {key: [] for key in leaf_of.values()}
        unfinished, before, changes = set(found), None, 0
        in_one = isinstance(self.place, Family)  # boards of a family never move to another partition
        partitions = [self.place.partition] if in_one else range((yield from count_partitions()))
        while unfinished and changes <= CHANGES_MAX:
            page, before = yield from journal.read_posts_of_owner(
                self.owner, before=before, limit=_PAGE_CHANGES, blocks_max=_BLOCKS_MAX, partitions=partitions
            )
            changes += len(page)
            for _, row in page:
                if (key := leaf_of.get(row.leaf_key)) in unfinished:
                    found[key].append(row)
                    if row.kind in FIRST_POSTS:
                        unfinished.discard(key)
            if before is None:
                break
        return {key: rows[::-1] for key, rows in found.items()}

    def _find_row(self, rows: Sequence[JournalRow], rebuilt_us: int) -> JournalRow:
        """Return the row of the post. Check that `rows` are all changes of an entry. `rebuilt_us`: see `rebuilt_at`."""
        if not rows or rows[0].kind not in FIRST_POSTS:
            raise JournalIncompleteError("the journal no longer has the post that made the entry")
        if rows[0].logged_us <= rebuilt_us + CLOCK_SKEW_US_MAX and rebuilt_us:
            raise JournalIncompleteError("the entry was rebuilt from posts to earlier leaderboards of that name")
        for row in rows:
            if row.record is not None and row.record.kind in POSTS and row.record.post_id == self.post_id:
                return row
        raise UnknownPostError("the post belongs to an entry that was removed since")

    def _write_entry(self, held: _HeldEntry, after: Entry | None) -> Program[RankingChange]:
        """Write the entry as it is without the post. Return the change to log, with the entry that is now stored."""
        entries, before, key = held.entries, held.entry, held.entries.leaf.key
        if after is None:
            if held.is_hidden:
                change = yield from hidden_owners.erase_hidden_entry(entries, self.owner)
            else:
                change = yield from entries.remove_entry(self.owner, ChangeKind.VOIDED)
            if change is None:
                raise BoardChangedError
            record = record_of_post(ChangeKind.VOIDED, (), self.post_id, None, (), None)
            return change._replace(change=change.change._replace(record=record))
        pairs = zip(before.cells, after.cells, strict=True)
        changed = tuple(index for index, (old, new) in enumerate(pairs) if old != new)
        version = max(self.now_us, before.updated_at_us + 1) if changed else before.updated_at_us
        entry = Entry(self.owner, version, after.cells)
        if changed:
            write = (
                hidden_owners.update_rows([(HiddenEntry(key, entry), before.updated_at_us)])
                if held.is_hidden
                else entries.table.update_rows(changed, [(entries.leaf.rows_key, entry, before.updated_at_us)])
            )
            if (yield from write) != 1:
                raise BoardChangedError
        ranked = entries.ranked_cells
        previous, following = (
            ranked.none if held.is_hidden else ranked.join_cells(cells) for cells in (before.cells, entry.cells)
        )
        record = record_of_post(ChangeKind.VOIDED, (), self.post_id, None, entry.cells, version)
        totals: dict[int, int] = {}
        if not held.is_hidden:
            totals[CHANGES] = 1
            for index in entries.leaf.sorted_indexes:
                totals[index] = (entry.cells[index] is not None) - (before.cells[index] is not None)
        return RankingChange(entry, NewChange(key, self.owner, previous, following, record), totals)


def _check_has_rows(leaf: Leaf) -> None:
    if leaf.archived_us is not None:
        raise ArchivedError(f"the leaderboard {leaf.id!r} was archived, so no post can be taken back")


_rebuilt = select(col("board_key"), col("rebuilt_at")).from_(BOARDS).where(col("board_key").in_(param("keys")))
_REBUILT = _rebuilt.packed().prepared()

"""Merges a board's logged posts again, in memory: `rebuild` does so for all owners, and `voiding` for one owner.

A post that was voided is left out. Because the journal says so only in a later row, `Replay` has to know these rows
before it meets the posts. The same goes for merges (see `owner_merges`): unless two owners' stored values were
combined, the posts under the earlier id count for the other owner, from the first post on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from storage.errors import SpecConflictError, ValueOutOfRangeError
from storage.log.bundles import MERGES, POSTS, ChangeKind, ChangeRecord
from storage.log.cells import Cell
from storage.log.merging import Merger
from storage.log.partition_journal import JournalRow
from storage.records import BoardSpec, ColumnChange, Entry, Merge, PartOutcome, PostStatus

EntriesByOwner = dict[str, Entry]


class Replay:
    def __init__(self, board_id: str, spec: BoardSpec, specs: Mapping[int, BoardSpec], own_keys: Iterable[int]) -> None:
        """Prepare to merge posts into entries with the columns of `spec`.

        `specs` maps the key of each leaf whose posts are merged to its spec. `own_keys` holds the keys that the board
        itself has or had; any other key belongs to a deleted board with the same id.
        """
        self.specs, self._board_id, self._spec, self._own_keys = specs, board_id, spec, frozenset(own_keys)
        self._merger = Merger(spec)
        self._columns = {key: _map_columns(each, spec) for key, each in specs.items()}
        self._voided: Counter[tuple[bool, str | None, str | None]] = Counter()
        self._joined: dict[str, str] = {}  # by an earlier id: the owner for whom its posts count
        self._merged: dict[str, str] = {}  # by an earlier id: the owner who got its entry, in whatever way

    def note_voided(self, rows: Iterable[JournalRow]) -> None:
        """Register later rows that void posts. Each row must also be passed to `pass_voiding` when its turn comes."""
        self._voided.update(self._name_post(row) for row in rows)

    def is_voided(self, row: JournalRow) -> bool:
        return self._voided[self._name_post(row)] > 0

    def pass_voiding(self, entries: EntriesByOwner, row: JournalRow) -> None:
        """Replay a row that voids a post. From here on, the post id may belong to another post."""
        self._voided[self._name_post(row)] -= 1
        _renew(entries.get(self.owner_of(row.owner or "")), row)

    def _name_post(self, row: JournalRow) -> tuple[bool, str | None, str | None]:
        owner = row.owner if row.record is None else row.record.owner or row.owner
        return row.leaf_key in self._own_keys, owner, None if row.record is None else row.record.post_id

    def note_merged(self, owner: str, into: str, kind: ChangeKind) -> None:
        """Register a later row that merges an owner's entry. Pass it to `pass_merge`, too, when its turn comes."""
        self._merged[owner] = into
        if kind is not ChangeKind.COMBINED:
            self._joined[owner] = into

    def owner_of(self, name: str) -> str:
        """Find the owner for whom posts under this name count."""
        while name in self._joined:
            name = self._joined[name]
        return name

    def last_owner_of(self, name: str) -> str:
        """Find the owner who ends up with the entry of the owner with this name."""
        while name in self._merged:
            name = self._merged[name]
        return name

    def pass_merge(self, entries: EntriesByOwner, row: JournalRow) -> None:
        if row.owner is None or row.record is None or row.record.owner is None:
            return
        owner = self.owner_of(row.owner)
        theirs = entries.pop(row.record.owner, None) if row.kind is ChangeKind.COMBINED else None
        if theirs is not None and owner in entries:
            entries[owner].cells = self._merger.combine_entries(entries[owner], theirs)
        elif theirs is not None:
            entries[owner] = Entry(owner, theirs.updated_at_us, theirs.cells)
        _renew(entries.get(owner), row)

    def read_changes(self, row: JournalRow, posted: ChangeRecord) -> list[ColumnChange]:
        """Decode what a post changes, using the columns' present indexes.

        Raises:
            SpecConflictError: the board now lacks a column of the post, or has it with another kind or scale.
        """
        columns, changes = self._columns[row.leaf_key], []
        for change in posted.changes:
            index = columns[change.index]
            if index is None:
                name = self.specs[row.leaf_key].columns[change.index].name
                detail = (
                    f"an earlier {self._board_id!r} had a column {name!r}, which this one lacks or declares otherwise"
                )
                raise SpecConflictError(f"{detail}: create the leaderboard with the earlier columns")
            changes.append(ColumnChange(index, change.value, change.overwrite))
        return changes

    def merge_post(
        self, entries: EntriesByOwner, row: JournalRow, owner: str, at_us: int | None, changes: Sequence[ColumnChange]
    ) -> PartOutcome:
        """Merge a post made at `at_us` into the owner's entry, or create the entry. The outcome names no board.

        Raises:
            ValueOutOfRangeError: a result leaves its column's range. The entry stays as it was.
        """
        entry = entries.get(owner)
        at_us = row.logged_us if at_us is None else at_us
        changed = self._merger.merge_changes(None if entry is None else entry.cells, changes, at_us)
        status = PostStatus.APPLIED if changed or entry is None else PostStatus.UNCHANGED
        if entry is None:
            empty: list[Cell] = [None] * len(self._spec.columns)
            entry = entries[owner] = Entry(owner, row.at_us, empty)
        if changed:
            entry.updated_at_us = max(entry.updated_at_us, row.at_us)
        for index, cell in changed.items():
            entry.cells[index] = cell
        return PartOutcome(status, entry.updated_at_us, self._merger.decode_stats(entry.cells))

    def merge_history(self, rows: Sequence[JournalRow], owner: str, *, exact: bool = False) -> Entry | None:
        """Merge all posts of one owner's entry, oldest first, and return it, or None if every post was voided.

        Raises:
            ValueOutOfRangeError: with `exact`, a result leaves its column's range. Otherwise the post is left out.
        """
        self.note_voided(row for row in rows if row.kind is ChangeKind.VOIDED)
        for row in rows:
            if row.owner is not None and row.record is not None and row.record.owner and row.record.kind in MERGES:
                self.note_merged(row.record.owner, row.owner, row.record.kind)
        entries: EntriesByOwner = {}
        for row in rows:
            if row.owner is None or row.record is None:
                continue
            if row.record.kind is ChangeKind.VOIDED:
                self.pass_voiding(entries, row)
            elif row.record.kind in MERGES:
                self.pass_merge(entries, row)
            elif row.record.kind in POSTS and not self.is_voided(row):
                counts_for, changes = self.owner_of(row.owner), self.read_changes(row, row.record)
                try:
                    self.merge_post(entries, row, counts_for, row.record.at_us, changes)
                except ValueOutOfRangeError:
                    if exact:
                        raise
        return entries.get(owner)


def _renew(entry: Entry | None, row: JournalRow) -> None:
    if entry is not None:
        entry.updated_at_us = max(entry.updated_at_us, row.at_us)


def _map_columns(earlier: BoardSpec, now: BoardSpec) -> list[int | None]:
    """Map each column of `earlier` to the index of the column in `now` with the same name, kind and scale, or None.

    A column that is computed now is left out, because no post may name it.
    """
    indexes = {column.name: index for index, column in enumerate(now.columns)}
    found: list[int | None] = []
    for column in earlier.columns:
        index = indexes.get(column.name)
        present = None if index is None else now.columns[index]
        same = present is not None and (present.kind, present.scale) == (column.kind, column.scale)
        is_computed = present is not None and present.merge is Merge.QUOTIENT
        found.append(index if same and not is_computed else None)
    return found

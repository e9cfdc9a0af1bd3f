"""Locks an owner's entry, shown or hidden, and replaces it with a recomputed one, for `voiding` and merges.

The caller has locked the board's catalog row, so the board cannot be moved, emptied or archived at the same time.
"""

from typing import NamedTuple

from storage.errors import BoardChangedError, LostRaceError
from storage.log.bundles import ChangeKind, RecordFields
from storage.log.cells import Cell
from storage.log.change_log import NewChange
from storage.records import Entry, Leaf
from storage.store import Program

from . import hidden_owners
from .entries import Entries, RankingChange
from .hidden_owners import HiddenEntry
from .totals import ALL_ENTRIES, CHANGES


class HeldEntry(NamedTuple):
    """An entry as it was before the change, with its row locked. Run its programs in the leaf's partition."""

    entries: Entries
    owner: str
    entry: Entry | None  # None: there is none yet
    is_hidden: bool

    def replace(self, cells: list[Cell], version: int, record: RecordFields) -> Program[RankingChange]:
        """Write the entry, creating it if there is none. Return the change to log, with the entry that is now stored.

        Raises:
            LostRaceError: another transaction has created or changed the entry first.
        """
        entry = Entry(self.owner, version, cells)
        if (yield from self._write(entry)) != 1:
            raise LostRaceError("the entry changed between its read and its write")
        ranked, key = self.entries.ranked_cells, self.entries.leaf.key
        before = [None] * len(cells) if self.entry is None else self.entry.cells
        previous, following = (ranked.none if self.is_hidden else ranked.join_cells(each) for each in (before, cells))
        totals = {CHANGES: 1}
        if not self.is_hidden:
            totals[ALL_ENTRIES] = int(self.entry is None)
            for index in self.entries.leaf.sorted_indexes:
                totals[index] = (cells[index] is not None) - (before[index] is not None)
        return RankingChange(entry, NewChange(key, self.owner, previous, following, record), totals)

    def _write(self, entry: Entry) -> Program[int]:
        leaf, before = self.entries.leaf, self.entry
        if before is None:
            if self.is_hidden:
                return (yield from hidden_owners.insert_rows([HiddenEntry(leaf.key, entry)]))
            return (yield from self.entries.table.insert_rows([(leaf.rows_key, entry)]))
        if self.is_hidden:
            return (yield from hidden_owners.update_rows([(HiddenEntry(leaf.key, entry), before.updated_at_us)]))
        pairs = zip(before.cells, entry.cells, strict=True)
        changed = tuple(index for index, (old, new) in enumerate(pairs) if old != new)
        return (yield from self.entries.table.update_rows(changed, [(leaf.rows_key, entry, before.updated_at_us)]))

    def remove(self, record: RecordFields) -> Program[RankingChange]:
        removing = (
            hidden_owners.erase_hidden_entry(self.entries, self.owner)
            if self.is_hidden
            else self.entries.remove_entry(self.owner, ChangeKind.VOIDED)
        )
        if (change := (yield from removing)) is None:
            raise BoardChangedError
        return change._replace(change=change.change._replace(record=record))


def hold_entry(leaf: Leaf, owner: str) -> Program[HeldEntry]:
    """Lock an owner's entry. Posts lock it first, too, so afterwards every change logged earlier is visible."""
    entries = Entries(leaf)
    for _, entry in (yield from entries.table.lock_rows([(leaf.rows_key, owner)])):
        return HeldEntry(entries, owner, entry, False)
    for hidden in (yield from hidden_owners.find_hidden_entries([leaf.key], [owner])):
        return HeldEntry(entries, owner, hidden.widen_cells(len(leaf.spec.columns)), True)
    is_hidden = bool((yield from hidden_owners.find_hidden_owners([owner], held=True)))
    return HeldEntry(entries, owner, None, is_hidden)

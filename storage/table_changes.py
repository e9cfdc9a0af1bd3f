"""What a group of posts does to one table of rows, and what that adds to the totals of its boards.

The rule: all of it or nothing. A row that is not as it was read loses the race for the whole group.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from querybuilder import Built

from .errors import LostRace
from .group_state import BoardState, GroupRow
from .leaderboards import ALL_ENTRIES, CHANGES
from .records import Entry
from .row_writes import RowWrites
from .store import Program


@dataclass(slots=True)
class TableChanges:
    """What a group does to one table."""

    new: list[tuple[int, Entry]] = field(default_factory=list)  # by the board's key in the table
    updates: dict[tuple[int, ...], list[tuple[int, Entry, int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, state: BoardState, totals: dict[int, dict[int, int]]) -> None:
        """Take in a board's rows; `totals`, by board key and column index, gets what that adds, if anything."""
        rows_key, changes = state.rows_key, 0
        more: dict[int, int] = {}
        for row in state.rows.values():
            if row.hidden:
                continue
            if row.expected is None:
                self.new.append((rows_key, row.entry))
                _count_new(state, row, more)
            elif row.changed:
                indexes = tuple(row.changed) if len(row.changed) == 1 else tuple(sorted(row.changed))
                self.updates[indexes].append((rows_key, row.entry, row.expected))
                for index in row.first_values:
                    more[index] = more.get(index, 0) + 1
            else:
                continue
            changes += 1
        if changes:
            more[CHANGES] = changes
            totals[state.entries.board.key] = more

    def write(self, writes: RowWrites) -> Program[None]:
        """Write it, every row or none."""
        for indexes, changed in self.updates.items():
            yield from all_or_lost(writes.update_changed(indexes, changed), len(changed))
        if self.new:
            yield from all_or_lost(writes.insert_new(self.new), len(self.new))


def _count_new(state: BoardState, row: GroupRow, more: dict[int, int]) -> None:
    more[ALL_ENTRIES] = more.get(ALL_ENTRIES, 0) + 1
    for index in state.entries.pattern.sorted_indexes:
        if row.entry.cells[index] is not None:
            more[index] = more.get(index, 0) + 1


def all_or_lost(query: Built, expected: int) -> Program[None]:
    """Run a write that has to touch so many rows.

    Raises:
        LostRace: it touched fewer.
    """
    rows = yield query
    if rows[0][0] != expected:
        raise LostRace(f"{expected - rows[0][0]} of {expected} rows changed between their read and their write")

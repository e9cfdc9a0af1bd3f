"""What a group of posts knows of its boards while it is applied: their rows as it will leave them, and its log.

The rule: it holds, and does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .bundles import Draft
from .closures import Closure
from .entries import Entries
from .merging import Cell, Merger
from .records import Entry


@dataclass(slots=True)
class GroupRow:
    """An entry as the group will leave it."""

    entry: Entry
    expected: int | None  # the version that was read; None: absent
    changed: dict[int, Cell] | None = None  # by column index, where anything changed
    first_values: tuple[int, ...] = ()  # ranked columns that had no value before
    ranked: str | None = None  # its ranked cells as the log has them; None: not asked for yet
    hidden: bool = False  # no ranking has it


@dataclass(slots=True)
class BoardState:
    """One board within a group."""

    entries: Entries
    merger: Merger
    rows_key: int  # in its table, as the store has it
    alive: bool = True
    closure: Closure | None = None  # of a board that may close
    epoch: int = 0  # as the store has it; known where post ids are looked for
    rows: dict[str, GroupRow] = field(default_factory=dict)
    log: Draft | None = None  # None: nothing is to be logged

    def draft(self) -> Draft:
        """The log, begun."""
        if self.log is None:
            self.log = Draft(self.entries.board.key)
        return self.log

    @property
    def table_key(self) -> int:
        """What tables are ordered by."""
        board = self.entries.board
        return board.key if board.table_key is None else board.table_key

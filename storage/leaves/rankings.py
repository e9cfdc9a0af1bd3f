"""Defines the interfaces for reading boards (`OpenBoard`) and ranked columns (`Ranking`), however entries are stored.

    OpenBoard           Ranking
    Entries             RowRanking          counts and reads rows
    ArchivedEntries     ArchivedRanking     return what the archive kept of the rows
    SegmentedEntries    SegmentedRanking    add up counts and merge rows of the segments

`better` means nearer to rank 1, whether high or low values win.
A place is a point in the ranking, given by a cell and an owner, even if no row has this cell and this owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.log.cells import CellOf, Padding
from storage.records import INT64_MAX, Entry, Leaf
from storage.store import Program

from .exact_ranks import CountStart, GapCount


@dataclass(slots=True)
class Neighbours:
    before: list[Entry]  # the better rows, best first
    after: list[Entry]  # the row at the place, if there is one, and the worse rows, best first
    ties_before: int  # how many rows with the place's cell come before the place's owner
    # How many rows with the cell of `before[0]` come before it. 0 unless `before[1]` has this cell: only then needed.
    edge_ties: int = 0
    shown_before: int | None = None  # how many rows an archive shows before the place; None: no archive


def edge_of(near: Neighbours, index: int) -> CellOf:
    """Return the cell and owner of the first row of `before`, which is the best of these rows."""
    first = near.before[0]
    return str(first.cells[index]), first.owner


class Ranking(Protocol):
    """Programs that read one ranked column of a board. Run them in the partition of the board."""

    index: int
    padding: Padding
    timed: bool  # True: of equal values, the one that was reached first is better. False: equal values share a rank

    def order_of(self, entry: Entry) -> tuple[int, str]:
        """Build a sort key that puts this ranking's entries in order, best first."""
        return self.padding.key_of_cell(str(entry.cells[self.index])), entry.owner

    def keeps_all_rows(self) -> Program[bool]:
        """Return whether rows can be read down to the last one. An archive may keep only the first rows."""
        yield from ()
        return True

    def count_better(self, cell: str) -> Program[int]:
        """Count all entries strictly better than a cell. Without an archive, the cost grows with the result."""
        return (yield from self.count_from_top(cell, None, INT64_MAX)).better_count

    def count_from_top(self, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
        """Count the entries strictly better than a cell, starting at the best. Stop at `rows_max` unless it is None.

        `asked_us` is a time before the read began, and is part of the result.
        """

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        """Count the entries better than a cell, starting at a knot. Return None if the log cannot confirm its count."""

    def count_before(
        self, cell: str, owner: str, start: CountStart | None, asked_us: int = INT64_MAX, rows_max: int | None = None
    ) -> Program[GapCount]:
        """Count the entries better than a cell, from a knot if the log can confirm its count, otherwise from the top.

        A count from the top stops at `rows_max`. Unless `owner` is empty, also count the entries with the same cell
        that come before the owner. If equal values share a rank, this is not necessary and may take long.
        """
        if start is not None:
            found = yield from self.count_from_anchor(start, cell, owner=owner)
            if found is not None:
                return found
        found = yield from self.count_from_top(cell, rows_max, asked_us)
        if owner:
            found = found._replace(ties_before=(yield from self.count_tied(cell, owner))[1])
        return found

    def count_range(self, *, least: str, past: str) -> Program[int]:
        """Count the entries with `least` <= cell < `past`. Cells are compared as text, even if low values are best."""

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        """Count the entries with this cell, and how many of these come before `owner`."""

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        """Find the cell and owner of the `rank`-th row that pages show, or return None if there are fewer rows.

        The search starts at a knot if the log can confirm the knot's count, otherwise at the top. Run this program in
        one snapshot.
        """

    def find_cell(self, start: CountStart | None, rank: int) -> Program[str | None]:
        """Find the cell of the `rank`-th entry, or return None if there are fewer.

        Archives also count erased and hidden owners.
        """
        row = yield from self.find_row(start, rank)
        return None if row is None else row[0]

    def find_worst_cell(self) -> Program[str | None]:
        """Find the cell of the last entry, or return None if there is no entry."""

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        """Find the cell and owner of the nearest row with a better rank than the owner's, or None if no row is better.

        If equal values share a rank, the returned row has a strictly better cell. Otherwise it comes directly before
        the owner's row. An archive returns that row's cell with "" as its owner, who may be unknown.
        """

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        """Read the first `limit` rows, best first.

        Raises:
            ArchivedError: there are rows, but the archive did not keep them. The methods below raise it as well.
        """

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        """Read the next `limit` rows after a place, best first."""

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        """Read the `limit` rows directly before a place, best first."""

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        """Read the rows on both sides of a place, and count ties so that the caller can compute the ranks."""


class OpenBoard(Protocol):
    """Programs that read a board's entries. Run them in `Board.reading_partition`."""

    @property
    def rankings(self) -> Mapping[int, Ranking]:
        """The rankings by column index."""

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """Find these owners' entries, by owner. Leave out owners without an entry, and hidden owners."""

    def read_by_owner(self, after: str, limit: int) -> Program[list[Entry]]:
        """Read up to `limit` entries of owners that sort after `after`, ordered by owner."""


class OpenLeaf(OpenBoard, Protocol):
    leaf: Leaf

"""The interface of a board for readers, and of its ranking by one column, however the entries are stored.

    OpenBoard           Ranking
    Entries             RowRanking          counts and reads rows
    ArchivedEntries     ArchivedRanking     return what the archive kept of the rows
    SegmentedEntries    SegmentedRanking    add up counts and merge rows of the segments

`better` means nearer to rank 1, whether high or low values win.
A place is a pair of a cell and an owner. There need not be a row with both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.log.cells import Padding
from storage.records import INT64_MAX, Entry, Leaf
from storage.store import Program

from .exact_ranks import CellOf, CountStart, GapCount


@dataclass(slots=True)
class Neighbours:
    """The rows around one place."""

    before: list[Entry]  # the better rows, best first
    after: list[Entry]  # the row at the place, if there is one, and the worse rows, best first
    ties_before: int  # number of rows with the place's cell that stand before the place's owner
    # Number of rows with the cell of `before[0]` that stand before that row. 0 unless `before[1]` has the same cell.
    edge_ties: int = 0
    shown_before: int | None = None  # of an archive: how many rows it shows before the place


def edge_of(near: Neighbours, index: int) -> CellOf:
    """Return the cell and owner of the first row of `before`."""
    first = near.before[0]
    return str(first.cells[index]), first.owner


class Ranking(Protocol):
    """Programs that read one ranked column of a board. Run them for the partition of the board."""

    index: int
    padding: Padding
    timed: bool  # whether the earliest of equal values is better
    board_key: int

    def order_of(self, entry: Entry) -> tuple[int, str]:
        """Return what orders the entries of this ranking, best first."""
        return self.padding.key_of_cell(str(entry.cells[self.index])), entry.owner

    def keeps_all_rows(self) -> Program[bool]:
        """Return whether rows can be read up to the last one. An archive keeps only the first rows."""
        yield from ()
        return True

    def count_better(self, cell: str) -> Program[int]:
        """Count all entries strictly better than a cell. Unless there is an archive, the cost grows with the number."""
        return (yield from self.count_from_top(cell, None, INT64_MAX)).better_count

    def count_from_top(self, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
        """Count the entries strictly better than a cell, but at most `rows_max`, and read no more rows than that.

        `asked_us`: a time before the read began.
        """

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        """Count the entries better than a cell. Return None if the log cannot confirm a knot's count."""

    def count_before(
        self, cell: str, owner: str, start: CountStart | None, asked_us: int = INT64_MAX, rows_max: int | None = None
    ) -> Program[GapCount]:
        """Count the entries better than a cell, from `start` if the log can confirm its count, else from the top.

        A count from the top ends at `rows_max`. Count also the entries with the cell that stand before `owner`, unless
        it is empty: where equal values share a rank, this is not necessary and may take long.
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
        """Count the entries with `least` <= cell < `past`. Cells are compared as text, whichever end is better."""

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        """Count the entries with this cell, and those of them that stand before `owner`."""

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        """Return the cell and owner of the `rank`-th row that pages show, or None if there are fewer rows.

        The search starts at a knot if the log can confirm the knot's count, otherwise at the top. It has to run in one
        snapshot.
        """

    def find_cell(self, start: CountStart | None, rank: int) -> Program[str | None]:
        """Return the cell of the `rank`-th entry, or None. In an archive, erased and hidden owners count, too."""
        row = yield from self.find_row(start, rank)
        return None if row is None else row[0]

    def find_worst_cell(self) -> Program[str | None]:
        """Return the cell of the last entry, or None if there is no entry."""

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        """Return the cell and owner of the next row that ranks better than an owner's; None if the owner is first.

        Where equal values share a rank, that row has a strictly better cell. Otherwise it stands directly before the
        owner's row. An archive returns a strictly better cell and an empty text, because it may not know the owner.
        """

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        """Return the first `limit` rows, best first.

        Raises:
            ArchivedError: there are rows, but the archive did not keep them. Other reads of rows raise it, too.
        """

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        """Return the next `limit` rows after a place, best first."""

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        """Return the `limit` rows directly before a place, best first."""

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        """Read the rows on both sides of a place, and count the ties that are needed to rank them."""


class OpenBoard(Protocol):
    """Programs that read the entries of a board. Run them for the partition of the first leaf."""

    @property
    def rankings(self) -> Mapping[int, Ranking]:
        """Return the rankings by column index."""

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        """Return the entries of these owners, by owner. Leave out owners without an entry, and hidden owners."""

    def read_by_owner(self, after: str, limit: int) -> Program[list[Entry]]:
        """Return up to `limit` entries of owners that sort after `after`, in the order of the owners."""


class OpenLeaf(OpenBoard, Protocol):
    """Programs that read the entries of one leaf."""

    leaf: Leaf

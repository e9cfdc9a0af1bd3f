"""`SegmentedEntries` and `SegmentedRanking` return what one board with the rows of all segments would return.

To return a page of N rows in order, they read N rows from each segment and merge all these rows. So a page takes one
statement for each segment.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TypeVar

from storage.leaves.entries import Entries
from storage.leaves.exact_ranks import CountStart, GapCount
from storage.leaves.rankings import Neighbours, OpenBoard, Ranking, edge_of
from storage.leaves.row_rankings import ANCHORS_MAX, RowRanking
from storage.leaves.totals import add_up_totals
from storage.log.cells import Padding
from storage.log.change_log import change_log
from storage.records import Board, Entry
from storage.store import Program, in_partition

WALK_ROWS = 500  # how many rows `_walk` reads from each segment in one step
BEFORE_ALL_OWNERS = ""  # a text that sorts before every owner

T = TypeVar("T")


class SegmentedRanking(Ranking):
    """Programs that read one ranked column of all segments of a board. They can run for any partition."""

    def __init__(self, board: Board, index: int, parts: Sequence[RowRanking]) -> None:
        self.index, self.padding = index, Padding(board.spec, board.spec.columns[index])
        self.timed, self.board_key = self.padding.timed, board.key
        self._board, self._parts = board, parts

    def _each(self, ask: Callable[[RowRanking], Program[T]]) -> Program[list[T]]:
        """Run a program for each segment in its partition, and return the results in the order of the segments."""
        found = []
        for leaf, ranking in zip(self._board.leaves, self._parts, strict=True):
            found.append((yield from in_partition(leaf.partition, ask(ranking))))
        return found

    def count_from_top(self, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
        found = add_up_counts((yield from self._each(lambda part: _count_as_asked(part, cell, rows_max, asked_us))))
        return found if rows_max is None else found._replace(better_count=min(rows_max, found.better_count))

    def count_range(self, *, least: str, past: str) -> Program[int]:
        return sum((yield from self._each(lambda part: part.count_range(least=least, past=past))))

    def tally_cells(self, limit: int, below: str | None = None) -> Program[list[tuple[str, int]]]:
        """Return up to `limit` cells worse than `below` (None: all), best first, each with its number of entries."""
        counted: Counter[str] = Counter()
        for rows in (yield from self._each(lambda part: part.tally_cells(limit, below))):
            for cell, ties in rows:
                counted[cell] += ties
        return sorted(counted.items(), key=lambda row: self.padding.key_of_cell(row[0]))[:limit]

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        found = yield from self._each(lambda part: part.count_tied(cell, owner))
        return sum([ties for ties, _ in found]), sum([before for _, before in found])

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        """Count the entries better than a cell, from a knot per segment. None: a log can't bring a count up to date."""
        counts = []
        for leaf, part, its_start in zip(self._board.leaves, self._parts, start.parts, strict=True):
            counting = part.count_from_anchor(its_start, cell, owner=owner)
            if (count := (yield from in_partition(leaf.partition, counting))) is None:
                return None
            counts.append(count)
        return add_up_counts(counts)

    def find_row(self, start: CountStart | None, rank: int) -> Program[tuple[str, str] | None]:
        """Return the cell and owner of the `rank`-th row, or None if the ranking has fewer rows.

        With `start`, the board's curve (the sum of the segments' curves) gives a cell above the row, where the search
        begins. The search then reads about as many rows as all segments together have between two knots, or fewer.
        """
        place, skip_rows = (None, rank - 1) if start is None else (yield from self._find_place_before(start, rank))
        return (yield from self._walk(place, skip_rows))

    def _find_place_before(self, start: CountStart, rank: int) -> Program[tuple[tuple[str, str] | None, int]]:
        """Return a cell and owner above the `rank`-th row (None: the top), and how many rows to skip from there."""
        sought = rank
        for _ in range(ANCHORS_MAX):
            near = start.curve.key_at(sought)
            if near is None:
                break
            # It does not matter if no row has exactly this cell: only the better rows are counted.
            edge = self.padding.cell_of_key(near.low)
            counted = yield from self.count_from_anchor(start, edge)
            if counted is None:
                break
            if counted.better_count < rank:
                return (edge, BEFORE_ALL_OWNERS), rank - 1 - counted.better_count
            sought = max(1, sought - (counted.better_count - rank + 1))  # new entries moved the cell below the row
        return None, rank - 1

    def _walk(self, place: tuple[str, str] | None, skip_rows: int) -> Program[tuple[str, str] | None]:
        """Skip rows after a cell and owner (None: from the top). Return the cell and owner of the next row, if any."""
        rows = yield from (
            self.read_first_rows(WALK_ROWS) if place is None else self.read_rows_after(*place, WALK_ROWS)
        )
        while len(rows) <= skip_rows:
            if not rows:
                return None
            skip_rows -= len(rows)
            last = rows[-1]
            rows = yield from self.read_rows_after(str(last.cells[self.index]), last.owner, WALK_ROWS)
        row = rows[skip_rows]
        return str(row.cells[self.index]), row.owner

    def find_worst_cell(self) -> Program[str | None]:
        found = yield from self._each(lambda part: part.find_worst_cell())
        return max((cell for cell in found if cell is not None), key=self.padding.key_of_cell, default=None)

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        found = yield from self._each(lambda part: part.find_next_better(cell, owner))
        rows = [row for row in found if row is not None]
        return max(rows, key=lambda row: (self.padding.key_of_cell(row[0]), row[1]), default=None)

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        return self._merge((yield from self._each(lambda part: part.read_first_rows(limit))), limit)

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        return self._merge((yield from self._each(lambda part: part.read_rows_after(cell, owner, limit))), limit)

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        return self._last((yield from self._each(lambda part: part.read_rows_before(cell, owner, limit))), limit)

    def _merge(self, found: Iterable[list[Entry]], limit: int) -> list[Entry]:
        return list(islice(heapq.merge(*found, key=self.order_of), limit))

    def _last(self, found: Iterable[list[Entry]], limit: int) -> list[Entry]:
        merged = list(heapq.merge(*found, key=self.order_of))
        return merged[max(0, len(merged) - limit) :]

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        found = yield from self._each(
            lambda part: part.read_rows_around(cell, owner, better_rows=better_rows, worse_rows=worse_rows)
        )
        near = self.merge_neighbours(found, better_rows=better_rows, worse_rows=worse_rows)
        if self.has_edge(near):
            near.edge_ties = (yield from self.count_tied(*edge_of(near, self.index)))[1]
        return near

    def merge_neighbours(self, found: Sequence[Neighbours], *, better_rows: int, worse_rows: int) -> Neighbours:
        """Merge the rows around a place (a cell and an owner) from all segments. Leave `edge_ties` at 0."""
        return Neighbours(
            self._last([each.before for each in found], better_rows),
            self._merge([each.after for each in found], worse_rows),
            sum([each.ties_before for each in found]),
        )

    def has_edge(self, near: Neighbours) -> bool:
        """Return whether the first two rows of `before` tie. If so, `edge_ties` must count the ties above them."""
        before = near.before
        return len(before) > 1 and before[0].cells[self.index] == before[1].cells[self.index]


def _count_as_asked(part: RowRanking, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
    """Count a segment's entries that were better than a cell at `asked_us`. Stop at `rows_max`."""
    log = yield from change_log.read_counter()
    mark = None
    if log.changed_us > asked_us:
        mark = yield from change_log.find_later_mark(part.board_key, asked_us)
    if mark is None or rows_max is not None:
        found = yield from part.count_from_top(cell, rows_max, asked_us)
        if mark is None or found.better_count == rows_max:
            return found
    return (yield from part.gaps.count_as_asked(cell, asked_us, mark))


def add_up_confirmed(found: Sequence[GapCount | None]) -> GapCount | None:
    """Add up the counts of a cell in all segments. Return None if the count of a segment is None, that is, unknown."""
    parts = [part for part in found if part is not None]
    return add_up_counts(parts) if len(parts) == len(found) else None


def add_up_counts(parts: Sequence[GapCount]) -> GapCount:
    """Add up the counts of a cell in all segments."""
    return GapCount(
        sum([part.better_count for part in parts]),
        sum([part.ties_before for part in parts]),
        add_up_totals([part.totals for part in parts]),
        all(part.from_anchor for part in parts),
        min([part.asked_us for part in parts]),
        0,
        sum([part.late for part in parts]),
        sum([part.late_ties for part in parts]),
        is_sum=True,
    )


class SegmentedEntries(OpenBoard):
    """Programs that read the entries and the rankings of all segments as one board. Posts go to single segments."""

    def __init__(self, board: Board, parts: Sequence[Entries]) -> None:
        self.board, self._parts = board, parts

    @cached_property
    def rankings(self) -> Mapping[int, SegmentedRanking]:
        return {
            index: SegmentedRanking(self.board, index, [part.rankings[index] for part in self._parts])
            for index in self.board.sorted_indexes
        }

    def read_by_owner(self, after: str, limit: int) -> Program[list[Entry]]:
        found = []
        for part in self._parts:
            found.append((yield from in_partition(part.leaf.partition, part.read_by_owner(after, limit))))
        return list(islice(heapq.merge(*found, key=lambda entry: entry.owner), limit))

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        asked: dict[int, list[str]] = {}
        for owner in owners:
            asked.setdefault(self.board.leaf_of(owner).key, []).append(owner)
        found: dict[str, Entry] = {}
        for part in self._parts:
            if (theirs := asked.get(part.leaf.key)) is not None:
                found |= yield from in_partition(part.leaf.partition, part.find_entries(theirs))
        return found

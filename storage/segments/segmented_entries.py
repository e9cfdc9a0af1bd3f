"""`SegmentedEntries` and `SegmentedRanking` return what one board with the rows of all segments would return.

To return a page of rows in order, they read some rows from each segment and merge them, so that a page usually takes
one statement per segment.

Each read of a board is written once, as a `SegmentedRead`, which asks all segments the same question and combines their
answers into one. `read_in_turn` runs it as a program, and `read_at_once` asks all segments at the same time.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from storage.leaves.count_policy import CountPolicy
from storage.leaves.entries import Entries
from storage.leaves.exact_ranks import BETTER_THAN_ANY, CountStart, GapCount
from storage.leaves.rankings import Neighbours, OpenBoard, Ranking, edge_of
from storage.leaves.row_rankings import ANCHORS_MAX, AroundOwner, OwnersNeighbours, RowRanking
from storage.leaves.totals import CHANGES, add_up_totals, read_totals
from storage.log.cells import CellOf, Padding
from storage.log.change_log import change_log
from storage.records import Board, Entry
from storage.store import Program, Store, in_partition, read_single, read_steps

WALK_ROWS = 500  # how many rows `_walk` reads from each segment in one step
FEW_ROWS = 10  # of the best rows of a board, read at least about this many from each segment
BEFORE_ALL_OWNERS = ""  # a text that sorts before every owner

T = TypeVar("T")


class AskedOfEach(NamedTuple):
    """A read that is run on each segment. Without `agree`, the program has one query."""

    program: Callable[[Entries], Program[Any]]
    agree: Callable[[Any], bool] | None = None  # returns whether all queries have seen the same state of the segment


SegmentedRead = Generator[AskedOfEach, list[Any], T]  # is sent the answers, in the order of the segments


def read_in_turn(parts: Iterable[Entries], read: SegmentedRead[T]) -> Program[T]:
    """Ask one segment after another, each in its partition, as part of a program that runs for any partition."""
    try:
        asked = next(read)
        while True:
            found = []
            for part in parts:
                found.append((yield from in_partition(part.leaf.partition, asked.program(part))))
            asked = read.send(found)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def read_at_once(store: Store, parts: Sequence[Entries], read: SegmentedRead[T]) -> T:
    """Ask all segments at the same time, each in a snapshot of its own."""
    try:
        asked = next(read)
        while True:
            asking = [_ask(store.at(part.leaf.partition), partial(asked.program, part), asked.agree) for part in parts]
            asked = read.send(await asyncio.gather(*asking))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def _ask(store: Store, program: Callable[[], Program[T]], agree: Callable[[T], bool] | None) -> T:
    if agree is None:
        return await read_single(store, program)
    if not store.sole_writer:  # BEGIN and COMMIT double the round trips, so read again only after a change
        found = await read_steps(store, program)
        if agree(found):
            return found
    return await store.read(program)


class SegmentedRanking(Ranking):
    """Programs that read one ranked column across all segments of a board. They can run for any partition."""

    def __init__(self, board: Board, index: int, parts: Sequence[Entries]) -> None:
        self.index, self.padding = index, Padding(board.spec, board.spec.columns[index])
        self.timed = self.padding.timed
        self._before_best = BETTER_THAN_ANY[self.padding.high], BEFORE_ALL_OWNERS
        self._board, self._parts = board, parts

    def _each(self, ask: Callable[[RowRanking], Program[T]]) -> Program[list[T]]:
        found = []
        for part in self._parts:
            found.append((yield from in_partition(part.leaf.partition, ask(part.rankings[self.index]))))
        return found

    def count_from_top(self, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
        found = add_up_counts((yield from self._each(lambda part: _count_as_asked(part, cell, rows_max, asked_us))))
        return found if rows_max is None else found._replace(better_count=min(rows_max, found.better_count))

    def count_range(self, *, least: str, past: str) -> Program[int]:
        return sum((yield from self._each(lambda part: part.count_range(least=least, past=past))))

    def tally_cells(self, limit: int, below: str | None = None) -> Program[list[tuple[str, int]]]:
        """List up to `limit` cells (with `below`, worse ones only), best first, each with its number of entries."""
        counted: Counter[str] = Counter()
        for rows in (yield from self._each(lambda part: part.tally_cells(limit, below))):
            for cell, ties in rows:
                counted[cell] += ties
        return sorted(counted.items(), key=lambda row: self.padding.key_of_cell(row[0]))[:limit]

    def count_tied(self, cell: str, owner: str = "") -> Program[tuple[int, int]]:
        found = yield from self._each(lambda part: part.count_tied(cell, owner))
        return sum([ties for ties, _ in found]), sum([before for _, before in found])

    def count_from_anchor(self, start: CountStart, cell: str, *, owner: str = "") -> Program[GapCount | None]:
        return (yield from read_in_turn(self._parts, self.count_cells(start, [(cell, owner)])))[cell, owner]

    def count_cells(self, start: CountStart, cells: Collection[CellOf]) -> SegmentedRead[dict[CellOf, GapCount | None]]:
        """Count the entries better than each cell, from a knot per segment, or None where a log can't confirm it."""
        counted = yield AskedOfEach(lambda part: self._count_in(part, start, cells))
        return {cell: add_up_confirmed([counts[cell] for counts in counted]) for cell in cells}

    def _count_in(
        self, part: Entries, start: CountStart, cells: Collection[CellOf]
    ) -> Program[dict[CellOf, GapCount | None]]:
        return part.rankings[self.index].gaps.count_better(start.parts[part.leaf.segment], cells)

    def find_row(self, start: CountStart | None, rank: int) -> Program[CellOf | None]:
        """Find the cell and owner of the `rank`-th row, or return None if the ranking has fewer rows.

        With `start`, the search begins at a cell above the row, found on the board's curve (the sum of the segments'
        curves). It then reads at most about as many rows as all segments together have between two knots.
        """
        place, skip_rows = self._before_best, rank - 1
        if start is not None:
            place, skip_rows = yield from self._find_place_before(start, rank)
        while rows := (yield from self.read_rows_after(*place, WALK_ROWS)):
            if skip_rows < len(rows):
                return self._place_of(rows[skip_rows])
            skip_rows -= len(rows)
            place = self._place_of(rows[-1])
        return None

    def _find_place_before(self, start: CountStart, rank: int) -> Program[tuple[CellOf, int]]:
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
        return self._before_best, rank - 1

    def _place_of(self, row: Entry) -> CellOf:
        return str(row.cells[self.index]), row.owner

    def find_worst_cell(self) -> Program[str | None]:
        found = yield from self._each(lambda part: part.find_worst_cell())
        return max((cell for cell in found if cell is not None), key=self.padding.key_of_cell, default=None)

    def find_next_better(self, cell: str, owner: str) -> Program[tuple[str, str] | None]:
        found = yield from self._each(lambda part: part.find_next_better(cell, owner))
        rows = [row for row in found if row is not None]
        return max(rows, key=lambda row: (self.padding.key_of_cell(row[0]), row[1]), default=None)

    def read_first_rows(self, limit: int) -> Program[list[Entry]]:
        return (yield from self.read_rows_after(*self._before_best, limit))

    def read_rows_after(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        # Of N segments, each probably has about an Nth of these rows: see `read_best_rows`.
        rows_max = min(limit, limit * 3 // (2 * len(self._parts)) + FEW_ROWS)
        while True:
            reading = partial(RowRanking.read_rows_after, cell=cell, owner=owner, limit=rows_max)
            found = yield from self._each(reading)
            merged = self._merge(found, limit)
            if rows_max == limit:
                return merged
            cut = [self.order_of(rows[-1]) for rows in found if len(rows) == rows_max]
            if not cut or (len(merged) == limit and self.order_of(merged[-1]) <= min(cut)):
                return merged
            rows_max = limit

    def read_rows_before(self, cell: str, owner: str, limit: int) -> Program[list[Entry]]:
        return self._last((yield from self._each(lambda part: part.read_rows_before(cell, owner, limit))), limit)

    def _merge(self, found: Iterable[list[Entry]], limit: int) -> list[Entry]:
        return list(islice(heapq.merge(*found, key=self.order_of), limit))

    def _last(self, found: Iterable[list[Entry]], limit: int) -> list[Entry]:
        merged = list(heapq.merge(*found, key=self.order_of))
        return merged[max(0, len(merged) - limit) :]

    def read_best_rows(self, limit: int) -> SegmentedRead[OwnersNeighbours]:
        """Read the board's best rows and its totals, usually with one statement per segment.

        Each of N segments probably has about an Nth of these rows, so the first statement reads a few more than that.
        If the last row read from a segment turns out to be among the best, a second one reads `limit` rows.
        """
        rows_max = min(limit, limit * 3 // (2 * len(self._parts)) + FEW_ROWS)
        while True:
            reading = partial(self._read_around_in, [self._before_best], (0, rows_max))
            parts = [each for [each] in (yield AskedOfEach(reading))]
            cut = [part.near.after[-1] for part in parts if len(part.near.after) == rows_max]
            near = self._merge_neighbours([part.near for part in parts], (0, limit))
            if rows_max == limit or all(self.order_of(last) > self.order_of(near.after[-1]) for last in cut):
                return OwnersNeighbours(near, add_up_totals([part.totals for part in parts]))
            rows_max = limit

    def read_rows_around(self, cell: str, owner: str, *, better_rows: int, worse_rows: int) -> Program[Neighbours]:
        reading = self._read_around([(cell, owner)], (better_rows, worse_rows))
        [found] = yield from read_in_turn(self._parts, reading)
        return found.near

    def read_around_owners(
        self, asked: AroundOwner, owners: Sequence[str], gap_rows_max: int
    ) -> SegmentedRead[dict[str, OwnersNeighbours]]:
        """Read the rows around each of the owners who have a value in the column.

        If `asked.start` is set, also count the entries better than the owners' cells where `CountPolicy` says so. For
        `gap_rows_max`, see `count_policy.limit_gap_rows`.
        """
        places = [place for theirs in (yield AskedOfEach(partial(self._find_places, owners))) for place in theirs]
        start, cells = asked.start, list[CellOf]()
        if start is not None:
            policy, wanted = CountPolicy(self._board.spec.predictor.exact_top), {*map(self._counted_cell, places)}
            cells = policy.choose_cells(start.curve, self.padding, wanted, gap_rows_max)
        rows_max = asked.better_rows, asked.worse_rows
        found = (yield from self._read_around(places, rows_max, start, cells)) if places else []
        return {owner: each for (_, owner), each in zip(places, found, strict=True)}

    def _find_places(self, owners: Sequence[str], part: Entries) -> Program[list[CellOf]]:
        theirs = [owner for owner in owners if self._board.leaf_of(owner).key == part.leaf.key]
        found = (yield from part.find_entries(theirs)) if theirs else {}
        return [self._place_of(entry) for entry in found.values() if entry.cells[self.index] is not None]

    def _counted_cell(self, place: CellOf) -> CellOf:
        return place if self.timed else (place[0], "")

    def _read_around(
        self,
        places: Sequence[CellOf],
        rows_max: tuple[int, int],
        start: CountStart | None = None,
        cells: Sequence[CellOf] = (),
    ) -> SegmentedRead[list[OwnersNeighbours]]:
        """Read up to `rows_max` better and worse rows around each place, and count the entries better than `cells`."""

        def read_and_count(part: Entries) -> Program[list[OwnersNeighbours]]:
            around = yield from self._read_around_in(places, rows_max, part)
            if not cells or start is None:
                return around
            counts = yield from self._count_in(part, start, cells)
            counted = [counts.get(self._counted_cell(place)) for place in places]
            return [each._replace(counted=count) for each, count in zip(around, counted, strict=True)]

        reads = yield AskedOfEach(read_and_count, _are_of_one_moment if cells else None)
        totals, found = add_up_totals([read[0].totals for read in reads]), []
        for parts in zip(*reads, strict=True):
            near = self._merge_neighbours([part.near for part in parts], rows_max)
            found.append(OwnersNeighbours(near, totals, add_up_confirmed([part.counted for part in parts])))
        # If the first two rows tie, the ties above them matter.
        shown = [each.near for each in found if len(each.near.before) > 1]
        tied = [near for near in shown if near.before[0].cells[self.index] == near.before[1].cells[self.index]]
        if tied:
            edges = [edge_of(near, self.index) for near in tied]
            counted = yield AskedOfEach(lambda part: part.rankings[self.index].count_ties_before(edges))
            for near, *ties in zip(tied, *counted, strict=True):
                near.edge_ties = sum(ties)
        return found

    def _read_around_in(
        self, places: Sequence[CellOf], rows_max: tuple[int, int], part: Entries
    ) -> Program[list[OwnersNeighbours]]:
        reading, (better_rows, worse_rows) = part.rankings[self.index].read_around_places, rows_max
        return reading(places, better_rows=better_rows, worse_rows=worse_rows)

    def _merge_neighbours(self, found: Sequence[Neighbours], rows_max: tuple[int, int]) -> Neighbours:
        return Neighbours(
            self._last([each.before for each in found], rows_max[0]),
            self._merge([each.after for each in found], rows_max[1]),
            sum([each.ties_before for each in found]),
        )


def _are_of_one_moment(found: Sequence[OwnersNeighbours]) -> bool:
    counts = [(each.counted, each.totals) for each in found if each.counted is not None]
    return all(counted.totals.get(CHANGES, 0) == totals.get(CHANGES, 0) for counted, totals in counts)


def _count_as_asked(part: RowRanking, cell: str, rows_max: int | None, asked_us: int) -> Program[GapCount]:
    """Count a segment's entries that were better than a cell at `asked_us`. Stop at `rows_max`."""
    log = yield from change_log.read_counter()
    mark = None
    if log.changed_us > asked_us:
        mark = yield from change_log.find_later_mark(part.leaf_key, asked_us)
    if mark is None or rows_max is not None:
        found = yield from part.count_from_top(cell, rows_max, asked_us)
        if mark is None or found.better_count == rows_max:
            return found
    return (yield from part.gaps.count_as_asked(cell, asked_us, mark))


def add_up_confirmed(found: Sequence[GapCount | None]) -> GapCount | None:
    """Add up a cell's counts in all segments, or return None if any segment's count is None, that is, unknown."""
    parts = [part for part in found if part is not None]
    return add_up_counts(parts) if len(parts) == len(found) else None


def add_up_counts(parts: Sequence[GapCount]) -> GapCount:
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
    """Programs that read the entries and rankings of all segments as one board. Posts go to single segments instead."""

    def __init__(self, board: Board, parts: Sequence[Entries]) -> None:
        self.board, self.parts = board, parts

    @cached_property
    def rankings(self) -> Mapping[int, SegmentedRanking]:
        return {index: SegmentedRanking(self.board, index, self.parts) for index in self.board.sorted_indexes}

    def read_by_owner(self, after: str, limit: int) -> Program[list[Entry]]:
        found = []
        for part in self.parts:
            found.append((yield from in_partition(part.leaf.partition, part.read_by_owner(after, limit))))
        return list(islice(heapq.merge(*found, key=lambda entry: entry.owner), limit))

    def find_entries(self, owners: Sequence[str]) -> Program[dict[str, Entry]]:
        found: dict[str, Entry] = {}
        for part in self.parts:
            if theirs := [owner for owner in owners if self.board.leaf_of(owner).key == part.leaf.key]:
                found |= yield from in_partition(part.leaf.partition, part.find_entries(theirs))
        return found

    def read_totals(self) -> SegmentedRead[dict[int, int]]:
        """Read the totals, summed over all segments. Raises UnknownBoardError, BoardChangedError."""
        found = yield AskedOfEach(lambda part: read_totals([part.leaf]))
        return add_up_totals([totals for read in found for totals in read.values()])

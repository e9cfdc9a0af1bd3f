"""Ranks and reads members in the order of Redis: by score, and members with equal scores by the bytes of their names.

A board lists the best value first and, among equal values, the owner whose name sorts first. If high values are best,
Redis lists the members of such a group the other way round, so the group is read from its other end. A board that
orders equal values by time or by columns keeps its own order.
"""

from collections.abc import Sequence
from typing import NamedTuple

from service.contract.responses.positions import PositionMethod
from service.ranks.locator import LocatedRank, Locator, WantedRank
from service.ranks.pages import LAST_OWNER, cell_of
from storage.leaves.count_policy import RankMode, limit_gap_rows
from storage.leaves.entries import Entries
from storage.leaves.exact_ranks import CountStart
from storage.leaves.rankings import Ranking
from storage.leaves.row_rankings import RowRanking
from storage.leaves.totals import read_board_totals
from storage.log.cells import CellOf
from storage.records import Entry
from storage.store import Program

SLACK_ROWS = 100  # rows that end within this many rows of the last one are read from the end of the ranking


class RankOf(NamedTuple):
    """A member's place in its ranking."""

    better: int  # the number of members before it
    total: int
    value: int  # scaled
    method: PositionMethod


class RedisOrder:
    """Reads one ranked column of a board. Its programs have to run in the board's partition."""

    def __init__(self, locator: Locator, index: int, *, gap_rows_max: int) -> None:
        self.locator, self._index, self._gap_rows_max = locator, index, gap_rows_max
        self.ranking: Ranking = locator.entries.rankings[index]
        self.high = self.ranking.padding.high
        self._mirrored = self.high and not self.ranking.padding.orders_equals

    def find_start(self) -> CountStart | None:
        """Find a curve at whose knots counts can start, or None. Call this before the program begins."""
        return self.locator.find_count_start(self._index)

    def read_total(self) -> Program[int]:
        return (yield from read_board_totals(self.locator.board)).get(self._index, 0)

    def find_ranks(
        self, owners: Sequence[str], mode: RankMode, start: CountStart | None, *, is_busy: bool
    ) -> Program[dict[str, RankOf]]:
        """Find the rank of each of these owners.

        In the mode `auto`, a curve gives the ranks in its longest gaps. If the process is busy, the curve gives more of
        the ranks, even those that it knows exactly, which may then be as of a second ago. All other ranks are counted,
        and so is the place among equal values.
        """
        entries, total = yield from self._find_entries(owners)
        cells = {owner: cell for owner, each in entries.items() if isinstance(cell := each.cells[self._index], str)}
        estimated = self._estimate({*cells.values()}, mode, start, is_busy=is_busy)
        better = {cell: located.rank - 1 for cell, located in estimated.items()}
        yield from self._count_better({*cells.values()} - better.keys(), start, better)
        places = [
            place for owner, cell in cells.items() if cell not in estimated for place in self._ties_of(cell, owner)
        ]
        ties = yield from self._count_ties(list(dict.fromkeys(places)))
        found: dict[str, RankOf] = {}
        for owner, cell in cells.items():
            index = better[cell]
            if cell not in estimated:
                before = ties[cell, owner]
                index += ties[cell, LAST_OWNER] - 1 - before if self._mirrored else before
            value, located = self.ranking.padding.decode_value(cell), estimated.get(cell)
            method = "count" if located is None else located.method
            found[owner] = RankOf(min(index, max(0, total - 1)), total, value, method)
        return found

    def _estimate(
        self, cells: set[str], mode: RankMode, start: CountStart | None, *, is_busy: bool
    ) -> dict[str, LocatedRank]:
        """Read the ranks of cells off the curve where the mode allows it. They ignore the place among equal values."""
        locator = self.locator
        if start is not None and mode == "auto":
            rows_max = limit_gap_rows(self._gap_rows_max, crowded=is_busy)
            places = [(cell, "") for cell in cells]
            chosen = locator.policy.choose_cells(start.curve, self.ranking.padding, places, rows_max, knots=not is_busy)
            cells = cells - {cell for cell, _ in chosen}
        located = {cell: locator.locate_without_count(WantedRank(self._index, cell, None), mode) for cell in cells}
        return {cell: each for cell, each in located.items() if each is not None}

    def _find_entries(self, owners: Sequence[str]) -> Program[tuple[dict[str, Entry], int]]:
        """Read the entries of these owners, and the number of members in the ranking."""
        entries = self.locator.entries
        if isinstance(entries, Entries):
            found, totals = yield from entries.find_entries_with_totals(owners)
            return found, totals.get(self._index, 0)
        total = yield from self.read_total()
        return (yield from entries.find_entries(owners)), total

    def _ties_of(self, cell: str, owner: str) -> list[CellOf]:
        return [(cell, owner), (cell, LAST_OWNER)] if self._mirrored else [(cell, owner)]

    def _count_better(self, cells: set[str], start: CountStart | None, found: dict[str, int]) -> Program[None]:
        ranking = self.ranking
        if start is not None and isinstance(ranking, RowRanking) and cells:
            counted = yield from ranking.gaps.count_better(start, [(cell, "") for cell in cells])
            found |= {cell: each.better_count for (cell, _), each in counted.items() if each is not None}
        for cell in cells - found.keys():
            found[cell] = (yield from ranking.count_before(cell, "", start)).better_count

    def _count_ties(self, places: Sequence[CellOf]) -> Program[dict[CellOf, int]]:
        ranking = self.ranking
        if isinstance(ranking, RowRanking):
            counted = (yield from ranking.count_ties_before(places)) if places else []
            return dict(zip(places, counted, strict=True))
        found: dict[CellOf, int] = {}
        for place in places:
            found[place] = (yield from ranking.count_tied(*place))[1]
        return found

    def find_span(self, least: int, most: int, total: int, start: CountStart | None) -> Program[tuple[int, int]]:
        """Find the rows with a value from `least` to `most` (scaled): the first index, and the one past the last."""
        if least > most:
            return 0, 0
        best, worst = (most, least - 1) if self.high else (least, most + 1)
        begin = yield from self._count_beyond(best, total, start)
        return begin, (yield from self._count_beyond(worst, total, start))

    def _count_beyond(self, value: int, total: int, start: CountStart | None) -> Program[int]:
        """Count the entries with a better value than this one, which may lie outside the column's range."""
        padding = self.ranking.padding
        if not padding.min_scaled <= value <= padding.max_scaled:
            return 0 if (value > padding.max_scaled) == self.high else total
        return (yield from self.ranking.count_before(padding.pad(value), "", start)).better_count

    def read_rows(
        self, begin: int, end: int, total: int, start: CountStart | None, *, ascending: bool
    ) -> Program[list[Entry]]:
        """Read the rows from the 0-based index `begin` up to, but without, `end`, by ascending or descending score."""
        if ascending == self.high:
            found = yield from self._read_best_first(total - end, total - begin, total, start)
            return found[::-1]
        return (yield from self._read_best_first(begin, end, total, start))

    def _read_best_first(self, begin: int, end: int, total: int, start: CountStart | None) -> Program[list[Entry]]:
        rows = yield from self._read_own_order(begin, end, total, start)
        if not self._mirrored or not rows:
            return rows
        groups: list[list[Entry]] = []
        for row in rows:
            if groups and cell_of(self.ranking, groups[-1][0]) == cell_of(self.ranking, row):
                groups[-1].append(row)
            else:
                groups.append([row])
        found: list[Entry] = []
        for number, group in enumerate(groups):
            if number in (0, len(groups) - 1):  # the others are complete
                found += yield from self._mirror(group, begin + len(found), total, start)
            else:
                found += group[::-1]
        return found

    def _mirror(self, group: list[Entry], at: int, total: int, start: CountStart | None) -> Program[list[Entry]]:
        """Return the rows that take the place of `group`, a part of some equal values, if these are read backwards."""
        tied, before = yield from self.ranking.count_tied(cell_of(self.ranking, group[0]), group[0].owner)
        if tied > len(group):
            first = at - before  # where the whole group begins
            begin = first + tied - before - len(group)
            group = yield from self._read_own_order(begin, begin + len(group), total, start)
        return group[::-1]

    def _read_own_order(self, begin: int, end: int, total: int, start: CountStart | None) -> Program[list[Entry]]:
        if begin >= end:
            return []
        if begin == 0:
            return (yield from self.ranking.read_first_rows(end))
        if total - end <= SLACK_ROWS and (yield from self.ranking.keeps_all_rows()):
            worst = yield from self.ranking.find_worst_cell()
            if worst is not None:
                last = yield from self.ranking.read_rows_before(worst, LAST_OWNER, total - begin)
                return last[: end - begin]
        landed = yield from self.ranking.find_row(start, begin + 1)
        if landed is None:
            return []
        return (yield from self.ranking.read_rows_around(*landed, better_rows=0, worse_rows=end - begin)).after

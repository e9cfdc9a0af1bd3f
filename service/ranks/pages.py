"""Reads pages of a ranking (rows in order, with their ranks) that begin at a cursor, a rank or a tier, and tags them.

Ranks on a page are exact only if its first row's number is. That number is 1 on the first page, and the cursor gives it
for a later page. If the board has changed since the cursor was made, the rows above the page are counted again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from predictor import AnyCurve
from service.contract.cursors import CursorCodec, RowCursor
from service.contract.responses.boards import Page, RankedEntry
from service.contract.routes import Tagged
from service.contract.values import OWNER_CHARS_MAX, Number, format_us
from storage.errors import BadCursorError
from storage.leaves.exact_ranks import CountStart
from storage.leaves.rankings import Ranking
from storage.leaves.totals import CHANGES, read_board_totals
from storage.log.cells import CellOf
from storage.records import Board, Entry, Leaf
from storage.store import Program

from .locator import Locator

LAST_OWNER = "\U0010ffff" * (OWNER_CHARS_MAX + 1)  # sorts after every owner
FirstPage = tuple[Tagged, int]  # the first page of a ranking, encoded as JSON, and its number of rows


@dataclass(slots=True)
class Window:
    rows: list[Entry]
    first_row_number: int  # 1-based
    first_rank: int  # the rank of the first row; less than its row number if it shares the rank of an earlier row
    exact: bool
    totals: dict[int, int]
    more_before: bool
    more_after: bool
    place: CellOf | None = None  # for a window without rows, its place in the ranking; None: outside the ranking
    tier: str | None = None  # the tier that all rows have, if the page is of a tier
    tier_begin: int = 0  # how many rows come before the first row of the tier


def rank_rows(ranking: Ranking, window: Window) -> list[int]:
    """Compute the rank of each row in a window.

    A row's rank is its number. If equal values share a rank, it is the number of the first row with that value.
    """
    ranks: list[int] = []
    previous: str | None = None
    rank = window.first_rank
    for number, entry in enumerate(window.rows, start=window.first_row_number):
        cell = cell_of(ranking, entry)
        if ranks and (ranking.timed or cell != previous):
            rank = number
        ranks.append(rank)
        previous = cell
    return ranks


def cell_of(ranking: Ranking, entry: Entry) -> str:
    cell = entry.cells[ranking.index]
    assert isinstance(cell, str)
    return cell


def make_entity_tag(board: Board | Leaf, totals: dict[int, int], curve: AnyCurve | None = None) -> str:
    """Make an `ETag` that changes whenever the board's rows or columns change, or the curve, if one is given."""
    off_curve = "" if curve is None else f"-{curve.tag}"
    return f'W/"{board.key}-{board.edition}-{totals.get(CHANGES, 0)}{off_curve}"'


class Pager:
    """Reads one ranking's rows and makes pages of them. Run the programs that it returns with `Store.read`."""

    def __init__(self, locator: Locator, cursors: CursorCodec, index: int) -> None:
        self._locator, self._cursors, self._index = locator, cursors, index
        self.ranking: Ranking = locator.entries.rankings[index]
        self.board = locator.board

    async def read_first(self, limit: int) -> Window:
        """Read the best rows of the ranking. Each leaf of the board is read in a snapshot of its own."""
        if not self.board.is_spread:
            return await self._locator.store.read(lambda: self.find_first_rows(limit))
        near, totals, _ = await self._locator.reads.read_best_rows(self.board, self._index, limit + 1)
        return Window(near.after[:limit], 1, 1, True, totals, False, len(near.after) > limit)

    def find_first_rows(self, limit: int) -> Program[Window]:
        totals = yield from read_board_totals(self.board)
        rows = yield from self.ranking.read_first_rows(limit + 1)
        return (yield from self._window(rows, limit, 1, totals))

    def find_count_start(self) -> CountStart | None:
        return self._locator.find_count_start(self._index)

    def find_rows_from_rank(self, rank: int, limit: int, start: CountStart | None) -> Program[Window]:
        """Find the rows from row number `rank` on, if there are any. The first of them may tie with earlier rows."""
        totals = yield from read_board_totals(self.board)
        landed: tuple[str, str] | None = None
        if rank <= totals.get(self._index, 0):
            landed = yield from self.ranking.find_row(start, rank)
        if landed is None:
            worst = (yield from self.ranking.find_worst_cell()) if (yield from self.ranking.keeps_all_rows()) else None
            rank = 1 + totals.get(self._index, 0)
            place = None if worst is None else (worst, LAST_OWNER)
            return Window([], rank, rank, True, totals, place is not None, False, place)
        near = yield from self.ranking.read_rows_around(*landed, better_rows=0, worse_rows=limit + 1)
        return (yield from self._window(near.after, limit, rank, totals))

    def find_rows_at_cursor(self, place: RowCursor, limit: int, start: CountStart | None) -> Program[Window]:
        """Find the rows before or after a cursor's row, even if that row has changed since the cursor was made.

        Raises:
            UnknownBoardError, BoardChangedError: the board was deleted or emptied; see `read_board_totals`.
        """
        totals = yield from read_board_totals(self.board)
        row_number, is_there = place.row_number, True
        if totals.get(CHANGES, 0) != place.changes:
            rows_after = int(place.forward)
            near = yield from self.ranking.read_rows_around(
                place.cell, place.owner, better_rows=0, worse_rows=rows_after
            )
            before = near.shown_before
            if before is None:
                found = yield from self.ranking.count_before(place.cell, place.owner, start)
                before = found.better_count + found.ties_before
            here = next(iter(near.after), None)
            is_there = here is not None and (here.owner, cell_of(self.ranking, here)) == (place.owner, place.cell)
            row_number = 1 + before
        if place.forward:
            rows = yield from self.ranking.read_rows_after(place.cell, place.owner, limit + 1)
            row_number += is_there  # the page begins after the cursor's row, if the board still has this row
            return (yield from self._window(rows, limit, row_number, totals))
        rows = yield from self.ranking.read_rows_before(place.cell, place.owner, limit)
        window = yield from self._window(rows, limit, row_number - len(rows), totals)
        window.more_after = True
        return window

    def find_tier_rows(
        self, tier: str, place: RowCursor | None, limit: int, start: CountStart | None
    ) -> Program[Window]:
        """Find rows of a tier: the first ones, or those before or after a cursor's row.

        The rows of a tier are consecutive, because the tiers before it end at one row, and so does the tier itself.
        """
        total = (yield from read_board_totals(self.board)).get(self._index, 0)
        before = yield from self._count_reached(tier, total, start, included=False)
        if place is None:
            return self._cut(tier, before, limit, (yield from self.find_rows_from_rank(before + 1, limit + 1, start)))
        window = yield from self.find_rows_at_cursor(place, limit + 1, start)
        if place.forward and window.first_row_number <= before:  # the tier begins further down than before
            window = yield from self.find_rows_from_rank(before + 1, limit + 1, start)
        found = self._cut(tier, before, limit, window, forward=place.forward)
        if found.rows or place.forward:
            return found
        # The tier ends further up than before, so the page before the cursor has its last rows.
        end = yield from self._count_reached(tier, total, start, included=True)
        last = yield from self.find_rows_from_rank(max(before, end - limit) + 1, limit + 1, start)
        return self._cut(tier, before, limit, last)

    def _count_reached(self, tier: str, total: int, start: CountStart | None, *, included: bool) -> Program[int]:
        """Count the rows of the tiers before a tier and, if `included` is true, the rows of the tier itself."""
        rank, value = self._locator.tiers[self._index].find_reach(tier, total, included=included)
        cells = [] if value is None else [self.ranking.padding.pad_arrival(value)]
        rows = 0
        if rank:
            landed = (yield from self.ranking.find_row(start, rank)) if rank < total else None
            if landed is None:
                return total
            rows, cells = (rank, cells) if self.ranking.timed else (0, [*cells, landed[0]])
        if not cells:
            return rows
        place = max(cells, key=self.ranking.padding.key_of_cell), LAST_OWNER
        near = yield from self.ranking.read_rows_around(*place, better_rows=0, worse_rows=0)
        if near.shown_before is not None:
            return max(rows, near.shown_before)
        counted = yield from self.ranking.count_before(*place, start)
        return max(rows, counted.better_count + counted.ties_before)

    def _cut(self, tier: str, before: int, limit: int, window: Window, *, forward: bool = True) -> Window:
        total, find_tier = window.totals.get(self._index, 0), self._locator.tiers[self._index].find_tier
        ranks, first = rank_rows(self.ranking, window), window.first_row_number
        inside = [
            at
            for at, (entry, rank) in enumerate(zip(window.rows, ranks, strict=True))
            if first + at > before and find_tier(self._value_of(entry), rank, total) == tier
        ]
        shown = inside[:limit] if forward else inside[-limit:]
        found = Window([], 1, 1, window.exact, window.totals, False, False, None, tier, before)
        if shown:
            found.rows, found.first_rank = [window.rows[at] for at in shown], ranks[shown[0]]
            found.first_row_number = first + shown[0]
            found.more_before = found.first_row_number > before + 1
            ended = len(inside) < len(window.rows) or not window.more_after
            found.more_after = len(inside) > limit or not ended or not forward
        return found

    def _value_of(self, entry: Entry) -> int:
        return self.ranking.padding.decode_value(cell_of(self.ranking, entry))

    def _window(self, rows: list[Entry], limit: int, row_number: int, totals: dict[int, int]) -> Program[Window]:
        rank, shown = row_number, rows[:limit]
        if rows and rank > 1 and not self.ranking.timed:
            _, before = yield from self.ranking.count_tied(cell_of(self.ranking, rows[0]), rows[0].owner)
            rank -= before
        more_after = len(rows) > limit or not (yield from self.ranking.keeps_all_rows())
        return Window(shown, row_number, rank, True, totals, row_number > 1, more_after)

    def make_page(self, window: Window) -> Page:
        ends = [(cell_of(self.ranking, entry), entry.owner) for entry in window.rows[:1] + window.rows[-1:]]
        ends = ends or ([] if window.place is None else [window.place])
        last_number = window.first_row_number + len(window.rows) - 1
        return Page(
            column=self.board.spec.columns[self._index].name,
            total=window.totals.get(self._index, 0),
            entries=self._ranked_entries(window),
            next=self._cursor(ends[-1], last_number, window, forward=True) if window.more_after and ends else None,
            prev=self._cursor(ends[0], window.first_row_number, window, forward=False)
            if window.more_before and ends
            else None,
        )

    def tag_page(self, window: Window) -> Tagged:
        return Tagged(msgspec.json.encode(self.make_page(window)), make_entity_tag(self.board, window.totals))

    def _ranked_entries(self, window: Window) -> list[RankedEntry]:
        name, tiers = self.board.spec.columns[self._index].name, self._locator.tiers.get(self._index)
        ranked, total = [], window.totals.get(self._index, 0)
        for entry, rank in zip(window.rows, rank_rows(self.ranking, window), strict=True):
            stats = self._locator.format_stats(entry.cells)
            value: Number = stats[name]  # type: ignore[assignment]  # a ranked column's value is a number
            row = RankedEntry(rank, window.exact, entry.owner, value, format_us(entry.updated_at_us), stats)
            if self.ranking.timed:
                row.reached_at = self._locator.find_reached_at(self._index, entry.cells[self._index])
            if tiers is not None:
                row.tier = tiers.find_tier(self._value_of(entry), rank, total)
            if window.tier is not None:
                row.tier_rank = rank - window.tier_begin
            ranked.append(row)
        return ranked

    def _cursor(self, place: CellOf, row_number: int, window: Window, *, forward: bool) -> str:
        return self._cursors.encode_cursor(
            RowCursor(
                board_key=self.board.key,
                epoch=self.board.gate.epoch,
                column_index=self._index,
                forward=forward,
                cell=place[0],
                owner=place[1],
                row_number=row_number,
                changes=window.totals.get(CHANGES, 0) if window.exact else None,  # None: recount the row number
                tier=window.tier,
            )
        )

    def decode_cursor(self, cursor: str, tier: str | None = None) -> RowCursor:
        """Decode a cursor for pages of this ranking or, if `tier` is given, for pages of this tier.

        Raises:
            BadCursorError: the text is no cursor, the cursor belongs to another ranking or tier, or the board was
                emptied after the cursor was made.
        """
        place = self._cursors.decode_cursor(cursor, RowCursor)
        if (place.board_key, place.epoch, place.column_index) != (self.board.key, self.board.gate.epoch, self._index):
            raise BadCursorError(
                "the cursor belongs to another leaderboard or column, or the leaderboard was emptied since"
            )
        if place.tier != tier:
            raise BadCursorError("the cursor belongs to pages of another tier, or of no tier")
        return place

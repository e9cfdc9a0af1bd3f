"""Pages, and the rows around a place: rows in order with consistent ranks.

A page knows the row number of its first row, exactly: from the top, from the cursor while the board has not changed
since, else by counting again. All other ranks follow by counting along the page, so a walk over an unchanging board
costs nothing for ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from storage.errors import BadCursor
from storage.gap_counts import Footing
from storage.leaderboards import CHANGES
from storage.rankings import Ranking
from storage.records import Board, Entry
from storage.store import Program

from .answers import Page, RankedEntry
from .context import Context
from .cursors import Place
from .positions import board_totals
from .values import format_us


@dataclass(slots=True)
class Window:
    """Consecutive rows of a ranking, best first."""

    rows: list[Entry]
    first_row_number: int  # 1-based
    first_rank: int  # of the first row; smaller than its number inside a tie run
    exact: bool
    totals: dict[int, int]
    more_before: bool
    more_after: bool


def ranks_of(ranking: Ranking, window: Window) -> list[int]:
    """The rank of each row: its number, or that of the first row with its value where equal values share a rank."""
    ranks: list[int] = []
    previous: str | None = None
    rank = window.first_rank
    for number_, entry in enumerate(window.rows, start=window.first_row_number):
        cell = cell_of(ranking, entry)
        if ranks and (ranking.timed or cell != previous):
            rank = number_
        ranks.append(rank)
        previous = cell
    return ranks


def cell_of(ranking: Ranking, entry: Entry) -> str:
    """The ranked cell of a row that is in the ranking."""
    cell = entry.cells[ranking.index]
    assert isinstance(cell, str)
    return cell


class FirstPage(NamedTuple):
    """The top of a ranking, encoded."""

    body: bytes
    rows: int


async def first_pages(asked: list[tuple[Pager, int]]) -> list[FirstPage]:
    """Answers a `Coalescer`: all who ask for the same (pager of one ranking, limit) at a time get one read's bytes."""
    pager, limit = asked[0]
    window = await pager.read_first(limit)
    page = FirstPage(msgspec.json.encode(pager.page(window)), len(window.rows))
    return [page] * len(asked)


class Pager:
    """Reading programs for the rows of one ranking."""

    def __init__(self, context: Context, board: Board, index: int) -> None:
        self._locator = context.locators.of(board)
        self.ranking: Ranking = self._locator.entries.rankings[index]
        self._board, self._index = board, index
        self._context = context
        self._dialect = context.store.dialect

    async def read_first(self, limit: int) -> Window:
        """The best rows, read."""
        return await self._context.store_of(self._board).read(lambda: self.first(limit))

    def first(self, limit: int) -> Program[Window]:
        """The best rows."""
        totals = yield from board_totals(self._dialect, self._board)
        rows = yield from self.ranking.first_rows(limit + 1)
        return Window(rows[:limit], 1, 1, True, totals, False, self._more_after(rows, limit, 1, totals))

    def _more_after(self, rows: list[Entry], limit: int, row_number: int, totals: dict[int, int]) -> bool:
        return len(rows) > limit or self.goes_on_past(row_number + len(rows[:limit]) - 1, totals)

    def goes_on_past(self, row_number: int, totals: dict[int, int]) -> bool:
        """Return whether the ranking of an archived board goes on past a row: its archive ends earlier."""
        return self._board.archived_us is not None and row_number < totals.get(self._index, 0)

    def footing(self) -> Footing | None:
        """What deep pages start from; see `Locator.footing`."""
        return self._locator.footing(self._index)

    def from_rank(self, rank: int, limit: int, footing: Footing | None) -> Program[Window]:
        """Rows from the `rank`-th on, even inside a tie; none past the end."""
        totals = yield from board_totals(self._dialect, self._board)
        landed: tuple[str, str] | None = None
        if rank <= totals.get(self._index, 0):
            landed = yield from self.ranking.row_at(footing, rank)
        if landed is None:
            return Window([], rank, rank, True, totals, False, False)
        near = yield from self.ranking.rows_around(*landed, better_rows=0, worse_rows=limit + 1)
        return (yield from self._window(near.after, limit, rank, totals, more_before=rank > 1))

    def at(self, place: Place, limit: int, footing: Footing | None) -> Program[Window]:
        """The rows on one side of a cursor's place.

        Raises:
            BadCursor: the board was emptied since.
        """
        totals = yield from board_totals(self._dialect, self._board)
        row_number = place.row_number
        if totals.get(CHANGES, 0) != place.changes:
            row_number = 1 + (yield from self._rows_before(place, footing))
        if place.forward:
            rows = yield from self.ranking.rows_after(place.cell, place.owner, limit + 1)
            if totals.get(CHANGES, 0) != place.changes:
                row_number += yield from self._taken(place)
            else:
                row_number += 1
            return (yield from self._window(rows, limit, row_number, totals, more_before=row_number > 1))
        rows = yield from self.ranking.rows_before(place.cell, place.owner, limit)
        first = row_number - len(rows)
        window = yield from self._window(rows, limit, first, totals, more_before=first > 1)
        window.more_after = True
        return window

    def _rows_before(self, place: Place, footing: Footing | None) -> Program[int]:
        found = None
        if footing is not None:
            found = yield from self.ranking.count_from_rung(footing, place.cell, owner=place.owner)
        if found is not None:
            return found.better_count + found.ties_before
        better_count = yield from self.ranking.count_better(place.cell)
        _, before = yield from self.ranking.count_tied(place.cell, place.owner)
        return better_count + before

    def _taken(self, place: Place) -> Program[int]:
        """1 where the place's row still stands there, else 0: who left it is no longer counted before what follows."""
        near = yield from self.ranking.rows_around(place.cell, place.owner, better_rows=0, worse_rows=1)
        here = near.after
        return int(bool(here) and here[0].owner == place.owner and cell_of(self.ranking, here[0]) == place.cell)

    def _window(
        self, rows: list[Entry], limit: int, row_number: int, totals: dict[int, int], *, more_before: bool
    ) -> Program[Window]:
        rank = row_number
        if rows and not self.ranking.timed:
            _, before = yield from self.ranking.count_tied(cell_of(self.ranking, rows[0]), rows[0].owner)
            rank -= before
        more_after = self._more_after(rows, limit, row_number, totals)
        return Window(rows[:limit], row_number, rank, True, totals, more_before, more_after)

    def page(self, window: Window, exact: list[bool] | None = None) -> Page:
        """The answer for a window; `exact` says of each row whether its rank is known, where they differ."""
        rows = window.rows
        last_number = window.first_row_number + len(rows) - 1
        return Page(
            column=self._board.spec.columns[self._index].name,
            total=window.totals.get(self._index, 0),
            entries=self._ranked_entries(window, exact or [window.exact] * len(rows)),
            next=self._cursor(rows[-1], last_number, window, forward=True) if window.more_after and rows else None,
            prev=self._cursor(rows[0], window.first_row_number, window, forward=False)
            if window.more_before and rows
            else None,
        )

    def _ranked_entries(self, window: Window, exact: list[bool]) -> list[RankedEntry]:
        stats_of = self._locator.stats
        name = self._board.spec.columns[self._index].name
        ranked = []
        for entry, rank, is_exact in zip(window.rows, ranks_of(self.ranking, window), exact, strict=True):
            if not entry.owner:  # erased from an archive: the others keep their places
                continue
            stats = stats_of(entry.cells)
            ranked.append(
                RankedEntry(
                    rank,
                    is_exact,
                    entry.owner,
                    stats[name],  # type: ignore[arg-type]  # a ranked column's value is a number
                    format_us(entry.updated_at_us),
                    stats,
                )
            )
        return ranked

    def _cursor(self, entry: Entry, row_number: int, window: Window, *, forward: bool) -> str:
        return self._context.cursors.write(
            Place(
                board_key=self._board.key,
                epoch=self._board.epoch,
                column_index=self._index,
                forward=forward,
                cell=cell_of(self.ranking, entry),
                owner=entry.owner,
                row_number=row_number,
                # A number that was estimated is counted when the cursor is used.
                changes=window.totals.get(CHANGES, 0) if window.exact else -1,
            )
        )

    def place(self, cursor: str) -> Place:
        """The place of a cursor of this ranking.

        Raises:
            BadCursor: it is another ranking's, or none.
        """
        place = self._context.cursors.read(cursor, Place)
        if (place.board_key, place.epoch, place.column_index) != (self._board.key, self._board.epoch, self._index):
            raise BadCursor("the cursor is another leaderboard's or column's, or was emptied since")
        return place

"""The next better entry above an owner: its rank, its value, and how many points the owner lacks to overtake it.

The owner's cell, the next better cell and all counts come from one snapshot.
"""

from collections.abc import Callable

from service.contract.queries import RankMode
from service.contract.responses.positions import NextPlace, Position
from service.contract.values import format_us, to_wire_number
from storage.entries.rankings import Ranking
from storage.records import Entry
from storage.store import Program

from .locator import Locator, WantedRank, read_board_totals


class NextBetterFinder:
    """Reads an owner's positions, each with the next better entry.

    Create the finder before the read begins. The curves and marks that it takes must not be newer than the
    snapshot of the read.
    """

    def __init__(self, locator: Locator, mode: RankMode) -> None:
        self._locator, self._mode = locator, mode
        self._asked_us, self._starts = locator.now_us(), locator.find_count_starts(locator.entries.rankings)

    def find_positions(
        self, owner: str, wanted_of: Callable[[Entry], list[WantedRank]]
    ) -> Program[tuple[Entry | None, dict[int, Position]]]:
        """Return the owner's entry, or None, and the owner's positions by column index."""
        locator = self._locator
        totals = yield from read_board_totals(locator.board)
        entry = (yield from locator.entries.find_entries([owner])).get(owner)
        if entry is None:
            return None, {}
        found: dict[int, Position] = {}
        for wanted in wanted_of(entry):
            located = yield from locator.locate_rank(wanted, self._mode, self._starts, self._asked_us)
            position = locator.make_position(wanted, located, totals)
            position.next = yield from self._next(wanted, position.rank)
            found[wanted.column_index] = position
        return entry, found

    def _next(self, own: WantedRank, own_rank: int) -> Program[NextPlace | None]:
        index = own.column_index
        ranking = self._locator.entries.rankings[index]
        assert own.owner is not None
        landed = yield from ranking.find_next_better(own.cell, own.owner)
        if landed is None:
            return None
        cell, owner = landed
        found = yield from self._locator.locate_rank(
            WantedRank(index, cell, owner), self._mode, self._starts, self._asked_us
        )
        missing = count_missing_points(ranking, own.cell, cell)
        scale = self._locator.board.spec.columns[index].scale
        return NextPlace(
            # Estimates may give both entries the same rank. The next entry is strictly better, so give it a smaller
            # rank.
            rank=max(found.low, min(found.rank, own_rank - 1)),
            low=found.low,
            high=found.high,
            exact=found.exact,
            as_of=format_us(found.as_of_us),
            value=to_wire_number(ranking.padding.decode_value(cell), scale),
            points=None if missing is None else to_wire_number(missing, scale),
        )


def count_missing_points(ranking: Ranking, own_cell: str, next_cell: str) -> int | None:
    """Return by how much the owner's value must improve to overtake the next entry, in units of the last digit.

    If the earliest of equal values is better, an equal value is not enough, because the other owner reached it earlier.
    Return None if the owner would need a value outside the column's range.
    """
    padding = ranking.padding
    wanted = padding.decode_value(next_cell)
    if padding.timed:
        wanted += 1 if padding.high else -1
        if not padding.min_scaled <= wanted <= padding.max_scaled:
            return None
    return abs(wanted - padding.decode_value(own_cell))

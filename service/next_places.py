"""The next better place of an owner: who stands there, and how much value is missing to take it.

The rule: the owner's cell, the next one and all counts are of one snapshot, and finding the next one reads one row.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.rankings import Ranking
from storage.records import Entry
from storage.store import Program

from .position_answers import NextPlace, Position
from .positions import Locator, Wanted, board_totals
from .queries import RankMode
from .values import number


class NextPlaces:
    """Reads an owner's positions, each with the next better place."""

    def __init__(self, locator: Locator, mode: RankMode) -> None:
        self._locator, self._mode = locator, mode
        # Now, before there is a snapshot: what exact counts start from must not be newer than what they see.
        found = {index: locator.footing(index) for index in locator.entries.rankings}
        self._footings = {index: footing for index, footing in found.items() if footing is not None}

    def of(
        self, owner: str, wanted_of: Callable[[Entry], list[Wanted]]
    ) -> Program[tuple[Entry | None, dict[int, Position]]]:
        """The owner's entry, None where there is none, and its positions by column index."""
        locator = self._locator
        entry = (yield from locator.entries.by_owners([owner])).get(owner)
        if entry is None:
            return None, {}
        totals = yield from board_totals(locator.entries.dialect, locator.board)
        found: dict[int, Position] = {}
        for wanted in wanted_of(entry):
            position = yield from self._position(wanted, totals)
            position.next = yield from self._next(wanted, position, totals)
            found[wanted.column_index] = position
        return entry, found

    def _position(self, wanted: Wanted, totals: dict[int, int]) -> Program[Position]:
        located = self._locator.at_once(wanted, self._mode)
        if located is None:
            (located,) = yield from self._locator.counted([wanted], self._mode, self._footings)
        return self._locator.position(wanted, located, totals)

    def _next(self, own: Wanted, position: Position, totals: dict[int, int]) -> Program[NextPlace | None]:
        index = own.column_index
        ranking = self._locator.entries.rankings[index]
        assert own.owner is not None
        landed = yield from ranking.next_better(own.cell, own.owner)
        if landed is None:
            return None
        cell, owner = landed
        found = yield from self._position(Wanted(index, cell, owner), totals)
        # An estimate may say the same rank of both: the next place is a better one.
        rank = max(found.low, min(found.rank, position.rank - 1))
        missing = missing_points(ranking, own.cell, cell)
        scale = self._locator.board.spec.columns[index].scale
        return NextPlace(
            rank=rank,
            low=found.low,
            high=found.high,
            exact=found.exact,
            value=found.value,
            points=None if missing is None else number(missing, scale),
        )


def missing_points(ranking: Ranking, own_cell: str, next_cell: str) -> int | None:
    """The least improvement that takes the place, in units of the last digit; None where the column's range ends first.

    Where the earliest of equal values is better, reaching the value is not enough: it was reached before.
    """
    padding = ranking.padding
    wanted = padding.value(next_cell)
    if padding.timed:
        wanted += 1 if padding.high else -1
        if not padding.min_scaled <= wanted <= padding.max_scaled:
            return None
    return abs(wanted - padding.value(own_cell))

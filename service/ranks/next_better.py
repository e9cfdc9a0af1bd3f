"""The next better entry above an owner: its rank, its value, and how many points the owner lacks to overtake it.

The owner's cell, the next better cell and all counts come from one snapshot.
"""

from service.contract.queries import RankMode
from service.contract.responses.positions import NextPlace
from service.contract.values import format_us, to_wire_number
from storage.entries.rankings import Ranking
from storage.store import Program

from .locator import CountBegin, Locator, WantedRank


def find_next_place(
    locator: Locator, own: WantedRank, own_rank: int, mode: RankMode, begin: CountBegin
) -> Program[NextPlace | None]:
    """Return the next better place than an owner's, or None if the owner is first."""
    index, ranking = own.column_index, locator.entries.rankings[own.column_index]
    landed = yield from ranking.find_next_better(own.cell, own.owner or "")
    if landed is None:
        return None
    cell, owner = landed
    found = yield from locator.locate_rank(WantedRank(index, cell, owner), mode, begin)
    missing = count_missing_points(ranking, own.cell, cell)
    scale = locator.board.spec.columns[index].scale
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

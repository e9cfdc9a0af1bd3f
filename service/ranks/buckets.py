"""Finds the distribution of a column: how many entries have a value in each part of its range, counted or estimated.

The range of values is split into parts of equal width. For an estimate, the curve gives the rank of each edge between
two parts, and the number of entries in a part is the difference of two ranks, so nothing is read from the store.
"""

from itertools import pairwise
from typing import NamedTuple

from predictor import AnyCurve, BoundedRank
from storage.leaves.rankings import Ranking
from storage.log.cells import Padding
from storage.store import Program


class Part(NamedTuple):
    """A part of a column's range, and the number of entries with a value from `least` to `past`.

    Only the last part includes the value `past`. `low` and `high` are the bracket of an estimated number of entries.
    They are None if the entries were counted.
    """

    least: int
    past: int
    entries: int
    low: int | None = None
    high: int | None = None


def _split_range(least: int, most: int, parts: int) -> list[int]:
    edges = sorted({least + (most - least) * part // parts for part in range(parts + 1)})
    return edges if len(edges) > 1 else [*edges, edges[0]]


def count_buckets(ranking: Ranking, parts: int) -> Program[list[Part]]:
    """Split the range of values into at most `parts` parts, smallest values first, and count the entries in each."""
    best = yield from ranking.find_cell(None, 1)
    worst = yield from ranking.find_worst_cell()
    if best is None or worst is None:
        return []
    padding = ranking.padding
    least, most = sorted((padding.decode_value(best), padding.decode_value(worst)))
    edges = _split_range(least, most, parts)
    found = []
    for start, end in pairwise(edges):
        past = padding.text_start(end + 1 if end == edges[-1] else end)
        found.append(Part(start, end, (yield from ranking.count_range(least=padding.text_start(start), past=past))))
    return found


def estimate_buckets(curve: AnyCurve, padding: Padding, parts: int) -> list[Part]:
    """Split the curve's range of values into at most `parts` parts, and estimate the number of entries in each."""
    if not curve.total:
        return []
    first, last = curve.key_at(1), curve.key_at(curve.total)
    assert first is not None  # `key_at` returns None only if no entry has a value, but `total` is not 0
    assert last is not None
    values = [padding.decode_value(padding.cell_of_key(key)) for key in (first.low, last.high)]
    edges = _split_range(min(values), max(values), parts)
    first_rank, last_rank = (BoundedRank(rank, rank, rank) for rank in (1, curve.total + 1))
    worse = [first_rank, *(_rank_from_below(curve, padding, edge) for edge in edges[1:-1]), last_rank]
    return [
        Part(start, end, after.rank - before.rank, max(0, after.low - before.high), after.high - before.low)
        for (start, end), (before, after) in zip(pairwise(edges), pairwise(worse), strict=True)
    ]


def _rank_from_below(curve: AnyCurve, padding: Padding, value: int) -> BoundedRank:
    """Estimate 1 + the number of entries with a smaller value than this one, with its bracket."""
    # `pad` returns the best cell of a value. So the rank at this cell is 1 + the number of entries with a better value.
    if padding.high:
        above = curve.locate(padding.key_of_cell(padding.pad(value - 1)))
        ranks = curve.total + 2
        return BoundedRank(ranks - above.rank, ranks - above.high, ranks - above.low)
    return BoundedRank(*curve.locate(padding.key_of_cell(padding.pad(value)))[:3])

"""Estimate the distribution of a column from its curve: the number of entries between two values, with its bracket.

The range of the column is split into parts of equal width, and the curve gives the rank of each edge. The number of
entries in a part is the difference between the ranks of its two edges. Nothing is read from the store.
"""

from itertools import pairwise
from typing import NamedTuple

from predictor import AnyCurve
from storage.log.cells import Padding


class EstimatedBucket(NamedTuple):
    """The number of entries with a value from `least` to `past`. Only the last part includes the value `past`."""

    least: int
    past: int
    entries: int
    low: int
    high: int


class _Counts(NamedTuple):
    """The number of entries with a smaller value than an edge of a part, with the bracket of that number."""

    entries: int
    low: int
    high: int


def split_range(least: int, most: int, parts: int) -> list[int]:
    """Return the edges of `parts` parts of equal width, or of fewer parts if the range has fewer values."""
    edges = sorted({least + (most - least) * part // parts for part in range(parts + 1)})
    return edges if len(edges) > 1 else [*edges, edges[0]]


def estimate_buckets(curve: AnyCurve, padding: Padding, parts: int) -> list[EstimatedBucket]:
    """Return the number of entries in each of `parts` parts of the curve's range of values, smallest values first."""
    if not curve.total:
        return []
    first, last = curve.key_at(1), curve.key_at(curve.total)
    assert first is not None  # only an empty column has no keys
    assert last is not None
    values = [padding.decode_value(padding.cell_of_key(key)) for key in (first.low, last.high)]
    edges = split_range(min(values), max(values), parts)
    below = [_Counts(0, 0, 0), *(_below(curve, padding, edge) for edge in edges[1:-1])]
    below.append(_Counts(curve.total, curve.total, curve.total))
    return [
        EstimatedBucket(
            start, end, after.entries - before.entries, max(0, after.low - before.high), after.high - before.low
        )
        for (start, end), (before, after) in zip(pairwise(edges), pairwise(below), strict=True)
    ]


def _below(curve: AnyCurve, padding: Padding, value: int) -> _Counts:
    # `pad` returns the best cell that a value can have. Therefore every entry with a better cell has a better value.
    if padding.high:
        above = curve.locate(padding.key_of_cell(padding.pad(value - 1)))
        total = curve.total + 1
        return _Counts(total - above.rank, total - above.high, total - above.low)
    better = curve.locate(padding.key_of_cell(padding.pad(value)))
    return _Counts(better.rank - 1, better.low - 1, better.high - 1)

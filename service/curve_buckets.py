"""The distribution of a column read off its curve: entries between two values, with the bracket of their number.

The rule: nothing is read. An edge is a rank like any other, so a part is the difference of two ranks, and its bracket
that of theirs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from predictor import RankCurve
from storage.padding import Padding


class Part(NamedTuple):
    """Entries with a value from `least` up to `past`; the last part holds its `past` too."""

    least: int
    past: int
    entries: int
    low: int
    high: int


class _Counts(NamedTuple):
    """How many entries lie strictly on the better side of an edge."""

    entries: int
    low: int
    high: int


def edges_between(least: int, most: int, parts: int) -> list[int]:
    """The ends of parts of equal width; fewer parts where fewer values differ."""
    edges = sorted({least + (most - least) * part // parts for part in range(parts + 1)})
    return edges if len(edges) > 1 else [*edges, edges[0]]


def estimated_parts(curve: RankCurve, padding: Padding, parts: int) -> list[Part]:
    """Parts of equal width over the values that the curve knows of; none of an empty column."""
    if not curve.total:
        return []
    keys = [knot.key for knot in curve.knots]
    if curve.ends is not None:  # who came after the fit may stand beyond its knots
        best, worst = curve.ends
        keys += [best] * (not curve.knots or curve.knots[0].better_count > 0)
        keys += [worst] * (not curve.knots or curve.knots[-1].better_count + curve.knots[-1].ties < curve.total)
    values = [padding.value(padding.cell_of_key(key)) for key in (min(keys), max(keys))]
    edges = edges_between(min(values), max(values), parts)
    below = [_Counts(0, 0, 0), *(_below(curve, padding, edge) for edge in edges[1:-1])]
    below.append(_Counts(curve.total, curve.total, curve.total))
    return [
        Part(start, end, after.entries - before.entries, max(0, after.low - before.high), after.high - before.low)
        for (start, end), (before, after) in zip(pairwise(edges), pairwise(below), strict=True)
    ]


def _below(curve: RankCurve, padding: Padding, value: int) -> _Counts:
    """How many entries have a smaller value."""
    # The best cell of a value: whoever is strictly better has a better value.
    if padding.high:
        above = curve.locate(padding.key(padding.pad(value - 1)))
        total = curve.total + 1
        return _Counts(total - above.rank, total - above.high, total - above.low)
    better = curve.locate(padding.key(padding.pad(value)))
    return _Counts(better.rank - 1, better.low - 1, better.high - 1)

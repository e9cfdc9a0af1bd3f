"""Computes ranks from a curve offline, in microseconds, with the same results as the service's `rank=estimate`.

All arithmetic uses whole numbers. The formulas are derived in the service's docs/curve.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from .answers import Curve, CurveEnd, CurveSegment, TieColumn, Value

SHAPE_UNIT = 65_536
TIME_LIMIT = 10**16  # microseconds since 1970; every time that the service stores is earlier
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Bracket(NamedTuple):
    """A rank, 1-based. The true rank as of the curve lies between `low` and `high`, both included."""

    rank: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        return self.low == self.high


class OfflineTier(NamedTuple):
    """The tier of a rank, or None if no tier fits.

    If `certain` is False, the bracket's ranks fall into several tiers.
    """

    name: str | None
    certain: bool


class OfflineCurve:
    """A curve that was fetched once, and ranks values without further requests.

    `document.as_of` tells how old its ranks are.
    """

    def __init__(self, document: Curve, path: str = "", tag: str = "") -> None:
        """`path` and `tag` are for `Client.renew_curve`."""
        self.path, self.tag = path, tag
        self.take(document)

    def take(self, document: Curve) -> None:
        """Replace the document, so that later ranks are computed from the new one."""
        self.document = document
        self._sign = -1 if document.best == "high" else 1
        self._timed = "earliest" in document.ties  # a word, or a list that may end with it
        self._segments = [self._read_segment(segment) for segment in document.segments or [document]]

    def rank(
        self, value: Value | str, reached_at: datetime | None = None, ties: Mapping[str, Value | str] | None = None
    ) -> Bracket:
        """Compute the rank of a value, even if no entry has it.

        Where the earliest of equal values is better, `reached_at` (with a time zone) breaks ties; without it, the value
        counts as reached after all others. `ties` holds values of the board's tie columns, by name; an entry without a
        value in such a column comes after those with one. Raises ValueError if a value has more decimals than its
        column.
        """
        given = ties or {}
        key = self._key(value, reached_at, [given.get(each.column) for each in self.document.tie_columns])
        found = [segment.rank(key) for segment in self._segments]
        if len(found) == 1:
            return found[0]
        return Bracket(*(1 + sum(rank - 1 for rank in ranks) for ranks in zip(*found, strict=True)))

    def tier(
        self, value: Value | str, reached_at: datetime | None = None, ties: Mapping[str, Value | str] | None = None
    ) -> OfflineTier:
        """Return the tier of the rank that `rank` computes for the same arguments."""
        bracket = self.rank(value, reached_at, ties)
        name, first, last = (self._find_tier(value, each) for each in (bracket.rank, bracket.low, bracket.high))
        return OfflineTier(name, first == last)

    def _find_tier(self, value: Value | str, rank: int) -> str | None:
        scale = self.document.scale
        for tier in self.document.tiers:
            if tier.to_rank is not None:
                fits = rank <= tier.to_rank
            elif tier.to_percent is not None:
                fits = rank <= ceil(Fraction(tier.to_percent) * self.document.total / 100)
            else:
                lead = _scaled(value, scale) - _scaled(tier.value or 0, scale)
                fits = lead * self._sign <= 0  # a better value has a smaller key
            if fits:
                return tier.name
        return None

    def _read_segment(self, curve: CurveSegment) -> _Segment:
        keys = [self._key(knot.value, knot.reached_at, knot.tie_values) for knot in curve.knots]
        outside = curve.outside
        best = None if outside is None else self._key_of_end(outside.best)
        worst = None if outside is None else self._key_of_end(outside.worst)
        return _Segment(curve, keys, best, worst)

    def _key_of_end(self, end: CurveEnd | None) -> int | None:
        return None if end is None else self._key(end.value, end.reached_at, end.tie_values)

    def _key(self, value: Value | str, reached_at: datetime | None, ties: Iterable[Value | str | None]) -> int:
        key = _scaled(value, self.document.scale) * self._sign
        for column, tie in zip(self.document.tie_columns, ties, strict=True):
            places, place = _place(column, tie)
            key = key * places + place
        if not self._timed:
            return key
        if reached_at is None:
            return key * TIME_LIMIT + TIME_LIMIT - 1
        since = reached_at - EPOCH
        return key * TIME_LIMIT + (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _scaled(value: Value | str, scale: int) -> int:
    unit: int = 10**scale
    if isinstance(value, int):
        return value * unit
    scaled = Decimal(value) * unit
    if int(scaled) != scaled:
        raise ValueError(f"{value} has more than {scale} digits after the point")
    return int(scaled)


def _place(column: TieColumn, value: Value | str | None) -> tuple[int, int]:
    """Find how many places a tie column has in a key, and the place of a value: 0 for the best, the last for None."""
    least, most = _scaled(column.min, column.scale), _scaled(column.max, column.scale)
    places: int = 10 ** len(str(most - least + 1))
    if value is None:
        return places, places - 1
    scaled = _scaled(value, column.scale)
    return places, scaled - least if column.best == "low" else most - scaled


class _Segment(NamedTuple):
    """A curve with the keys of its knots, and the keys of the best and the worst entry beyond them."""

    curve: CurveSegment
    keys: list[int]
    best: int | None
    worst: int | None

    def rank(self, key: int) -> Bracket:
        curve, keys = self.curve, self.keys
        knots, step = curve.knots, curve.step
        on_lattice = key + (keys[0] - key) % step if keys else key
        if curve.snaps:
            # No entry lies between two lattice points, so a key between them has the same rank as the next point.
            key = on_lattice
        j = bisect_left(keys, key)  # the index of the first knot that is not better; gap j lies before this knot
        first, last = j == 0, j == len(keys)
        low = 1 if first else knots[j - 1].rank + knots[j - 1].ties
        high = curve.total + 1 if last else knots[j].rank
        if low == high or (not last and keys[j] == key):
            return Bracket(high, high, high)
        best, worst = self.best, self.worst
        if first and best is not None and key <= best:
            return Bracket(low, low, low)  # nobody is better
        if last and worst is not None and key > worst:
            return Bracket(high, high, high)  # nobody is worse
        if first:
            assert best is not None, "a gap with entries has a bound"
            start = best
        else:
            start = keys[j - 1] + step
        if last:
            assert worst is not None, "a gap with entries has a bound"
            end = max(worst, start) + step
        else:
            end = keys[j]
        inside = not first and not last
        shape = curve.shapes[j - 1] if inside and curve.shapes else None
        rank = _estimate(low, high, on_lattice - start, end - start, shape)
        errors = curve.errors if inside else None if curve.outside is None else curve.outside.errors
        if errors is None:
            return Bracket(rank, low, high)
        error = errors[j - 1] if inside else errors[0 if first else 1]
        return Bracket(rank, max(low, rank - error), min(high, rank + error))


def _estimate(low: int, high: int, at: int, run: int, shape: tuple[int, int] | None) -> int:
    """Estimate the rank at the place `at` of a gap, rounded half up.

    The ranks rise from `low` at 0 to `high` at `run`, along a line or, with a `shape`, along a cubic.
    """
    if at <= 0:
        return low
    if at >= run:
        return high
    part, whole = at, run
    if shape is not None:
        first, second = shape
        part = at * (3 * (run - at) * ((run - at) * first + at * second) + at * at * SHAPE_UNIT)
        whole = run**3 * SHAPE_UNIT
    return low + (2 * (high - low) * part + whole) // (2 * whole)

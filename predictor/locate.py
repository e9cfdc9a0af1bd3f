"""Reads ranks off knots, in the same way for a fitted curve and for a live curve.

Ranks are whole numbers and monotone in the key. All arithmetic is on integers of any size: a key that combines a value
with the time when it was reached may have 40 digits. An estimate is rounded as floor(x + 1/2), where x is an exact
quotient and not a float.

K knots make K + 1 gaps. Gap j lies before knot j, and the last gap lies after the last knot. The first and the last gap
are open, because each has a knot on one side only. The `low` of a gap is the rank of the first key past the knot before
the gap. The `high` of a gap is the rank of the knot after the gap. If both are equal, the gap has no entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

# A Bézier value (control value) of a cubic is an integer from 0 to SHAPE_UNIT, which is the rise of its gap.
SHAPE_UNIT = 65_536


class Bracket(NamedTuple):
    """A 1-based rank from a curve. The true rank at the curve's time lies between `low` and `high`, both included."""

    rank: int
    low: int
    high: int
    method: Literal["knot", "curve"]  # "knot": the knots prove the rank, so it is exact; "curve": it is an estimate

    @property
    def exact(self) -> bool:
        return self.low == self.high


class BoundedRank(NamedTuple):
    """A 1-based rank with bounds. The true rank lies between `low` and `high`, both included."""

    rank: int
    low: int
    high: int


class KeyBracket(NamedTuple):
    """The key at a rank. The true key lies between the better end `low` and the worse end `high`, both included."""

    key: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        return self.low == self.high


class Gap(NamedTuple):
    """The entries strictly between two neighbouring knots. Counting a few of them gives a key's exact rank.

    For a key in the gap, the number of strictly better entries is `better_count` plus the gap's entries before the key.
    It is also `better_count` + `rows` minus the gap's entries from the key (included) on.
    """

    better_key: int | None  # key of the knot just before the gap; None: no knot is before it
    worse_key: int | None  # key of the knot just after the gap; None: no knot is after it
    better_count: int  # number of entries better than the gap, including all entries with the better knot's key
    rows: int  # the number of entries in the gap


class Drift(NamedTuple):
    """The worst errors of a curve in a range of ranks. `bound` and `bracket` are relative to the rank: 0.01 is 1 %."""

    bound: float  # largest possible error of an estimated rank
    bracket: float  # largest width of the bracket of a gap
    gap_rows: int  # number of entries in the gap with the most entries


class KnotRanks:
    """The base class of `Curve` and `LiveCurve`, which reads ranks off knots. They set the fields with `_set_knots`."""

    __slots__ = (
        "_highs",
        "_keys",
        "_lows",
        "_snap",
        "cubics",
        "ends",
        "error_bounds",
        "grid",
    )
    _keys: tuple[int, ...]  # the keys of the knots, ascending
    _lows: tuple[int, ...]  # `low` of each gap
    _highs: tuple[int, ...]  # `high` of each gap; for the last gap it is the number of entries plus one
    grid: int  # the lattice step of the fit: each key at the fit was the first key plus a multiple of this step
    _snap: int  # the lattice step for rounding a key up before it is looked up; 1: keys are not rounded
    error_bounds: Sequence[int] | None  # for each gap, the largest error of an estimate; None: not known
    cubics: Sequence[tuple[int, int]] | None  # two Bézier values for each gap between two knots; None: lines
    ends: tuple[int, int] | None  # the best and the worst key that an entry may have; None: those of the outer knots

    def _set_knots(
        self,
        keys: tuple[int, ...],
        lows: tuple[int, ...],
        highs: tuple[int, ...],
        grid: int,
        snap: int,
        reaches: Sequence[int] | None,
        shapes: Sequence[tuple[int, int]] | None,
        ends: tuple[int, int] | None,
    ) -> None:
        put = object.__setattr__  # a subclass may be a frozen dataclass
        for name, value in (
            ("_keys", keys),
            ("_lows", lows),
            ("_highs", highs),
            ("grid", grid),
            ("_snap", snap if keys else 1),
            ("error_bounds", reaches),
            ("cubics", shapes),
            ("ends", ends),
        ):
            put(self, name, value)

    @property
    def knot_count(self) -> int:
        return len(self._keys)

    @property
    def rounds_to_lattice(self) -> bool:
        """Tell whether a key is rounded up to a lattice point of the fit (see `grid`) before it is looked up."""
        return self._snap == self.grid

    def locate(self, key: int) -> Bracket:
        """Estimate the rank of a key, which need not be on the board: 1 + the number of strictly better entries.

        The rank is an integer from 1 to total + 1, monotone in the key. Between two knots the rank is read off a line
        or a cubic and rounded to the nearest integer, a half upwards. The line or cubic begins one lattice step past
        the better knot, at the rank after this knot's ties, and ends at the worse knot. If the largest error of the gap
        is known, the bracket also lies between rank - error and rank + error.
        """
        keys = self._keys
        if self._snap != 1:
            # No entry lies between two lattice points, so the next lattice point has the same rank.
            key += (keys[0] - key) % self._snap
        j = bisect_left(keys, key)
        high = self._highs[j]
        low = self._lows[j]
        if low == high or (j < len(keys) and keys[j] == key):
            return Bracket(high, high, high, "knot")
        if self.ends is not None and not self.ends[0] < key <= self.ends[1]:  # beyond every entry
            rank = low if key <= self.ends[0] else high
            return Bracket(rank, rank, rank, "knot")
        rank = self._estimate(j, key)
        if self.error_bounds is None:
            return Bracket(rank, low, high, "curve")
        reach = self.error_bounds[j]
        low, high = max(low, rank - reach), min(high, rank + reach)
        return Bracket(rank, low, high, "knot" if low == high else "curve")

    def ties_at(self, key: int) -> int:
        """Return how many entries have this key if it is the key of a knot, else 0."""
        j = bisect_left(self._keys, key)
        return self._lows[j + 1] - self._highs[j] if j < len(self._keys) and self._keys[j] == key else 0

    def find_gap(self, key: int) -> Gap:
        j, keys, low = bisect_left(self._keys, key), self._keys, self._lows
        return Gap(keys[j - 1] if j else None, keys[j] if j < len(keys) else None, low[j] - 1, self._highs[j] - low[j])

    def estimate_drift(self, from_rank: int) -> Drift:
        """Estimate the largest errors that estimated ranks may currently have, from `from_rank` (1 or more) onwards."""
        bound, bracket, gap_rows = 0.0, 0.0, 0
        reaches = self.error_bounds
        for j in range(bisect_left(self._highs, from_rank), len(self._highs)):
            low = max(self._lows[j], from_rank)
            width = self._highs[j] - self._lows[j]
            bracket, gap_rows = max(bracket, width / low), max(gap_rows, width)
            bound = max(bound, (width if reaches is None else min(width, reaches[j])) / low)
        return Drift(bound, bracket, gap_rows)

    def _span(self, j: int) -> tuple[int, int]:
        """Return (first key of a gap, first key past the gap). The line of the gap starts and ends at these keys."""
        keys, grid = self._keys, self.grid
        best, worst = self.ends or (0, 0)
        start = keys[j - 1] + grid if j else best
        return start, keys[j] if j < len(keys) else max(worst, start) + grid

    def _estimate(self, j: int, key: int) -> int:
        low, high, keys = self._lows[j], self._highs[j], self._keys
        # The usual gap is between two knots; this is what `_span` returns for it.
        start, end = (keys[j - 1] + self.grid, keys[j]) if 0 < j < len(keys) else self._span(j)
        if self.grid != 1 and keys:
            # The line was fitted to lattice points. So the key is rounded up to a lattice point, even if new entries
            # lie between lattice points.
            key += (keys[0] - key) % self.grid
        if key <= start:
            return low
        if key >= end:
            return high
        run, at = end - start, key - start
        if self.cubics is None or not 0 < j < len(keys):
            return low + (2 * (high - low) * at + run) // (2 * run)
        s1, s2 = self.cubics[j - 1]
        left = run - at
        part = at * (3 * left * (left * s1 + at * s2) + at * at * SHAPE_UNIT)
        whole = run * run * run * SHAPE_UNIT
        return low + (2 * (high - low) * part + whole) // (2 * whole)

    def key_at(self, rank: int) -> KeyBracket | None:
        """Find the worst key that still has this rank (1-based) or better; return None if the column is empty.

        If the rank is beyond the last rank, the result is the worst key. Between knots this method is the inverse of
        `locate`: it returns the worst key to which `locate` gives this rank or a better one. A known largest error of
        the gap narrows the bracket, because a key's true rank differs from its estimate at most by this error.

        Raises:
            ValueError: the rank is below 1.
        """
        if rank < 1:
            raise ValueError("ranks start at 1")
        keys, highs = self._keys, self._highs
        if highs[-1] == 1:
            return None
        rank = min(rank, highs[-1] - 1)
        i = bisect_right(highs, rank, 0, len(keys))  # the first gap whose `high` exceeds the rank, or else the last gap
        low_rank = self._lows[i]
        if i and rank < low_rank:
            key = keys[i - 1]
            return KeyBracket(key, key, key)
        low, high = self._key_ends(i)
        reach = None if self.error_bounds is None else self.error_bounds[i]
        if reach is not None:
            # A key cannot have this rank if its estimate differs from the rank by more than the largest error.
            if rank - reach >= low_rank:
                low = max(low, self._worst_given(i, rank - reach))
            if rank + reach < highs[i]:
                high = min(high, self._worst_given(i, rank + reach))
        return KeyBracket(min(max(self._worst_given(i, rank), low), high), low, high)

    def _key_ends(self, i: int) -> tuple[int, int]:
        if self._snap == self.grid:
            start, end = self._span(i)
            return start, end - self.grid
        best, worst = self.ends or (0, 0)  # here keys are not rounded: entries may lie off the lattice
        return self._keys[i - 1] + 1 if i else best, self._keys[i] - 1 if i < len(self._keys) else worst

    def _worst_given(self, j: int, rank: int) -> int:
        """Find the worst lattice point of gap j with this estimated rank or a better one. Such a point must exist."""
        start, end = self._span(j)
        if self.cubics is not None and 0 < j < len(self._keys):
            return self._worst_within(j, rank, start, end)
        # This solves floor(y + 1/2) <= rank for the key. Here y is the gap's line, from `low` at the key `start` to
        # `high` at the key `end`.
        low_rank = self._lows[j]
        parts = ((end - start) * (2 * (rank - low_rank) + 1) - 1) // (2 * (self._highs[j] - low_rank))
        return start + parts // self.grid * self.grid

    def _worst_within(self, j: int, rank: int, start: int, end: int) -> int:
        """Do the work of `_worst_given` for a gap with a cubic, from the key `start` to the key `end`, by bisection."""
        found, past = 0, (end - start) // self.grid
        while past - found > 1:
            middle = (found + past) // 2
            if self._estimate(j, start + middle * self.grid) <= rank:
                found = middle
            else:
                past = middle
        return start + found * self.grid

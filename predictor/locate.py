"""How a rank is read off knots, the same way for a curve as it was fitted and for one that is kept live.

The one rule: the answers are monotone in the key, whole numbers, and exact only where the knots prove it, so all
arithmetic is on integers of any width (40 digits where a key holds the value and the time it was reached). Rounding is
floor(x + 1/2) of the exact quotient, not of a float near it.

K knots leave K + 1 gaps: gap j lies before knot j, the first and the last are open. `low` of a gap is the rank of the
first key past the knot before it, `high` that of the knot after it; where they are equal nobody stands in the gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

SHAPE_UNIT = 65_536  # of a cubic's control values: parts of the gap's rise


class Bracket(NamedTuple):
    """A rank, 1-based, with the ends that the true rank lies between at the time of the answer, both included."""

    rank: int
    low: int
    high: int
    method: Literal["knot", "curve"]  # "knot": read off the knots, always exact; "curve": estimated over a gap

    @property
    def exact(self) -> bool:
        """Whether the rank is known, not estimated."""
        return self.low == self.high


class KeyBracket(NamedTuple):
    """A key for a rank, and the better (`low`) and worse (`high`) end that the true key lies between, both included."""

    key: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the key is known, not estimated."""
        return self.low == self.high


class Rung(NamedTuple):
    """A knot from which the entries better than some key are a short count away."""

    key: int | None  # strictly better than the key in question; None: the top, which nobody is better than
    counted: int  # entries better than the rung or tied with it
    gap_rows: int  # entries between the rung and the next knot: as many as a count may read


class Drift(NamedTuple):
    """The worst over some ranks, relative to the rank: 0.01 is 1 %."""

    bound: float  # of the error
    bracket: float  # of a gap's width
    gap_rows: int  # entries in the fullest gap


class KnotRanks:
    """Ranks between knots; `_arrange` gives it what it reads."""

    __slots__ = (
        "_bare",  # lines alone and both ends closed: nothing but the knots decides
        "_ends",
        "_grid",
        "_highs",
        "_keys",
        "_lows",
        "_reaches",
        "_shapes",
        "_snap",
    )
    _keys: tuple[int, ...]  # of the knots, ascending
    _lows: tuple[int, ...]  # of each gap
    _highs: tuple[int, ...]  # of each gap; the last is one past all entries
    _grid: int  # the lattice step that the lines were fitted on
    _snap: int  # the step onto which a key may be moved before it is looked for; 1: not at all
    _reaches: Sequence[int] | None  # by gap: how far the estimate may be from the true rank; None: not known
    _shapes: Sequence[tuple[int, int]] | None  # by closed gap: the inner control values of a cubic; None: lines
    _ends: tuple[int, int] | None  # the best and the worst key that the open gaps may hold; None: they are empty
    _bare: bool

    def _arrange(
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
        put = object.__setattr__  # those who build on this are frozen
        for name, value in (
            ("_keys", keys),
            ("_lows", lows),
            ("_highs", highs),
            ("_grid", grid),
            ("_snap", snap if keys else 1),
            ("_reaches", reaches),
            ("_shapes", shapes),
            ("_ends", ends),
            ("_bare", reaches is None and shapes is None and ends is None and snap == grid),
        ):
            put(self, name, value)

    @property
    def grid(self) -> int:
        """The lattice step that lines and cubics were fitted on."""
        return self._grid

    @property
    def snaps(self) -> bool:
        """Whether a key is moved onto the lattice before it is looked for."""
        return self._snap == self._grid

    @property
    def reaches(self) -> Sequence[int] | None:
        """How far an estimate may be off, for each of the K + 1 gaps; None: not known."""
        return self._reaches

    @property
    def cubics(self) -> Sequence[tuple[int, int]] | None:
        """The inner control values for each gap between two knots; None: lines."""
        return self._shapes

    @property
    def ends(self) -> tuple[int, int] | None:
        """The best and the worst key that the open gaps may hold; None: nobody stands outside the knots."""
        return self._ends

    def locate(self, key: int) -> Bracket:
        """The rank of an entry with this key, or of a new arrival with it: 1 + how many are strictly better.

        Monotone in the key, an integer in [1, total + 1]. Between knots a line or a cubic from the first lattice point
        past the better knot, one rank past its ties, to the worse knot, rounded to the nearest integer, halves up.
        Where the error of the gap is known, the bracket is no wider than that.
        """
        keys = self._keys
        if self._snap != 1:
            key += (keys[0] - key) % self._snap  # nobody stands between two lattice points: the next has the same rank
        j = bisect_left(keys, key)
        high = self._highs[j]
        low = self._lows[j]
        if low == high or (j < len(keys) and keys[j] == key):
            return Bracket(high, high, high, "knot")
        if self._bare:
            start = keys[j - 1] + self._grid
            run = keys[j] - start
            rank = low + (2 * (high - low) * (key - start) + run) // (2 * run)
            return Bracket(rank, low, high, "curve")
        if self._ends is not None and (j == 0 or j == len(keys)):
            best, worst = self._ends
            if j == 0 and key <= best:
                return Bracket(low, low, low, "knot")
            if j == len(keys) and key > worst:
                return Bracket(high, high, high, "knot")
        rank = self._estimate(j, key)
        if self._reaches is None:
            return Bracket(rank, low, high, "curve")
        reach = self._reaches[j]
        low, high = max(low, rank - reach), min(high, rank + reach)
        return Bracket(rank, low, high, "knot" if low == high else "curve")

    def ties_at(self, key: int) -> int:
        """How many entries have this key, where it is a knot's; 0 where it is not."""
        j = bisect_left(self._keys, key)
        return self._lows[j + 1] - self._highs[j] if j < len(self._keys) and self._keys[j] == key else 0

    def rung_for(self, key: int) -> Rung:
        """Where to begin a short count of the entries strictly better than a key: they are the rung's, and those that
        stand strictly between the rung and the key.
        """
        j = bisect_left(self._keys, key)
        return Rung(self._keys[j - 1] if j else None, self._lows[j] - 1, self._highs[j] - self._lows[j])

    def rung_below(self, key: int) -> Rung:
        """The same from the other side: the next knot from the key on, tied with it perhaps, and the entries strictly
        better than that knot. Its key is None where every knot is better.
        """
        j = bisect_left(self._keys, key)
        below = self._keys[j] if j < len(self._keys) else None
        return Rung(below, self._highs[j] - 1, self._highs[j] - self._lows[j])

    def drift(self, from_rank: int) -> Drift:
        """How wrong the ranks from this one on (at least 1) may be by now."""
        bound, bracket, gap_rows = 0.0, 0.0, 0
        reaches = self._reaches
        for j in range(bisect_left(self._highs, from_rank), len(self._highs)):
            low = max(self._lows[j], from_rank)
            width = self._highs[j] - self._lows[j]
            bracket, gap_rows = max(bracket, width / low), max(gap_rows, width)
            bound = max(bound, (width if reaches is None else min(width, reaches[j])) / low)
        return Drift(bound, bracket, gap_rows)

    def _span(self, j: int) -> tuple[int, int]:
        """(the first key of a gap, the first key past it): where its line starts and ends."""
        keys, grid = self._keys, self._grid
        best, worst = self._ends or (0, 0)
        start = keys[j - 1] + grid if j else best
        return start, keys[j] if j < len(keys) else max(worst, start) + grid

    def _estimate(self, j: int, key: int) -> int:
        """The rank over gap j, which holds somebody, of a key within it."""
        low, high = self._lows[j], self._highs[j]
        start, end = self._span(j)
        if self._grid != 1 and self._keys:
            key += (self._keys[0] - key) % self._grid  # the line is of lattice points, whoever stands between them now
        if key <= start:
            return low
        if key >= end:
            return high
        run, at = end - start, key - start
        if self._shapes is None or not 0 < j < len(self._keys):
            return low + (2 * (high - low) * at + run) // (2 * run)
        s1, s2 = self._shapes[j - 1]
        left = run - at
        part = at * (3 * left * (left * s1 + at * s2) + at * at * SHAPE_UNIT)
        whole = run * run * run * SHAPE_UNIT
        return low + (2 * (high - low) * part + whole) // (2 * whole)

    def key_at(self, rank: int) -> KeyBracket | None:
        """The worst key that still has this rank (1-based) or better; past the end the worst key; None if empty.

        Between knots the inverse of `locate`: the worst key that it gives this rank or better. Where the error of the
        gap is known, the bracket is no wider than that allows. Raises ValueError below rank 1.
        """
        if rank < 1:
            raise ValueError("ranks start at 1")
        keys, highs = self._keys, self._highs
        if highs[-1] == 1:
            return None
        rank = min(rank, highs[-1] - 1)
        i = bisect_right(highs, rank, 0, len(keys))  # the gap before knot i begins with worse ranks than this, if any
        low_rank = self._lows[i]
        if i and rank < low_rank:
            key = keys[i - 1]
            return KeyBracket(key, key, key)
        low, high = self._key_ends(i)
        reach = None if self._reaches is None else self._reaches[i]
        if reach is not None:
            # Who is given a rank further off than that can't have this one.
            if rank - reach >= low_rank:
                low = max(low, self._worst_given(i, rank - reach))
            if rank + reach < highs[i]:
                high = min(high, self._worst_given(i, rank + reach))
        return KeyBracket(min(max(self._worst_given(i, rank), low), high), low, high)

    def _key_ends(self, i: int) -> tuple[int, int]:
        """(best, worst) key that an entry of gap i may have."""
        if self._snap != self._grid:
            return self._open_span(i)
        start, end = self._span(i)
        return start, end - self._grid

    def _open_span(self, i: int) -> tuple[int, int]:
        """(best, worst) key that an entry of gap i may have where values lie off the lattice."""
        best, worst = self._ends or (0, 0)
        return self._keys[i - 1] + 1 if i else best, self._keys[i] - 1 if i < len(self._keys) else worst

    def _worst_given(self, j: int, rank: int) -> int:
        """The worst lattice point of gap j that is given this rank, one of the gap's, or a better one."""
        start, end = self._span(j)
        if self._shapes is not None and 0 < j < len(self._keys):
            return self._worst_within(j, rank, start, end)
        # floor(y + 1/2) <= rank, solved for the key; y is the line from the gap's first rank at `start` to the end.
        low_rank = self._lows[j]
        parts = ((end - start) * (2 * (rank - low_rank) + 1) - 1) // (2 * (self._highs[j] - low_rank))
        return start + parts // self._grid * self._grid

    def _worst_within(self, j: int, rank: int, start: int, end: int) -> int:
        """The worst lattice point of gap j that a cubic gives this rank or better, by bisection."""
        found, past = 0, (end - start) // self._grid
        while past - found > 1:
            middle = (found + past) // 2
            if self._estimate(j, start + middle * self._grid) <= rank:
                found = middle
            else:
                past = middle
        return start + found * self._grid

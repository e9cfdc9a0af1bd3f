"""Sums the curves of a board's disjoint parts (its segments) into one curve for the whole board.

Ranks cannot be added up, but counts of better entries can, and bounds add up the same way: if the bracket of every part
contains the true rank, the sum's bracket does, too.

    |rank - true rank| <= sum over the parts of min(width of the gap, largest error of the gap)

The parts' curves are from about the same time, and the sum is as of the earliest of these times. The other curves count
some changes after that time, at most `later` in all, so every bracket is widened by `later` at both ends.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b

from .curve import FitMethod
from .live import RankCurve
from .locate import Bracket, Drift, Gap, KeyBracket


class SummedCurve:
    """The curve of a board in several parts, computed from the parts' curves. It has no knots of its own."""

    def __init__(self, parts: Sequence[RankCurve], later: int = 0) -> None:
        self.parts, self._later = tuple(parts), later
        self.total = sum([part.total for part in parts])
        self.as_of_us = min([part.as_of_us for part in parts])

    @cached_property
    def tag(self) -> str:
        """A text that identifies the curve. Two curves of the same column with equal tags give equal ranks."""
        return blake2b(" ".join([part.tag for part in self.parts]).encode(), digest_size=16).hexdigest()

    @property
    def method(self) -> FitMethod:
        return "scan" if all(part.method == "scan" for part in self.parts) else "skip"

    @property
    def moved(self) -> int:
        """The number of times that owners' keys came into, left or changed within gaps, added up over all parts."""
        return sum([part.moved for part in self.parts])

    @property
    def is_live(self) -> bool:
        return all(part.is_live for part in self.parts)

    @property
    def knot_count(self) -> int:
        return sum([part.knot_count for part in self.parts])

    def locate(self, key: int) -> Bracket:
        """Estimate the rank of a key, which need not be on the board: 1 + the number of strictly better entries."""
        rank = low = high = 1 - len(self.parts)
        for part in self.parts:
            its_rank, its_low, its_high, _ = part.locate(key)
            rank += its_rank
            low += its_low
            high += its_high
        if self._later:
            low, high = max(1, low - self._later), high + self._later
        return Bracket(rank, low, high, "knot" if low == high else "curve")

    def ties_at(self, key: int) -> int:
        """Return 0, because a key's ties are known only if it is a knot in every part, which is rare."""
        return 0

    def find_gap(self, key: int) -> Gap:
        """Find a `Gap` without knots. Its numbers are sums over the gaps that hold the key in the parts' curves."""
        gaps = [part.find_gap(key) for part in self.parts]
        return Gap(None, None, sum([gap.better_count for gap in gaps]), sum([gap.rows for gap in gaps]))

    def key_at(self, rank: int) -> KeyBracket | None:
        """Find the worst key that still has this rank (1-based) or better; return None if the column is empty.

        The result is the last key before the rank gets worse than `rank`. The bracket goes from the first key after
        which the rank may get worse to the first key after which it surely does.

        Raises:
            ValueError: the rank is below 1.
        """
        if rank < 1:
            raise ValueError("ranks start at 1")
        rank = min(rank, self.total)
        ends = [end for part in self.parts if (end := _ends(part)) is not None]
        if not ends:
            return None
        best, worst = min(end[0] for end in ends), max(end[1] for end in ends)
        low = _first_key(best, worst, lambda key: self.locate(key + 1).high > rank)
        high = _first_key(best, worst, lambda key: self.locate(key + 1).low > rank)
        key = _first_key(best, worst, lambda key: self.locate(key + 1).rank > rank)
        return KeyBracket(min(max(key, low), high), low, high)

    @cached_property
    def _keys(self) -> list[int]:
        return sorted({key for part in self.parts for key in part._keys})

    def estimate_drift(self, from_rank: int) -> Drift:
        """Estimate the largest errors that estimated ranks may currently have, from `from_rank` (1 or more) onwards.

        With the knots of all parts taken together, the summed error is constant between two neighbours, so relative to
        the rank it is largest where the rank is smallest, just past a knot. Only these keys are checked.
        """
        bound, bracket, gap_rows = 0.0, 0.0, 0
        keys = self._keys
        begins = [keys[0] - 1 if keys else 0, *[key + 1 for key in keys]]
        for key in begins:
            reach = width = 0
            low = high = 1
            for part in self.parts:
                j = bisect_left(part._keys, key)
                if j < len(part._keys) and part._keys[j] == key:  # on a knot, the rank is exact
                    low, high = low + part._highs[j] - 1, high + part._highs[j] - 1
                    continue
                rows = part._highs[j] - part._lows[j]
                width += rows
                reach += rows if part.error_bounds is None else min(rows, part.error_bounds[j])
                low, high = low + part._lows[j] - 1, high + part._highs[j] - 1
            if high < from_rank:
                continue
            at = max(low, from_rank)
            bound, bracket, gap_rows = max(bound, reach / at), max(bracket, width / at), max(gap_rows, width)
        return Drift(bound, bracket, gap_rows)

    @cached_property
    def certificate(self) -> float | None:
        """The worst relative rank error that is possible, or None if the fit of a part did not measure it."""
        if any(part.certificate is None for part in self.parts):
            return None
        return self.estimate_drift(1).bound


def _ends(part: RankCurve) -> tuple[int, int] | None:
    first, last = part.key_at(1), part.key_at(max(1, part.total))
    return None if first is None or last is None else (first.low, last.high)


def _first_key(best: int, worst: int, holds: Callable[[int], bool]) -> int:
    """Find, by bisection, the best key from `best` to `worst` for which `holds` is true; `worst` if there is none."""
    while best < worst:
        middle = (best + worst) // 2
        if holds(middle):
            worst = middle
        else:
            best = middle + 1
    return best


AnyCurve = RankCurve | SummedCurve

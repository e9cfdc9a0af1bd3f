"""Boards as plain lists of keys, and curves for them whose knots are chosen in different ways.

All curves of a board have the same keys and equally many knots, and differ only in where the knots are.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.curve_boards import fit_certified
from predictor import Curve, Knot, KnotRanks, Landing, Skip, WorstEntry, walk
from tests.predictor.quality import count_by_key


@dataclass(frozen=True)
class PlainBoard:
    sorted_keys: Sequence[int]

    @cached_property
    def knots(self) -> list[Knot]:
        found, better_count = [], 0
        for key, ties in count_by_key(self.sorted_keys):
            found.append(Knot(key, better_count, ties))
            better_count += ties
        return found

    def _curve(self, knots: Sequence[Knot]) -> Curve:
        return Curve(knots, total=len(self.sorted_keys), as_of_us=0)

    def uniform(self, knots_max: int) -> Curve:
        """Return a curve whose knots are spaced equally by rank."""
        total, knots = len(self.sorted_keys), self.knots
        keys = [knot.key for knot in knots]
        rows = {round(index * (total - 1) / (knots_max - 1)) for index in range(knots_max)}
        indexes = sorted({bisect_left(keys, self.sorted_keys[row]) for row in rows})
        return self._curve([knots[index] for index in indexes])

    def geometric(self, knots_max: int) -> Curve:
        """Return a curve whose knots have equal ratios of rank, as in the walk of skip sampling."""
        plan = walk(len(self.sorted_keys), knots_max=knots_max)
        try:
            question = next(plan)
            while True:
                assert isinstance(question, Skip | WorstEntry)
                question = plan.send(self._landing(question))
        except StopIteration as stop:
            return self._curve(stop.value)

    def _landing(self, question: Skip | WorstEntry) -> Landing | None:
        keys, knots = self.sorted_keys, self.knots
        if isinstance(question, WorstEntry):
            return Landing(keys[-1], 0, knots[-1].ties)
        after = question.after_key
        start = 0 if after is None else bisect_left(keys, after + 1)
        row = start + question.rows
        if row >= len(keys):
            return None
        knot = knots[bisect_left(knots, (keys[row],))]  # a knot is a tuple that begins with its key
        return Landing(knot.key, row - knot.better_count, knot.ties)

    def certified(self, knots_max: int) -> Curve:
        """Return a curve fitted from all keys, by a fit that minimises the worst relative error and measures it."""
        return fit_certified(np.array(self.sorted_keys, dtype=np.int64), knots_max)

    def errors(self, curve: KnotRanks, step: int = 1) -> Iterator[tuple[int, float, bool]]:
        """Yield (true rank, relative error, whether the bracket is wrong) at each key and one step after it."""
        for key, better_count, ties in self.knots:
            for at_key, rank in ((key, better_count + 1), (key + step, better_count + ties + 1)):
                bracket = curve.locate(at_key)
                yield rank, abs(bracket.rank - rank) / rank, not bracket.low <= rank <= bracket.high

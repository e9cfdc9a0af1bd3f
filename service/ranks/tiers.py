"""Decides which tier an entry has. Tiers are named bands of a ranked column; an entry has the first one that fits.

A tier reaches down to a rank, to a share of all ranked entries, or to a value. So with the same value and total, a
worse rank never has an earlier tier. If both ends of a bracket have the same tier, every rank between them has it.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from service.contract.responses.positions import Position
from storage.records import Best, ColumnSpec


class _Limit(NamedTuple):
    """The limit of a tier. Exactly one of `to_rank`, `share` and `value` is not None."""

    name: str
    to_rank: int | None
    share: tuple[int, int] | None  # numerator and denominator of the share of all ranked entries, from 0 to 1
    value: int | None  # a scaled integer

    def reaches(self, value: int, rank: int, total: int, *, high: bool) -> bool:
        """Return whether an entry with this value and rank is in the tier. `high`: whether high values are best."""
        if self.to_rank is not None:
            return rank <= self.to_rank
        if self.share is not None:
            numerator, denominator = self.share
            return rank <= -(-total * numerator // denominator)
        assert self.value is not None
        return value >= self.value if high else value <= self.value


class Tiers:
    """The tiers of a ranked column. Values are scaled integers."""

    def __init__(self, column: ColumnSpec) -> None:
        self._high = column.best is Best.HIGH
        self._limits: Sequence[_Limit] = [
            _Limit(
                tier.name,
                tier.to_rank,
                None if tier.to_percent is None else (Fraction(str(tier.to_percent)) / 100).as_integer_ratio(),
                tier.value_scaled,
            )
            for tier in column.tiers
        ]
        # Whether the tier of an entry can change although neither its rank nor its value changes.
        self.depend_on_total = any(limit.share is not None for limit in self._limits)

    def find_tier(self, value: int, rank: int, total: int) -> str | None:
        """Return the name of the first tier that fits, or None if no tier fits."""
        for limit in self._limits:
            if limit.reaches(value, rank, total, high=self._high):
                return limit.name
        return None

    def add_to_position(self, position: Position, value: int) -> None:
        """Set the tier of a position by its rank. If its bracket spans several tiers, set `tier_certain` to False."""
        position.tier = self.find_tier(value, position.rank, position.total)
        if not position.exact:
            first, last = (self.find_tier(value, rank, position.total) for rank in (position.low, position.high))
            if first != last:
                position.tier_certain = False

"""Decides which tier (a named band of a ranked column) an entry has: the first one that the entry fits into.

A tier reaches down to a rank, to a share of all ranked entries, or to a value. So with the same value and total, a
worse rank never has an earlier tier. That is why it suffices to look at the ends of a bracket: if both have the same
tier, so does every rank between them.
"""

from fractions import Fraction

from service.contract.responses.positions import Position
from storage.records import Best, ColumnSpec, TierSpec


class Tiers:
    """A ranked column's tiers. Values are scaled integers."""

    def __init__(self, column: ColumnSpec) -> None:
        self._tiers, self._high = column.tiers, column.best is Best.HIGH
        # By the name of a tier: the numerator and the denominator of its share, which is from 0 to 1.
        self._shares = {
            tier.name: (Fraction(str(tier.to_percent)) / 100).as_integer_ratio()
            for tier in column.tiers
            if tier.to_percent is not None
        }
        self.names = [tier.name for tier in column.tiers]
        # Whether an entry's tier can change although neither its rank nor its value changes.
        self.depend_on_total = bool(self._shares)

    def find_tier(self, value: int, rank: int, total: int) -> str | None:
        for tier in self._tiers:
            if self._reaches(tier, value, rank, total):
                return tier.name
        return None

    def find_reach(self, name: str, total: int, *, included: bool) -> tuple[int, int | None]:
        """Find how far down the tiers before a tier reach: to a rank (0: none) and to a value (None: none).

        If `included` is true, the tier itself counts, too. An entry has one of these tiers if its rank or its value is
        at least as good.
        """
        end = self.names.index(name) + included
        ranks = [self._last_rank(tier, total) for tier in self._tiers[:end] if tier.value_scaled is None]
        values = [tier.value_scaled for tier in self._tiers[:end] if tier.value_scaled is not None]
        return max(ranks, default=0), (min if self._high else max)(values, default=None)

    def _reaches(self, tier: TierSpec, value: int, rank: int, total: int) -> bool:
        if tier.value_scaled is not None:
            return value >= tier.value_scaled if self._high else value <= tier.value_scaled
        return rank <= self._last_rank(tier, total)

    def _last_rank(self, tier: TierSpec, total: int) -> int:
        if tier.to_rank is not None:
            return tier.to_rank
        numerator, denominator = self._shares[tier.name]
        return -(-total * numerator // denominator)  # the division rounds up

    def add_to_position(self, position: Position, value: int) -> None:
        """Set a position's tier by its rank. If its bracket spans several tiers, set `tier_certain` to False."""
        position.tier = self.find_tier(value, position.rank, position.total)
        if not position.exact:
            first, last = (self.find_tier(value, rank, position.total) for rank in (position.low, position.high))
            if first != last:
                position.tier_certain = False

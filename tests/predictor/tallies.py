"""Tallies made from sorted keys, as a store's scan would make them."""

from array import array
from collections.abc import Sequence

from predictor import LIMB_BITS, Tally
from tests.predictor.quality import count_by_key


def tally_of(sorted_keys: Sequence[int], *, wide: bool | None = None) -> Tally:
    """Make the tally of sorted keys. With `wide`, a second array holds high bits of keys; by default only if needed."""
    low, high, better_counts, total = array("q"), array("q"), array("q"), 0
    for key, entries in count_by_key(sorted_keys):
        offset = key - sorted_keys[0]
        low.append(offset & ((1 << LIMB_BITS) - 1))
        high.append(offset >> LIMB_BITS)
        better_counts.append(total)
        total += entries
    wide = any(high) if wide is None else wide
    first = sorted_keys[0] if sorted_keys else 0
    return Tally(
        first, memoryview(low), memoryview(high) if wide else None, memoryview(better_counts), total, lambda: None
    )

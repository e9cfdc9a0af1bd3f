"""What a scan of a column hands to the fit: plain buffers, so that whoever reads a store knows nothing of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LIMB_BITS = 62  # of the lower of the two parts of a key: a difference of two parts fits 64 bits
Buffer = memoryview  # of 64-bit integers, in the machine's order


@dataclass(frozen=True, slots=True)
class Tally:
    """Every distinct key of a column, best first, and how many entries are better than each: one snapshot."""

    first_key: int
    low: Buffer  # each key less the first one, modulo 2**LIMB_BITS …
    high: Buffer | None  # … and divided by it; None where all are smaller
    better_counts: Buffer
    total: int  # entries
    relax: Callable[[], None]  # called now and then: mapped pages may be given back

"""The result of a scan of a column: plain buffers, so that the code that reads a store needs no arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LIMB_BITS = 62  # width of the lower of the two parts of a key: the difference of two such parts fits 64 bits
Buffer = memoryview  # of 64-bit integers, in the machine's order


@dataclass(frozen=True, slots=True)
class Tally:
    """Every distinct key of a column, best first, and how many entries are better than each, in one snapshot."""

    first_key: int
    low: Buffer  # (key - first_key) modulo 2**LIMB_BITS
    high: Buffer | None  # (key - first_key) divided by 2**LIMB_BITS; None if all quotients are 0
    better_counts: Buffer
    total: int  # entries
    release_pages: Callable[[], None]  # called at intervals: the owner of the buffers may give mapped pages back

"""Defines the result of a scan of a column. Its buffers are plain, so that code that reads stores needs no numpy."""

from dataclasses import dataclass

# A key is split into a lower part of this many bits and a higher part. A difference of lower parts fits into 64 bits.
LIMB_BITS = 62
Buffer = memoryview  # 64-bit integers in the machine's byte order


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of a scan: the distinct keys in one snapshot, best first, each with the number of better entries."""

    first_key: int
    low: Buffer  # for each key, (key - first_key) modulo 2**LIMB_BITS
    high: Buffer | None  # for each key, (key - first_key) // 2**LIMB_BITS; None if all of them are 0
    better_counts: Buffer  # for each key, the number of better entries
    total: int  # number of entries in the column

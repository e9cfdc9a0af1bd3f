"""Holds the result of scanning a column, in plain buffers, so that code that reads stores needs no numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

# A key is split into limbs of this many bits. A difference of two limbs fits into 64 bits.
LIMB_BITS = 62
Buffer = memoryview  # 64-bit integers in the machine's byte order


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of a scan: the distinct keys in one snapshot, best first, each with the number of better entries."""

    first_key: int
    limbs: Sequence[Buffer]  # the limbs of key - first_key, the lowest first; each has an item for each key
    better_counts: Buffer  # for each key, the number of better entries
    total: int  # number of entries in the column

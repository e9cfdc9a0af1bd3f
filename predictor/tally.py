"""The result of scanning a column, in plain buffers, so that the code that reads a store does not need numpy."""

from dataclasses import dataclass

# The width, in bits, of the lower of the two parts of a key. The difference of two lower parts has to fit into 64 bits.
LIMB_BITS = 62
Buffer = memoryview  # 64-bit integers in the machine's byte order


@dataclass(frozen=True, slots=True)
class Tally:
    """Every distinct key of a column in one snapshot, best first, with the number of better entries for each key."""

    first_key: int
    low: Buffer  # (key - first_key) modulo 2**LIMB_BITS
    high: Buffer | None  # (key - first_key) divided by 2**LIMB_BITS; None if all quotients are 0
    better_counts: Buffer  # for each key, the number of better entries
    total: int  # number of all entries

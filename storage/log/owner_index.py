"""Narrows the search for an owner's changes to the blocks of the journal that may hold some.

    changes ── a job, once there are enough changes ──> block: first and last position, Bloom filter of its owners

A block is a range of log positions with about 8,192 changes. Once built, it never changes, and no change later appears
at a position that it covers. So a filter never misses an owner.

The filters take the place of a database index by owner, which would make every post write to random pages. A filter
costs about 2 us and 2 bytes per change, and a job writes the filters later, one block after the other.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from querybuilder import asc, col, delete, desc, insert, max_, param, select
from storage.schema.tables import JOURNAL_BLOCKS
from storage.store import Program, Rows

from .bundles import owners_of
from .change_log import LogPages, change_log, last_number_before

BLOCK_CHANGES = 8_192
_FILTER_BITS = BLOCK_CHANGES * 16  # with 4 probes per owner, 1 of 400 filters reports an owner that it lacks
_PROBES = 4
_BYTES_HASHED = 8
_PAGE = 32  # blocks that are read at a time


class PositionRange(NamedTuple):
    first: int
    last: int


class OwnerBlock(NamedTuple):
    positions: PositionRange
    filter: bytes


def filter_of(owners: Iterable[str]) -> bytes:
    bits = bytearray(_FILTER_BITS // 8)
    for owner in owners:
        for bit in _bits(owner):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def may_hold(bits: bytes, owner: str) -> bool:
    """Return whether a filter may contain this owner. False is certain, whereas True may be wrong."""
    return all(bits[bit >> 3] >> (bit & 7) & 1 for bit in _bits(owner))


def _bits(owner: str) -> Iterator[int]:
    number = int.from_bytes(hashlib.blake2b(owner.encode(), digest_size=_BYTES_HASHED).digest())
    start, step = number >> 32, number & 0xFFFFFFFF | 1
    return ((start + probe * step) % _FILTER_BITS for probe in range(_PROBES))


class OwnerBlocks:
    """Programs that build, read and prune a partition's blocks."""

    def __init__(self) -> None:
        self._covered = select(max_(col("last"))).from_(JOURNAL_BLOCKS).prepared()
        self._log = LogPages("position", "owners")
        self._add = (
            insert(JOURNAL_BLOCKS).values(first=param("first"), last=param("last"), owners=param("owners")).prepared()
        )
        found = select(col("first"), col("last"), col("owners")).from_(JOURNAL_BLOCKS)
        down = found.where(col("first").lt(param("at"))).order_by(desc(col("first")))
        self._down = down.limit(_PAGE).prepared()
        self._up = found.where(col("first").gt(param("at"))).order_by(asc(col("first"))).limit(_PAGE).prepared()
        self._prune = delete(JOURNAL_BLOCKS).where(col("last").lt(param("boundary"))).prepared()

    def find_covered_position(self) -> Program[int]:
        rows = yield self._covered.bind()
        return int(rows[0][0] or 0)

    def build_next_block(self) -> Program[OwnerBlock | None]:
        """Build the next block from the log, or return None if too few changes follow the last block."""
        past = yield from self.find_covered_position()
        after = last_number_before(past + 1)
        sizes = yield from self._log.read_sizes(after, limit=BLOCK_CHANGES)
        if sum(row.changes for row in sizes.rows) < BLOCK_CHANGES:
            return None
        rows = yield from self._log.read_page(after, changes_max=BLOCK_CHANGES)
        owners = {owner for row in rows for owner in owners_of(row[1])}
        return OwnerBlock(PositionRange(past + 1, int(rows[-1][0])), filter_of(owners))

    def store_block(self, block: OwnerBlock) -> Program[None]:
        yield self._add.bind(first=block.positions.first, last=block.positions.last, owners=block.filter)

    def prune(self) -> Program[int]:
        rows = yield self._prune.bind(boundary=(yield from change_log.read_counter()).pruned_before)
        return int(rows[0][0])

    def list_blocks_below(self, position: int) -> Program[list[OwnerBlock]]:
        return _blocks((yield self._down.bind(at=position)))

    def list_blocks_above(self, position: int) -> Program[list[OwnerBlock]]:
        return _blocks((yield self._up.bind(at=position)))


def _blocks(rows: Rows) -> list[OwnerBlock]:
    return [OwnerBlock(PositionRange(row[0], row[1]), bytes(row[2])) for row in rows]


owner_blocks = OwnerBlocks()

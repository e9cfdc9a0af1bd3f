"""Which stretches of the journal may hold an owner: a filter for every few thousand changes, made behind the posts.

    changes ──a job, once there are enough──> block: first and last position, Bloom filter of its owners

The rule: a block is made once and covers whole transactions that have ended, so a filter never misses an owner. It
stands in for an index by owner, whose pages every post would touch at random: on a log of half a million changes that
costs a post 25 us and 1.6 KB of write-ahead log, a filter 2 us and 2 bytes, later and in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from querybuilder import Dialect, asc, col, delete, desc, insert, max_, param, select

from .bundles import owners_of
from .change_log import change_log, rows_for
from .migrate import BLOCKS, CHANGE_LOG
from .store import Program, Rows

BLOCK_CHANGES = 8_192
_FILTER_BITS = BLOCK_CHANGES * 16  # with four of them an owner one block in 400 is searched in vain
_PROBES = 4
_BYTES_HASHED = 8
_PAGE = 32  # blocks read at a time


class Stretch(NamedTuple):
    """Positions from `first` to `last`."""

    first: int
    last: int


class Block(NamedTuple):
    """A stretch, and which owners it may hold."""

    stretch: Stretch
    filter: bytes


def filter_of(owners: Iterable[str]) -> bytes:
    """A Bloom filter of these owners."""
    bits = bytearray(_FILTER_BITS // 8)
    for owner in owners:
        for bit in _bits(owner):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def may_hold(bits: bytes, owner: str) -> bool:
    """Whether an owner may be one of a filter's."""
    return all(bits[bit >> 3] >> (bit & 7) & 1 for bit in _bits(owner))


def _bits(owner: str) -> Iterator[int]:
    number = int.from_bytes(hashlib.blake2b(owner.encode(), digest_size=_BYTES_HASHED).digest())
    start, step = number >> 32, number & 0xFFFFFFFF | 1
    return ((start + probe * step) % _FILTER_BITS for probe in range(_PROBES))


class Blocks:
    """The statements, for one dialect; see `blocks`."""

    def __init__(self, dialect: Dialect) -> None:
        self._log = change_log(dialect)
        position = self._log.position
        self._covered = select(max_(col("last"))).from_(BLOCKS).compile(dialect)
        beyond = position.gt(param("past")), position.lt(self._log.horizon_now.scalar())
        sizes = select(position, col("changes")).from_(CHANGE_LOG).where(*beyond).order_by(asc(position))
        self._sizes = sizes.limit(BLOCK_CHANGES).packed().compile(dialect)
        owners = select(col("owners")).from_(CHANGE_LOG).where(position.gt(param("past")), position.le(param("last")))
        self._owners = owners.packed().compile(dialect)
        self._add = (
            insert(BLOCKS).values(first=param("first"), last=param("last"), owners=param("owners")).compile(dialect)
        )
        found = select(col("first"), col("last"), col("owners")).from_(BLOCKS)
        down = found.where(col("first").lt(param("at"))).order_by(desc(col("first")))
        self._down = down.limit(_PAGE).compile(dialect)
        self._up = found.where(col("first").gt(param("at"))).order_by(asc(col("first"))).limit(_PAGE).compile(dialect)
        self._prune = delete(BLOCKS).where(col("last").lt(param("boundary"))).compile(dialect)

    def covered(self) -> Program[int]:
        """Every row up to this position is in a block."""
        rows = yield self._covered.bind()
        return int(rows[0][0] or 0)

    def next(self) -> Program[Block | None]:
        """The block that can be made now; None: too little has happened since the last one."""
        past = yield from self.covered()
        sizes = yield self._sizes.bind(past=past)
        if sum(changes for _, changes in sizes) < BLOCK_CHANGES:
            return None
        last = int(sizes[rows_for([row[1:] for row in sizes], BLOCK_CHANGES) - 1][0])
        rows = yield self._owners.bind(past=past, last=last)
        return Block(Stretch(past + 1, last), filter_of({owner for row in rows for owner in owners_of(row[0])}))

    def add(self, block: Block) -> Program[None]:
        """Store a block."""
        yield self._add.bind(first=block.stretch.first, last=block.stretch.last, owners=block.filter)

    def prune(self) -> Program[int]:
        """Remove the blocks whose rows were removed; answers how many."""
        rows = yield self._prune.bind(boundary=(yield from self._log.pruned()))
        return int(rows[0][0])

    def below(self, position: int) -> Program[list[Block]]:
        """Some blocks that begin below a position, the newest first; none: there are no more."""
        return _blocks((yield self._down.bind(at=position)))

    def above(self, position: int) -> Program[list[Block]]:
        """Some blocks that begin above a position, the oldest first; none: there are no more."""
        return _blocks((yield self._up.bind(at=position)))


def _blocks(rows: Rows) -> list[Block]:
    return [Block(Stretch(row[0], row[1]), bytes(row[2])) for row in rows]


@lru_cache
def blocks(dialect: Dialect) -> Blocks:
    """The statements, compiled once."""
    return Blocks(dialect)

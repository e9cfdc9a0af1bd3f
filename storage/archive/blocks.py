"""Encodes and decodes the compressed blocks that make up each section of an archive.

    head               the board's count of changes when the archive was begun
    owners             all rows of the board, ordered by owner
    tally of a column  every distinct cell, best first, and how many entries have this cell
    top of a column    the best rows by this column, in order
    curve of a column  the final curve of the board, or of each segment if the board had segments

A block of rows stores one column after the other. Blocks must stay small, because a read of one row decodes the whole
block.
"""

import zlib
from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

import msgspec

from storage.records import Entry

HEAD, OWNERS = "head", "owners"  # the two sections that belong to no column

_LEVEL = 6


class SectionKind(StrEnum):
    TALLY = "tally"
    TOP = "top"
    CURVE = "curve"


def section_of(kind: SectionKind, column_index: int) -> str:
    return f"{kind} {column_index}"


class Rows(NamedTuple):
    """The decoded content of a block of rows.

    `ties_before` maps the index of each column whose ties are stored to a list with one number per row, which says how
    many rows with the same cell rank before that row.
    """

    entries: list[Entry]
    ties_before: dict[int, list[int]]


def encode_rows(rows: Rows) -> bytes:
    entries = rows.entries
    owners, updated_us = [entry.owner for entry in entries], [entry.updated_at_us for entry in entries]
    columns = [list(column) for column in zip(*[entry.cells for entry in entries], strict=True)]
    return _packed((owners, updated_us, columns, rows.ties_before))


def decode_rows(document: bytes) -> Rows:
    owners, updated_us, columns, ties_before = msgspec.msgpack.decode(
        zlib.decompress(document), type=tuple[list[str], list[int], list[list[str | int | None]], dict[int, list[int]]]
    )
    cells = map(list, zip(*columns, strict=True)) if columns else repeat([])
    return Rows([Entry(*row) for row in zip(owners, updated_us, cells, strict=False)], ties_before)


class TallyBlock(NamedTuple):
    """A tally block: distinct keys (cells as numbers), best first, and how many entries have each key."""

    keys: list[int]
    ties: list[int]

    def count_better_than(self, key: int) -> int:
        return sum(self.ties[: bisect_left(self.keys, key)])

    def count_tied_with(self, key: int) -> int:
        index = bisect_left(self.keys, key)
        return self.ties[index] if index < len(self.keys) and self.keys[index] == key else 0

    def key_at(self, index: int) -> int:
        """Find the key of the entry with this 0-based index in the block, counted from the best entry."""
        counted = list(accumulate(self.ties))
        return self.keys[bisect_left(counted, index + 1)]

    def next_better_key(self, key: int) -> int | None:
        """Find the worst of the block's keys that are better than `key`, or return None if no key is better."""
        index = bisect_left(self.keys, key)
        return self.keys[index - 1] if index else None


def encode_tally(tally: TallyBlock) -> bytes:
    """Encode a tally block, with numbers as text, because keys may be wider than 64 bits."""
    steps = [tally.keys[0], *[after - before for before, after in pairwise(tally.keys)]]
    ties = [] if all(count == 1 for count in tally.ties) else tally.ties
    return _packed((",".join(map(str, steps)), ",".join(map(str, ties))))


def decode_tally(document: bytes) -> TallyBlock:
    steps, ties = msgspec.msgpack.decode(zlib.decompress(document), type=tuple[str, str])
    keys = list(accumulate(map(int, steps.split(","))))
    return TallyBlock(keys, list(map(int, ties.split(","))) if ties else [1] * len(keys))


def _packed(content: Sequence[object]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(content), _LEVEL)

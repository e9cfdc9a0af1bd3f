"""The blocks of an archive as bytes: rows side by side by column, and tallies of a ranked column, compressed.

    owners   rows by owner, all of the board        top of a column     its best rows, in order
    tally    every distinct cell, best first, and how many entries have it        curve    as it was fitted last

The rule: a block is small, so that whoever needs one row of it decodes few, and says its form in its first byte.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

import msgspec

from .records import Entry

HEAD, OWNERS = -2, -1  # sections that a board has one of
_KINDS = 4  # sections of a ranked column

_FORM = b"1"
_LEVEL = 6


def tally_section(column_index: int) -> int:
    """Where the tally of a column is."""
    return _KINDS * column_index


def top_section(column_index: int) -> int:
    """Where the best rows of a column are."""
    return _KINDS * column_index + 1


def curve_section(column_index: int) -> int:
    """Where the curve of a column is."""
    return _KINDS * column_index + 2


class Rows(NamedTuple):
    """Rows of a board. By column index, where places within ties are kept: how many equal cells stand before each."""

    entries: list[Entry]
    ties_before: dict[int, list[int]]


def encode_rows(rows: Rows) -> bytes:
    """The bytes of a block of rows."""
    entries = rows.entries
    owners, updated_us = [entry.owner for entry in entries], [entry.updated_at_us for entry in entries]
    columns = [list(column) for column in zip(*[entry.cells for entry in entries], strict=True)]
    return _packed((owners, updated_us, columns, rows.ties_before))


def decode_rows(document: bytes) -> Rows:
    """The rows of a block."""
    owners, updated_us, columns, ties_before = msgspec.msgpack.decode(
        _unpacked(document), type=tuple[list[str], list[int], list[list[str | int | None]], dict[int, list[int]]]
    )
    cells = map(list, zip(*columns, strict=True)) if columns else repeat([])
    return Rows([Entry(*row) for row in zip(owners, updated_us, cells, strict=False)], ties_before)


class Tallied(NamedTuple):
    """A block of distinct keys, best first, and how many entries have each."""

    keys: list[int]
    ties: list[int]

    def better_than(self, key: int) -> int:
        """Entries of the block with a better key."""
        return sum(self.ties[: bisect_left(self.keys, key)])

    def tied_with(self, key: int) -> int:
        """Entries with this key."""
        index = bisect_left(self.keys, key)
        return self.ties[index] if index < len(self.keys) and self.keys[index] == key else 0

    def at(self, place: int) -> int:
        """The key of the entry that so many others of the block stand before."""
        counted = list(accumulate(self.ties))
        return self.keys[bisect_left(counted, place + 1)]

    def before(self, key: int) -> int | None:
        """The next better key of the block."""
        index = bisect_left(self.keys, key)
        return self.keys[index - 1] if index else None


def encode_tally(tally: Tallied) -> bytes:
    """The bytes of a block of keys. Keys may be wider than 64 bits, so that numbers are written as text."""
    steps = [tally.keys[0], *[after - before for before, after in pairwise(tally.keys)]]
    ties = [] if all(count == 1 for count in tally.ties) else tally.ties
    return _packed((",".join(map(str, steps)), ",".join(map(str, ties))))


def decode_tally(document: bytes) -> Tallied:
    """The keys of a block."""
    steps, ties = msgspec.msgpack.decode(_unpacked(document), type=tuple[str, str])
    keys = list(accumulate(map(int, steps.split(","))))
    return Tallied(keys, list(map(int, ties.split(","))) if ties else [1] * len(keys))


def _packed(content: Sequence[object]) -> bytes:
    return _FORM + zlib.compress(msgspec.msgpack.encode(content), _LEVEL)


def _unpacked(document: bytes) -> bytes:
    if document[:1] != _FORM:
        raise ValueError("the block is of a later version")
    return zlib.decompress(document[1:])

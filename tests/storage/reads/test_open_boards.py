"""Tests of the programs kept for the boards that were read last."""

from dataclasses import replace

import pytest

from storage.reads.open_boards import OpenBoards
from storage.records import Board, Leaf, Place
from tests.storage.deployment import spec


def _spread_board(key: int) -> Board:
    leaves = tuple(Leaf(key * 10 + number, f"b{key}", spec(), Place(0), segment=number) for number in range(2))
    return Board(key, f"b{key}", spec(), 0, leaves)


def _board(key: int) -> Board:
    return replace(_spread_board(key), leaves=(Leaf(key, f"b{key}", spec(), Place(0)),))


def test_the_least_recently_used_board_is_dropped_first() -> None:
    for make in (_board, _spread_board):
        boards = OpenBoards(open_boards_max=6)  # of leaves and, apart from them, of spread boards
        opened = {key: boards.open_board(make(key)) for key in range(1, 7)}
        assert boards.open_board(make(1)) is opened[1]
        boards.open_board(make(7))
        assert boards.open_board(make(1)) is opened[1]
        assert boards.open_board(make(2)) is not opened[2]


def test_a_board_with_segments_has_no_leaf_or_partition_of_its_own() -> None:
    assert (_board(1).leaf.key, _board(1).partition) == (1, 0)
    for part in ("leaf", "partition"):
        with pytest.raises(ValueError, match="too many values"):
            getattr(_spread_board(1), part)

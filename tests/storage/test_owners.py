"""Test the order in which an owner's rows are locked on many boards."""

from dataclasses import replace

from storage.owners import list_steps
from storage.records import Board
from tests.storage.deployment import ranked, spec


def test_boards_are_locked_in_the_order_in_which_posts_lock_them() -> None:
    own = Board(4, "own", spec(ranked("xp")), created_at_us=0, epoch=1)
    shared = [replace(own, key=key, id=f"shared {key}", table_key=2, rows_key=key) for key in (3, 5)]
    [step] = list_steps([shared[1], own, shared[0]])
    assert [board.key for board in step] == [3, 5, 4], "by table, then by board"

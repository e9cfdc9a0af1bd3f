"""Test the order in which an owner's rows are locked on many boards."""

from dataclasses import replace

from storage.owners import list_steps
from storage.records import Leaf, Place
from tests.storage.deployment import ranked, spec


def test_boards_are_locked_in_the_order_in_which_posts_lock_them() -> None:
    own = Leaf(4, "own", spec(ranked("xp")), Place(0))
    shared = [replace(own, key=key, id=f"shared {key}", place=Place(0, 2, key)) for key in (3, 5)]
    [step] = list_steps([shared[1], own, shared[0]])
    assert [leaf.key for leaf in step] == [3, 5, 4], "by table, then by board"

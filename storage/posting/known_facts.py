"""Facts that a process keeps from earlier groups of posts, so that most groups of posts ask the store for less.

    of a partition    which owners are marked as hidden or as being shown, see `hidden_owners`
                      which epochs its boards have; post ids are stored with them, see `post_ids`
    of all callers    whether some of them currently send posts with known ids again

The number `facts` in the counter of the change log belongs to the facts of a partition. Whoever changes one of them
changes this number last in the same transaction. Every group of posts takes the counter before it is committed. If the
number is still the same, the facts were true since the group began, and stay true until it is committed. Otherwise
the process forgets them, and a group that has relied on them runs again.

If no known ids came lately, a group stores its ids without looking them up. It runs again with a look-up if one of
the ids is stored already, or if it would refuse a post with an id: this post may have been applied before, when
nothing was wrong with it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from storage.leaves.hidden_owners import HIDDEN, MARKS_MAX, read_marks
from storage.store import Program, in_partition

EPOCHS_MAX = 100_000  # the most boards of a partition whose epochs a process remembers


class Facts(NamedTuple):
    """The facts about a partition."""

    version: int  # see `facts` above
    marks: dict[str, str]  # by owner
    epochs: dict[tuple[int, int], int]  # by board key and rows key; programs add to it

    def is_hidden(self, owner: str) -> bool:
        return self.marks.get(owner) == HIDDEN

    def keep_epoch(self, board_key: int, rows_key: int, epoch: int) -> None:
        if len(self.epochs) >= EPOCHS_MAX:
            self.epochs.clear()
        self.epochs[board_key, rows_key] = epoch


class KnownFacts:
    """The facts that a process knows. Programs fill and empty it, and several programs may run at the same time."""

    def __init__(self) -> None:
        self.facts: dict[int, Facts] = {}  # by partition
        self._unbounded: set[int] = set()  # partitions that had more than `MARKS_MAX` marks
        self.ids_known = False  # whether the last group with post ids had known ones

    def read_facts(self, partition: int, owners: Iterable[Iterable[str]]) -> Program[Facts]:
        """Read the facts of a partition, and keep them in `facts`, unless there are too many.

        Then, only the marks of the owners in these groups are returned.
        """
        if partition not in self._unbounded:
            found = Facts(*(yield from in_partition(partition, read_marks())), {})
            if len(found.marks) <= MARKS_MAX:
                self.facts[partition] = found
                return found
            self._unbounded.add(partition)
        asked = sorted(set[str]().union(*owners))
        return Facts(*(yield from in_partition(partition, read_marks(asked))), {})

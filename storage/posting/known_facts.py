"""Facts that a process remembers from earlier groups of posts, so that most groups need fewer look-ups in the store.

    of a partition    which owners are hidden or are being shown again, see `hidden_owners`
                      the current epoch of each board; post ids of earlier epochs are not valid, see `post_ids`
                      when each board was last emptied; posts with an earlier time are refused
    of all callers    whether some callers currently send posts again, with ids that are already stored

The counter of a partition's change log is a row that also has `facts`, the version of the partition's facts. A
transaction that changes a fact increases this version as its last write. A group of posts that logs changes locks the
counter before the commit. If the version is still the same, the facts were true since the group began, and they stay
true until the commit. Otherwise the process forgets the facts, and a group that has relied on them runs again.

If callers have sent no stored ids recently, a group stores its ids without a look-up. The group runs again with a
look-up if one of the ids is stored already, or if the group would refuse a post with an id. The refused post may have
been applied earlier, when there was no reason to refuse it.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from storage.leaves.hidden_owners import HIDDEN, STATES_MAX, read_states
from storage.store import Program, in_partition

BOARDS_MAX = 100_000  # the most boards of a partition whose epochs, or times of resets, a process remembers
K = TypeVar("K")


class Facts(NamedTuple):
    """The remembered facts of one partition, see the docstring of the module."""

    version: int  # the version of the facts when they were read: `facts` in the counter of the change log
    owner_states: dict[str, str]  # `HIDDEN` or `SHOWING`, by owner, see `hidden_owners`
    epochs: dict[tuple[int, int], int]  # by (board key, `rows_key` of its `Place`); filled when post ids are looked up
    resets: dict[int, int]  # when boards were last emptied, by board key; 0: never; filled by posts that name a time

    def is_hidden(self, owner: str) -> bool:
        return self.owner_states.get(owner) == HIDDEN


def remember_fact(facts: dict[K, int], key: K, fact: int) -> None:
    """Remember a fact of a board. `facts`: the field `epochs` or `resets`, with one key for each board."""
    if len(facts) >= BOARDS_MAX:
        facts.clear()
    facts[key] = fact


class KnownFacts:
    """The facts that a writer, or the job for queued posts, remembers. Several groups may change them at once."""

    def __init__(self) -> None:
        self.facts: dict[int, Facts] = {}  # by partition
        self._unbounded: set[int] = set()  # partitions in which more than `STATES_MAX` owners had a state
        self.ids_known = False  # whether groups look up their ids, because a post was lately sent again or refused

    def read_facts(self, partition: int, owners: Iterable[Iterable[str]]) -> Program[Facts]:
        """Read which owners of a partition are hidden or are being shown again. Remember them in the field `facts`.

        If there are more than `STATES_MAX` of them, remember nothing, and return only those that are in `owners`.
        """
        if partition not in self._unbounded:
            found = Facts(*(yield from in_partition(partition, read_states())), {}, {})
            if len(found.owner_states) <= STATES_MAX:
                self.facts[partition] = found
                return found
            self._unbounded.add(partition)
        asked = sorted(set[str]().union(*owners))
        return Facts(*(yield from in_partition(partition, read_states(asked))), {}, {})
